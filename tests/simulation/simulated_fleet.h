#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/config/config.h"
#include "tests/simulation/faults.h"

namespace troop::simulation {

struct Plan {
  Config config;
  std::uint64_t seed = 1;
  Duration length = Seconds(3600);  // of bad days; then the run has an hour to come to its end
  std::vector<Fault> faults;
  std::size_t waiting_max = 4096;  // messages under way and in queues, of all together
  std::int32_t shards_max = 0;     // of the replay, where others are wanted meanwhile
};
// A small Ape-X fleet: two shards, two actors, an evaluator, on CartPole; what is acknowledged is
// on disk, or in memory, by the seed.
Plan MakePlan(std::uint64_t seed, double hours);
// The same with experience in memory, and somebody who wants other numbers of actors, replay shards
// and learners all the time.
Plan MakeScaledPlan(std::uint64_t seed, double hours);
// A large fleet on a good day: nothing goes wrong. Each actor takes about `steps` steps.
Plan MakeLargePlan(std::int64_t actors, std::int64_t shards, std::int64_t learners, double steps);

struct Outcome {
  std::string breach;  // empty: all went as it must
  Time ended{};
  std::uint64_t messages = 0;  // that arrived
  std::int64_t faults = 0;     // that happened
  std::int64_t restarts = 0;
  std::int64_t resumes = 0;     // of the whole run
  std::int64_t moves = 0;       // changes of `troop scale` that were made
  std::size_t waiting_max = 0;  // messages under way and in queues
  std::vector<std::int64_t> items_of_shard, items_of_actor;  // that were made, in all
  std::int64_t items = 0, acknowledged = 0, restored = 0;
  std::int64_t gradients = 0;  // that parameter shards answered for
  std::int64_t steps = 0;
  std::uint64_t updates = 0;
  std::uint64_t hash = 0;  // of the course: equal plans give equal ones
};

// Lives through the plan: serial mode under a weather, with virtual time. Same plan, same course.
Outcome Live(const Plan& plan);

// Leaves out faults as long as the breach stays: what is left is needed for it.
Plan Shrink(Plan plan);

}  // namespace troop::simulation
