// Plans of simulated runs, and the shrinking of failing ones.
#include <algorithm>
#include <cmath>

#include "fleet/serial/serial_fleet.h"
#include "tests/simulation/simulated_fleet.h"

namespace troop::simulation {

namespace {

// Parameter server with two shards, in any mode, half of the time with backups.
void ShardParameters(std::uint64_t seed, Config* c) {
  constexpr SyncMode kModes[] = {SyncMode::kAsync, SyncMode::kBsp, SyncMode::kSsp, SyncMode::kKOfN,
                                 SyncMode::kLocalSgd};
  c->learner.sync = LearnerSync::kParamServer;
  c->paramserver.shards = 2;
  c->paramserver.mode = kModes[seed / 6 % 5];
  c->paramserver.backup = seed / 6 % 2 == 0;
  if (c->paramserver.mode == SyncMode::kSsp) c->paramserver.staleness = 2;
  if (c->paramserver.mode == SyncMode::kLocalSgd) {
    c->paramserver.push_every = c->paramserver.pull_every = 4;
    c->optimizer.type = OptimizerType::kSgd;
  }
}

}  // namespace

Plan MakePlan(std::uint64_t seed, double hours) {
  Plan plan{.config = {}, .seed = seed, .length = Seconds(3600 * hours)};
  Config& c = plan.config;
  c.seed = std::int64_t(seed);
  LayerConfig layer;
  layer.type = LayerType::kLinear;
  layer.units = 8;
  c.network.layers = {layer};
  c.network.dueling = false;
  c.fleet.mode = FleetMode::kSerial;
  c.fleet.actors = 2;
  c.fleet.learners = seed % 3 == 0 ? 2 : 1;
  if (seed % 6 == 3) ShardParameters(seed, &c);
  if (seed % 5 == 4) c.actor.inference = InferencePlace::kServer;
  c.fleet.stall_timeout_s = 6;
  c.actor.envs = 2;
  c.actor.insert_batch_size = 6;
  c.actor.lease_steps = 200;
  c.actor.weight_sync_steps = 20;
  c.replay.shards = 2;
  c.replay.min_items = 64;
  c.replay.samples_per_insert = 2;
  c.replay.persist = seed % 2 == 0;
  c.replay.durability = c.replay.persist ? Durability::kDisk : Durability::kMemory;
  c.learner.batch_size = 8;
  c.learner.publish_every_updates = 10;
  // Enough steps to fill the time: two learners are faster.
  const double two =
      c.actor.inference == InferencePlace::kServer ? 50000 : 180000;  // replies have latency
  c.run.total_steps = std::floor((c.fleet.learners == 1 ? 34500 : two) * hours);
  c.replay.capacity_items = 4 * std::int64_t(c.run.total_steps) + 10000;
  c.checkpoint.every_s = 60;
  c.evaluator.every_s = 120;
  c.evaluator.episodes = 2;
  c.evaluator.final_episodes = 2;
  std::vector<std::string> roles;
  for (const FleetRole& role : RolesOf(c)) roles.push_back(PeerName(role.role, role.index));
  plan.faults = MakeFaults(seed, plan.length, int(30 * hours) + 4, roles);
  if (c.learner.sync != LearnerSync::kParamServer) return plan;
  for (Fault& scale : MakeScales(seed, plan.length, int(20 * hours) + 4)) {
    plan.faults.push_back(std::move(scale));
  }
  std::ranges::stable_sort(plan.faults, {}, &Fault::at);
  return plan;
}

Plan MakeScaledPlan(std::uint64_t seed, double hours) {
  // Odd seeds keep replay in memory; other than multiples of 3 have one learner.
  Plan plan = MakePlan(6 * seed + 1, hours);
  plan.shards_max = 4;
  plan.config.run.total_steps = std::floor(60000 * hours);
  plan.config.replay.capacity_items = 4 * std::int64_t(plan.config.run.total_steps) + 10000;
  for (Fault& scale : MakeFleetScales(seed, plan.length, int(40 * hours) + 4)) {
    plan.faults.push_back(std::move(scale));
  }
  std::ranges::stable_sort(plan.faults, {}, &Fault::at);
  return plan;
}

Plan MakeUnrollPlan(std::uint64_t seed, double hours) {
  // Such seeds keep the replay in memory and have one learner.
  Plan plan = MakePlan(6 * seed + 1, hours);
  Config& c = plan.config;
  c.learner.algorithm = AlgorithmKind::kPqn;
  c.actor.unroll_length = 6;
  c.replay.min_items = 16;
  c.replay.max_times_sampled = 2;
  c.replay.sampler = SelectorKind::kUniform;
  c.learner.batch_size = 4;
  // The learner has few updates per step, so the same time takes more steps.
  c.run.total_steps = std::floor(80000 * hours);
  return plan;
}

Plan MakeLargePlan(std::int64_t actors, std::int64_t shards, std::int64_t learners, double steps) {
  Plan plan = MakePlan(1, 0);
  plan.faults.clear();
  Config& c = plan.config;
  c.fleet.mode = FleetMode::kProcesses;  // serial mode allows fewer
  c.replay.decode_threads = 0;
  c.fleet.actors = actors;
  c.fleet.learners = learners;
  c.fleet.stall_timeout_s = 30;
  c.actor.envs = 1;
  c.actor.insert_batch_size = 4;
  c.actor.lease_steps = 8;
  c.replay.shards = shards;
  c.replay.persist = false;
  c.replay.durability = Durability::kMemory;
  c.replay.min_items = 100 * shards;
  c.run.total_steps = steps * double(actors);
  c.replay.capacity_items = 2 * std::int64_t(c.run.total_steps);
  // Few updates, since they are slow with 64 ranks that only poll.
  c.learner.batch_size = 256;
  c.learner.prefetch = 2;
  c.replay.samples_per_insert = 1;
  c.checkpoint.every_s = 600;
  // Each actor has a call to the coordinator, a few to the replay and one for weights in flight.
  plan.waiting_max = std::size_t(actors) * 6 + std::size_t(learners * shards) * 4 + 4096;
  return plan;
}

Plan Shrink(Plan plan) {
  for (std::size_t chunk = std::max<std::size_t>(plan.faults.size() / 2, 1); chunk > 0;
       chunk /= 2) {
    for (std::size_t at = 0; at < plan.faults.size();) {
      Plan less = plan;
      const std::size_t end = std::min(at + chunk, less.faults.size());
      less.faults.erase(less.faults.begin() + std::ptrdiff_t(at),
                        less.faults.begin() + std::ptrdiff_t(end));
      if (Live(less).breach.empty()) {
        at = end;
      } else {
        plan = std::move(less);
      }
    }
  }
  return plan;
}

}  // namespace troop::simulation
