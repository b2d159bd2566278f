#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/handshake.h"
#include "collective/sim.h"
#include "core/time.h"

namespace troop {

// Where the learners of a run meet, to become the ranks of a group. Each opens an address and tells
// the others; who has heard the same list joins. An address serves one try.
class LearnerLobby {
 public:
  virtual ~LearnerLobby() = default;
  // A new address; the one before is closed. Errors: kUnavailable.
  virtual Result<std::string> Open() = 0;
  // addresses: by rank, one of them the newest of Open. May block (waits()). Errors: as
  // GroupEntry::Join: somebody has another list, or is not there.
  virtual Result<std::unique_ptr<Collective>> Join(int rank, std::uint64_t epoch,
                                                   std::span<const std::string> addresses) = 0;
  // Whether each learner has a thread of its own, on which it may wait for the others. Otherwise
  // one thread plays them all, and only polls.
  virtual bool waits() const = 0;
};

struct SocketLobbyOptions {
  std::string group = "learners";
  std::uint64_t token = 0;            // equal on all learners of a run
  std::optional<GroupSecret> secret;  // as GroupOptions has it
  std::string listen = "127.0.0.1:0";
  int learners_max = 1;
  Duration connect_timeout = Seconds(5);
  Duration timeout = Seconds(10);  // of an operation
};
// Between processes: Open on the node's thread, Join in a job.
std::unique_ptr<LearnerLobby> MakeSocketLobby(const SocketLobbyOptions& options);

// Of learners that one thread plays: serial mode, the simulator, tests. Each has its own lobby,
// which refers to this.
class SimLobbies {
 public:
  std::unique_ptr<LearnerLobby> Make();

  struct Meeting {
    std::map<std::vector<std::string>, std::unique_ptr<SimGroup>> groups;  // by their addresses
    std::uint64_t opened = 0;
  };

 private:
  std::shared_ptr<Meeting> meeting_ = std::make_shared<Meeting>();
};

}  // namespace troop
