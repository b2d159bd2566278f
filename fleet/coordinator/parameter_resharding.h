#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/time.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "fleet/coordinator/incarnation_sequence.h"
#include "fleet/run/run_state.h"
#include "net/control/scale_request.h"
#include "net/control/shard_move.h"
#include "net/network.h"
#include "paramserver/replication/primary_election.h"
#include "paramserver/resharding/reshard_controller.h"
#include "paramserver/shard/shard_map.h"

namespace troop {

// The parameter shards of a run (learner.sync = "paramserver"): elects their primaries, and carries
// out the changes of their number that `troop scale paramserver=K` requests.
//
// Invariants: terms and reshards take their numbers from the run's IncarnationSequence, so that no
// two are equal; at most one reshard is under way, and its request is answered once.
// Owner: the coordinator.
class ParameterResharding {
 public:
  // Restores the shard map from its epochs in the run folder; a fresh run begins with
  // paramserver.shards. `run` and `numbers` are borrowed. Errors: kInvalidArgument: the config's
  // number differs from that of the run's start; those of the network and of reading the epochs.
  static Result<std::unique_ptr<ParameterResharding>> Make(const Config& config, const EnvSpec& env,
                                                           Storage* run,
                                                           IncarnationSequence* numbers);

  // Elects the primaries and backups of the shards.
  PrimaryElection& election() { return *election_; }
  // The number of shards, their epochs and the reshard in progress.
  const ReshardController& mover() const { return *mover_; }

  // Checks the number of shards that a request asks for.
  static Status CheckCount(const ScaleRequest& request);
  // Counts the parameters that will move and starts a reshard under a new number.
  // REQUIRES: CheckCount(request) is ok. Errors: a reshard is under way, or a shard is too large.
  Status Begin(const ScaleRequest& request, Time now);
  // Keeps the reply until the reshard that Begin started is complete or aborted.
  void Await(Reply reply) { reply_ = std::move(reply); }
  // True while a reshard is in progress.
  bool moving() const { return mover_->move().number != 0; }
  // Advances the reshard with the processes that are present. REQUIRES: moving().
  void Update(Time now, const ReshardController::LiveProcesses& present);
  // Aborts the reshard, because the run ends. REQUIRES: moving().
  void Abort(Time now);

 private:
  ParameterResharding(Storage* run, IncarnationSequence* numbers, ShardMap first)
      : run_(run), numbers_(numbers), first_map_(std::move(first)) {}
  Status WriteEpochs(const std::vector<ShardEpoch>& epochs);
  void End(const Status& outcome, Time now);

  Storage* const run_;
  IncarnationSequence* const numbers_;
  const ShardMap first_map_;
  std::optional<PrimaryElection> election_;
  std::optional<ReshardController> mover_;
  bool epochs_unsure_ = false;  // the write failed: the old or the new epochs may be on disk
  Reply reply_;                 // to the request of the current reshard
  ScaleReply scale_;
  Time began_{};
};

}  // namespace troop
