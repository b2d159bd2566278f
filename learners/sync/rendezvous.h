#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/sim/sim_group.h"
#include "collective/socket/handshake.h"
#include "core/base/time.h"

namespace troop {

// Rendezvous of a run's learners, where they become the ranks of a group. Each learner opens an
// address and publishes it; learners that have seen the same address list join. An address serves
// one attempt.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Opens a new address and closes the previous one. Errors: kUnavailable.
  virtual Result<std::string> Open() = 0;
  // Forms the group. addresses: by rank; one of them is the latest of Open. May block (see
  // waits()). Errors: as GroupEntry::Join: a learner has another list, or is missing.
  virtual Result<std::unique_ptr<Collective>> Join(int rank, std::uint64_t epoch,
                                                   std::span<const std::string> addresses) = 0;
  // True if each learner has its own thread, on which it may block. Otherwise one thread runs all
  // learners, and only polls.
  virtual bool waits() const = 0;
};

struct SocketRendezvousOptions {
  std::string group = "learners";
  std::uint64_t token = 0;            // equal for all learners of a run
  std::optional<GroupSecret> secret;  // as in GroupOptions
  std::string listen = "127.0.0.1:0";
  int learners_max = 1;
  Duration connect_timeout = Seconds(5);
  Duration timeout = Seconds(10);  // per operation
};
// Makes a rendezvous between processes: call Open on the node's thread and Join in a job.
std::unique_ptr<Rendezvous> MakeSocketRendezvous(const SocketRendezvousOptions& options);

// Lobbies of learners that run in one thread: serial mode, the simulator, tests. Each learner has
// its own rendezvous, which refers to this object.
class SimRendezvousFactory {
 public:
  std::unique_ptr<Rendezvous> Make();

  struct Meeting {
    std::map<std::vector<std::string>, std::unique_ptr<SimGroup>> groups;  // by their addresses
    std::uint64_t opened = 0;
  };

 private:
  std::shared_ptr<Meeting> meeting_ = std::make_shared<Meeting>();
};

}  // namespace troop
