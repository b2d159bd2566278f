#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "net/control/fleet_member.h"
#include "net/network.h"
#include "nn/models/model_setup.h"
#include "paramserver/weights/weights_client.h"
#include "paramserver/weights_config.h"

namespace troop {

// Connects an actor or evaluator to the weights of its run, as learner.sync requires: to the weight
// publisher, or to all parameter shards (ShardSubscriber). Returns null if the coordinator has
// no endpoints of them yet. `network` and `member` must outlive the result.
Result<std::unique_ptr<WeightSubscriber>> ConnectWeights(const WeightsConfig& config,
                                                         const ModelSetup& model,
                                                         const EnvSpec& env, Network* network,
                                                         const FleetMember* member);

}  // namespace troop
