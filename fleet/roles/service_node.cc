// The node of a serving role, and the services of replay, parameter server and inference.
#include "fleet/roles/service_node.h"

#include <algorithm>

#include "actors/inference/inference_server.h"
#include "fleet/config/role_configs.h"
#include "nn/models/model.h"
#include "paramserver/service/connect_weights.h"
#include "replay/service/options_from_config.h"

namespace troop {

Result<std::unique_ptr<ServiceNode>> ServiceNode::Make(Duty duty, Network* network,
                                                       FleetMember* member,
                                                       const std::string& listen) {
  std::unique_ptr<ServiceNode> node(new ServiceNode(member));
  node->duty_ = std::move(duty);
  if (!node->duty_.issued) node->duty_.issued = std::make_shared<IssuedIncarnations>(member);
  node->service_.emplace(node->duty_.service.get(), node->duty_.issued.get());
  TROOP_ASSIGN_OR_RETURN(node->listener_, network->Listen(listen, &*node->service_));
  member->report().endpoint = node->listener_->endpoint();
  member->report().finished = true;  // no phase waits for a service
  member->SendHeartbeatSoon();
  return node;
}

// Order of a step: service work, heartbeat, failure, then the end: drain once and leave when the
// service reports that it is drained.
StepStatus ServiceNode::Step(Time now) {
  const Time next = duty_.tick ? duty_.tick(now) : kForever;
  // Metrics are collected only for heartbeats, which alone send them.
  if (now >= member_->next_heartbeat()) {
    duty_.report(&metrics_);
    if (duty_.blocked) member_->report().blocked = duty_.blocked();
  }
  member_->Poll(now, metrics_);
  // A lost membership takes precedence over a failure of the service.
  result_ = member_->lost();
  if (result_.ok() && duty_.status) result_ = duty_.status();
  const bool over = draining_ || member_->stop() || member_->phase() == Phase::kDone;
  if (!result_.ok()) return StepStatus::Done();
  if (over && !ending_ && duty_.drain) duty_.drain();
  ending_ = ending_ || over;
  if (ending_ && (!duty_.drain || duty_.drained())) return StepStatus::Done();
  return StepStatus::Idle(std::min(member_->next_heartbeat(), next));
}

// The server is captured by raw pointer: the duty owns it and its hooks together.
Result<ServiceNode::Duty> MakeReplayDuty(const Config& config, const EnvSpec& env,
                                         const ReplayDutyOptions& duty) {
  TROOP_ASSIGN_OR_RETURN(
      ReplayServer::Options options,
      ReplayOptionsFor(ReplaySetupOf(config), TrajectoryFor(ReplaySetupOf(config), env)));
  options.incarnation = duty.incarnation;
  options.executor = duty.executor;
  options.journal.folder = PeerName(Role::kReplay, duty.index);
  // Without storage a restarted shard begins empty.
  if (config.replay.persist) options.storage = duty.run;
  for (ReplayTableOptions& table : options.tables) table.table.history = duty.history;
  auto issued = std::make_shared<IssuedIncarnations>(duty.member);
  // A weights version contains a shard term with parameter shards, else a learner's incarnation.
  const Role named =
      config.learner.sync == LearnerSync::kParamServer ? Role::kNone : Role::kLearner;
  options.version_is_issued = [issued, named](std::uint64_t number) {
    return issued->Has(named, number);
  };
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<ReplayServer> server, MakeReplayServer(options));
  ReplayServer* const s = server.get();
  return ServiceNode::Duty{.service = std::move(server),
                           .tick = [s](Time now) { return s->Tick(now); },
                           .report = [s](Metrics* metrics) { s->Report(metrics); },
                           .drain = [s] { s->Drain(); },
                           .drained = [s] { return s->drained(); },
                           .status = {},
                           .blocked = [s] { return s->Blocked(); },
                           .issued = std::move(issued)};
}

// Weights must carry the incarnation of a registered learner.
Result<ServiceNode::Duty> MakeParameterServerDuty(const Config& config, const EnvSpec& env,
                                                  FleetMember* member) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeNetwork(ModelSetupOf(config), env));
  auto issued = std::make_shared<IssuedIncarnations>(member);
  std::unique_ptr<WeightsServer> server = MakeWeightsServer(
      {.parameters = ParameterCount(*module), .version_is_issued = [issued](std::uint64_t number) {
         return issued->Has(Role::kLearner, number);
       }});
  WeightsServer* const s = server.get();
  return ServiceNode::Duty{.service = std::move(server),
                           .tick = {},
                           .report = [s](Metrics* metrics) { s->Report(metrics); },
                           .issued = std::move(issued)};
}

// The server connects to the weights lazily, since their publisher may start later.
Result<ServiceNode::Duty> MakeInferenceDuty(const Config& config, const EnvSpec& env,
                                            Network* network, const FleetMember* member,
                                            Executor* executor) {
  const auto connect = [config, env, network, member] {
    return ConnectWeights(WeightsConfigOf(config), ModelSetupOf(config), env, network, member);
  };
  TROOP_ASSIGN_OR_RETURN(auto server,
                         MakeInferenceServer(ActingConfigOf(config), env, executor, connect));
  InferenceServer* const s = server.get();
  return ServiceNode::Duty{.service = std::move(server),
                           .tick = [s](Time now) { return s->Tick(now); },
                           .report = [s](Metrics* metrics) { s->Report(metrics); },
                           .drain = [s] { s->Drain(); },
                           .drained = [s] { return s->drained(); },
                           .status = [s] { return s->status(); }};
}

}  // namespace troop
