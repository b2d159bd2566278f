#include "apps/service_node.h"

#include <algorithm>

#include "nn/model.h"

namespace troop {

Result<std::unique_ptr<ServiceNode>> ServiceNode::Make(Duty duty, Network* network,
                                                       FleetMember* member,
                                                       const std::string& listen) {
  std::unique_ptr<ServiceNode> node(new ServiceNode(member));
  node->duty_ = std::move(duty);
  TROOP_ASSIGN_OR_RETURN(node->listener_, network->Listen(listen, node->duty_.service.get()));
  member->report().endpoint = node->listener_->endpoint();
  member->report().finished = true;  // no phase waits for a service
  member->BeatSoon();
  return node;
}

Turn ServiceNode::Step(Time now) {
  if (duty_.tick) duty_.tick(now);
  if (now >= member_->next_beat()) duty_.report(&metrics_);
  member_->Poll(now, metrics_);
  result_ = member_->lost();
  const bool over = draining_ || member_->stop() || member_->phase() == Phase::kDone;
  if (!result_.ok() || over) return Turn::Done();
  return Turn::Idle(std::max(member_->next_beat(), now + Milliseconds(10)));
}

ReplayServer::Options ReplayOptionsFor(const Config& config, const EnvSpec& env) {
  return {.trajectory = {env.observation, env.action.tensor()},
          .n_step_max = int(config.actor.n_step),
          .capacity_items = config.replay.capacity_items,
          .min_items = config.replay.min_items,
          .alpha = config.replay.alpha,
          .priority_epsilon = config.replay.priority_epsilon,
          .trim_every_samples = config.replay.trim_every_updates * config.learner.batch_size,
          .samples_per_insert = config.replay.samples_per_insert,
          .ratio_error = config.replay.ratio_error,
          .seed = std::uint64_t(config.seed)};
}

Result<ServiceNode::Duty> MakeReplayDuty(const Config& config, const EnvSpec& env,
                                         std::uint64_t incarnation) {
  ReplayServer::Options options = ReplayOptionsFor(config, env);
  options.incarnation = incarnation;
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<ReplayServer> server, MakeReplayServer(options));
  ReplayServer* const s = server.get();
  return ServiceNode::Duty{.service = std::move(server),
                           .tick = [s](Time now) { s->Tick(now); },
                           .report = [s](Metrics* metrics) { s->Report(metrics); }};
}

Result<ServiceNode::Duty> MakeParameterServerDuty(const Config& config, const EnvSpec& env) {
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, MakeNetwork(config, env));
  std::unique_ptr<ParameterServer> server =
      MakeParameterServer({.parameters = ParameterCount(*module)});
  ParameterServer* const s = server.get();
  return ServiceNode::Duty{.service = std::move(server),
                           .tick = {},
                           .report = [s](Metrics* metrics) { s->Report(metrics); }};
}

}  // namespace troop
