#pragma once

#include <memory>
#include <string>

#include "core/storage/storage.h"
#include "learners/node/learner_model.h"
#include "learners/sync/rendezvous.h"
#include "learners/sync/topology.h"
#include "learners/sync/updater.h"

namespace troop {

// Makes the updater of a topology, and owns the rendezvous between processes that it may need. Must
// outlive the updaters. Owner: the node's thread.
class UpdaterFactory {
 public:
  struct Options {
    const TrainingConfig* config = nullptr;
    const EnvSpec* env = nullptr;
    LearnerModel* model = nullptr;
    Network* network = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;
    Storage* run = nullptr;
    bool all_have_batches = false;     // AllReduceUpdaterOptions
    Rendezvous* rendezvous = nullptr;  // nullptr: the factory creates one
    std::string group_listen;          // listen address of the rendezvous that it creates
    std::string group_secret;          // 32 bytes, shared by all learners; empty: no secret
  };
  explicit UpdaterFactory(Options options) : options_(std::move(options)) {}

  // learners: number of learners of the run. Errors: those of the function that makes the updater.
  Result<std::unique_ptr<Updater>> Make(Topology topology, int learners);

 private:
  ParamserverUpdaterOptions Shards() const;
  std::unique_ptr<Updater> MakeAllReduce(int learners);
  Rendezvous* MeetingPlace();

  const Options options_;
  std::unique_ptr<Rendezvous> rendezvous_;
};

}  // namespace troop
