#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "nn/lbfgs/lbfgs.h"
#include "paramserver/sandblaster/sandblaster_messages.h"
#include "paramserver/sandblaster/work_portions.h"

namespace troop {

// Coordinator of Sandblaster L-BFGS (Dean et al. 2012, sec. 4.2): sends commands to the shards, and
// portions of the examples to workers. It never has a vector; a command takes less than 1 KB. A
// state machine without a network: the caller delivers its messages, and reports deaths. Each shard
// can have replicas, which execute the same commands and get the same gradients; the search
// continues while one of each remains. Iterates do not depend on the workers, their speed or their
// deaths. One owner thread.
//
// Steps, until done():
//   command() goes to every live replica of every shard; TakeReply takes the replies.
//   While gathering(), a worker calls TakePortion, pulls the weights, computes the portion, sends
//   its parts to every live replica of every shard, and after their confirmation PortionDone.
class SandblasterCoordinator {
 public:
  struct Options {
    LbfgsOptions lbfgs;
    int shards = 1;
    int replicas = 1;  // per shard
    int workers = 1;
    int portions = 1;  // of each evaluation, better many more than workers
    bool backups = true;
    std::uint64_t term = 0;  // above those of all earlier coordinators
  };
  explicit SandblasterCoordinator(const Options& options);
  // Takes over from a dead coordinator: continues with the newest command that a shard has. heads:
  // of all live replicas, by VectorShard::Follow with the new term. Errors: kInvalidArgument: heads
  // that are more than one command apart, a damaged state.
  static Result<SandblasterCoordinator> TakeOver(const Options& options,
                                                 std::span<const SandblasterHead> heads);

  // A replica of a shard.
  struct Place {
    int shard = 0, replica = 0;
    bool operator==(const Place&) const = default;
  };
  // The current command; repeated without harm.
  SandblasterCommand command() const;
  // True if the reply of that live replica is awaited.
  bool Awaits(const Place& place) const;
  // Takes a reply. Others than awaited ones are ignored. Errors: kDataLoss: replicas of a shard
  // differ, or shards differ in the value; the search can't continue.
  Status TakeReply(const Place& place, const SandblasterReply& reply);
  // Takes notice of a death. Errors: kUnavailable: it was the last replica of its shard.
  Status ShardDied(const Place& place);
  // A replica that is a copy of a live one after its reply to the last command.
  void ShardJoined(const Place& place);

  bool gathering() const { return portions_.has_value() && !done(); }
  // A portion for a worker; nullopt: none now.
  std::optional<int> TakePortion(int worker);
  void PortionDone(int worker, std::uint64_t number, int portion);
  void WorkerDied(int worker);

  bool done() const { return lbfgs_.outcome() != Lbfgs::Outcome::kRunning; }
  const Lbfgs& lbfgs() const { return lbfgs_; }
  std::int64_t backups() const;  // portions that were handed out more than once

 private:
  struct Replica {
    bool alive = true;
    std::optional<SandblasterReply> reply;
  };
  Replica& At(const Place& place);
  const Replica& At(const Place& place) const;
  Status Advance();
  void Gather(const std::vector<std::int32_t>& missing);

  Options options_;
  Lbfgs lbfgs_;
  std::uint64_t number_ = 1;
  std::vector<std::vector<Replica>> shards_;
  std::optional<WorkPortions> portions_;  // of the current evaluation, while some are missing
  std::int64_t backups_ = 0;              // of earlier evaluations
};

}  // namespace troop
