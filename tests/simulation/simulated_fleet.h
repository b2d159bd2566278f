#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "fleet/config/config.h"
#include "tests/simulation/faults.h"

namespace troop::simulation {

struct Plan {
  Config config;
  std::uint64_t seed = 1;
  Duration length = Seconds(3600);  // with faults; then the run has an hour to finish
  std::vector<Fault> faults;
  std::size_t waiting_max = 4096;  // limit of messages in flight and in queues
  std::int32_t shards_max = 0;     // most replay shards, if the run is scaled
};
// A small Ape-X fleet on CartPole: two replay shards, two actors, an evaluator. Acknowledged items
// are on disk or in memory, depending on the seed.
Plan MakePlan(std::uint64_t seed, double hours);
// A fleet like MakePlan's with replay in memory, in which the number of actors, replay shards and
// learners changes continually.
Plan MakeScaledPlan(std::uint64_t seed, double hours);
// A fleet like MakePlan's with replay in memory, whose items are unrolls that are learned from
// twice.
Plan MakeUnrollPlan(std::uint64_t seed, double hours);
// A large fleet without faults. Each actor takes about `steps` steps.
Plan MakeLargePlan(std::int64_t actors, std::int64_t shards, std::int64_t learners, double steps);

struct Outcome {
  std::string breach;  // empty: no violation
  Time ended{};
  std::uint64_t messages = 0;  // delivered
  std::int64_t faults = 0;     // that took effect
  std::int64_t restarts = 0;
  std::int64_t resumes = 0;     // of the whole run
  std::int64_t moves = 0;       // completed `troop scale` requests
  std::size_t waiting_max = 0;  // most messages in flight and in queues
  std::vector<std::int64_t> items_of_shard, items_of_actor;  // in total
  std::int64_t items = 0, acknowledged = 0, restored = 0;
  std::int64_t gradients = 0;  // acknowledged by parameter shards
  std::int64_t steps = 0;
  std::uint64_t updates = 0;
  std::uint64_t hash = 0;  // of the course of events; equal for equal plans
};

// Executes the plan: serial mode with fault injection, in virtual time. Deterministic.
Outcome Live(const Plan& plan);

// Removes faults while the violation persists. The result has only faults that are needed for it.
Plan Shrink(Plan plan);

}  // namespace troop::simulation
