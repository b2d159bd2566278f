#pragma once

#include <functional>
#include <memory>
#include <span>

#include "core/base/event_history.h"
#include "core/base/node.h"
#include "core/storage/storage.h"
#include "core/tensor/spec.h"
#include "net/control/evaluation_report.h"
#include "net/control/fleet_member.h"
#include "net/network.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// Connects a node to the weights of its run. Returns null if their endpoints are not known yet.
using WeightConnector =
    std::function<Result<std::unique_ptr<WeightSubscriber>>(const EnvSpec& env)>;

// Keeps weights [P] if their evaluation is the best of the run so far; returns true if they were
// kept. Blocks on the disk; calls follow one another. BestCheckpointKeeper::Offer in learners/.
using BestKeeper =
    std::function<Result<bool>(const EvaluationReport& report, std::span<const float> weights)>;

// The connections of an acting role to its fleet. All pointers must outlive its node.
struct ActingContext {
  Network* network = nullptr;
  FleetMember* member = nullptr;
  WeightConnector connect_weights;  // not called if an inference server evaluates the policy
  EventHistory* history = nullptr;  // of the actor's pushes; may be null
  // Evaluator with evaluator.keep_best: the function, and the executor whose jobs call it.
  BestKeeper keep_best;
  Executor* executor = nullptr;
  // Evaluator with evaluator.video_every: the run folder; nullptr: no videos.
  Storage* videos = nullptr;
  // Actor with actor.record_episodes: the run folder.
  Storage* episodes = nullptr;
};

}  // namespace troop
