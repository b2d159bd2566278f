#pragma once

#include <functional>
#include <memory>

#include "core/base/event_history.h"
#include "core/tensor/spec.h"
#include "net/control/fleet_member.h"
#include "net/network.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// Connects a node to the weights of its run. Returns null if their endpoints are not known yet.
using WeightConnector =
    std::function<Result<std::unique_ptr<WeightSubscriber>>(const EnvSpec& env)>;

// The connections of an acting role to its fleet. All pointers must outlive its node.
struct ActingContext {
  Network* network = nullptr;
  FleetMember* member = nullptr;
  WeightConnector connect_weights;  // not called if an inference server evaluates the policy
  EventHistory* history = nullptr;  // of the actor's pushes; may be null
};

}  // namespace troop
