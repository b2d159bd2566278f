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

#include "core/status.h"
#include "core/time.h"
#include "net/network.h"

namespace troop {

// A network and the thread that owns it: what is one thread's matter (channels, services, the
// replay's two ends) is made, polled and destroyed there. Python's threads hand work over and wait.
// So connections live, and batches are fetched and decoded, while Python computes.
// Thread safe. The thread ends with the Host; it never takes the interpreter's lock. Not for use
// after a fork: start worker processes with "spawn".
class Host {
 public:
  // `key`: file of keys (net/keys.h) for TCP; empty: none. `insecure`: listens without beyond this
  // machine as well. Errors: as LoadKeys.
  static Result<std::shared_ptr<Host>> Make(const std::string& key, bool insecure = false);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Runs `work` on the thread and returns when it is done. Not from the thread itself.
  void Run(const std::function<void(Network*)>& work);
  // Called at each turn of the thread until Remove; true: there is more to do at once.
  using Step = std::function<bool(Time now)>;
  std::uint64_t Add(Step step);
  // The step and what it owns are destroyed on the thread before this returns.
  void Remove(std::uint64_t id);
  void Wake() { network_->Wake(); }
  const KeyRing* keys() const { return keys_.get(); }  // nullptr: none

 private:
  Host(std::unique_ptr<Network> network, std::shared_ptr<const KeyRing> keys);
  void Loop();
  bool RunTasks();

  const std::unique_ptr<Network> network_;
  const std::shared_ptr<const KeyRing> keys_;
  std::map<std::uint64_t, Step> steps_;  // the thread's
  std::uint64_t next_id_ = 1;            // the thread's
  std::mutex mutex_;
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
