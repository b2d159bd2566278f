// Implements the set-up of a learner's model.

#include "learners/node/learner_model.h"

#include <utility>

#include "learners/sync/topology.h"
#include "nn/export/policy_description.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// A tensor-parallel worker of parameter shards: rank 0 becomes the whole worker.
Status MakeReplica(const TrainingConfig& config, LearnerModel* model) {
  TROOP_ASSIGN_OR_RETURN(model->part, MakeTextModel(ModelSetupOf(config), model->place));
  if (model->place.rank > 0) return Status::Ok();
  TROOP_ASSIGN_OR_RETURN(auto replica, TensorParallelReplica::Make(config, model->place.ranks,
                                                                   std::move(model->algorithm)));
  model->replica = replica.get();
  model->algorithm = std::move(replica);
  return Status::Ok();
}

}  // namespace

// With parameter shards the part of each batch is constant; a group sets it in each round.
Result<LearnerModel> LearnerModel::Make(const TrainingConfig& config, const EnvSpec& env,
                                        int index) {
  LearnerModel model;
  TROOP_ASSIGN_OR_RETURN(model.whole, MakeNetwork(ModelSetupOf(config), env));
  TROOP_ASSIGN_OR_RETURN(model.policy, EncodedPolicyOf(ModelSetupOf(config), env));
  if (IsSupervised(config.learner)) {
    const int parts = int(config.mesh.tp * config.mesh.pp);
    model.place = {.rank = index % parts, .ranks = parts};
  }
  TROOP_ASSIGN_OR_RETURN(model.algorithm, MakeAlgorithm(config, env, model.place, index));
  const int ranks = model.place.ranks, learners = int(config.learners);
  const Topology topology = TopologyOf(config, learners, ranks);
  if (topology == Topology::kTensorParallelParamServer) {
    TROOP_RETURN_IF_ERROR(MakeReplica(config, &model));
  }
  BatchPartition* const partition = model.algorithm->batch_partition();
  if (UsesShards(topology) && partition != nullptr) {
    partition->SetRank(index / ranks, learners / ranks);
  }
  return model;
}

}  // namespace troop
