#pragma once

#include <memory>

#include "core/config.h"
#include "core/spec.h"
#include "net/control.h"
#include "net/network.h"
#include "paramserver/client.h"

namespace troop {

// The weights of a run for one who acts with them, as learner.sync says: of the weight publisher,
// or of all parameter shards (ShardSubscriber). Null: the coordinator does not know yet where they
// are. `network` and `member` outlive it.
Result<std::unique_ptr<WeightSubscriber>> ConnectWeights(const Config& config, const EnvSpec& env,
                                                         Network* network,
                                                         const FleetMember* member);

}  // namespace troop
