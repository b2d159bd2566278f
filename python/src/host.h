#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"

namespace troop {

// A network and the thread that owns it. Objects that need one thread (channels, services, both
// ends of a replay) are created, polled and destroyed there; Python threads post work and wait.
// Connections therefore stay alive, and batches are fetched and decoded, while Python computes.
// Thread safe. The thread ends with the Host and never takes the GIL. Not usable after a fork:
// start worker processes with "spawn".
class Host {
 public:
  // `key`: key file (net/security/keys.h) for TCP; empty: none. `insecure`: allows listening
  // without keys beyond this machine. Errors: those of LoadKeys.
  static Result<std::shared_ptr<Host>> Make(const std::string& key, bool insecure = false);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Runs `work` on the thread and returns when it is done. Must not be called from the thread
  // itself.
  void Run(const std::function<void(Network*)>& work);
  // Called in each iteration of the thread until Remove; true: more can be done at once.
  using Step = std::function<bool(Time now)>;
  // Registers a step; returns its id.
  std::uint64_t Add(Step step);
  // The step and what it owns are destroyed on the thread before this returns.
  void Remove(std::uint64_t id);
  // Ends the thread's wait early.
  void Wake() { network_->Wake(); }
  const KeyRing* keys() const { return keys_.get(); }  // nullptr: no keys

 private:
  Host(std::unique_ptr<Network> network, std::shared_ptr<const KeyRing> keys);
  void Loop();
  bool RunTasks();

  const std::unique_ptr<Network> network_;
  const std::shared_ptr<const KeyRing> keys_;
  std::map<std::uint64_t, Step> steps_;  // used by the thread only
  std::uint64_t next_id_ = 1;            // used by the thread only
  std::mutex mutex_;                     // protects tasks_, stopping_ and the tasks' `done`
  std::condition_variable done_;
  struct Task {
    const std::function<void(Network*)>* work;
    bool* done;
  };
  std::vector<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troop
