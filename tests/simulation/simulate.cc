// Simulates hours of a fleet with faults.
//
//   simulate [--first-seed S] [--seeds N] [--hours H] [--jobs J] [--no-shrink] [--scaled]
//   simulate --large ACTORS,SHARDS,LEARNERS,STEPS   # one large fleet without faults
//
// Each seed is a separate run. A run that violates a guarantee is printed with the violation and
// shrunk to the fewest faults; the exit code is then 1.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/log.h"
#include "tests/simulation/simulated_fleet.h"

namespace troop::simulation {
namespace {

struct Options {
  std::uint64_t first_seed = 1, seeds = 10;
  double hours = 1;
  int jobs = 1;
  bool shrink = true, scaled = false;
};

void Report(std::uint64_t seed, const Plan& plan, const Outcome& outcome) {
  fmt::print(
      "seed {}: {}; {:.0f} s, {} messages, {} faults, {} restarts, {} resumes, {} moves, {} items, "
      "{} acknowledged, {} restored, {} gradients, {} steps, {} updates, course {:016x}\n",
      seed, outcome.breach.empty() ? "ok" : "VIOLATION " + outcome.breach,
      ToSeconds(outcome.ended - Time{}), outcome.messages, outcome.faults, outcome.restarts,
      outcome.resumes, outcome.moves, outcome.items, outcome.acknowledged, outcome.restored,
      outcome.gradients, outcome.steps, outcome.updates, outcome.hash);
  if (!outcome.breach.empty()) {
    for (const Fault& fault : plan.faults) fmt::print("  {}\n", ToString(fault));
  }
  std::fflush(stdout);  // so that progress shows in a redirected output
}

int LiveLarge(const char* sizes) {
  long long actors = 0, shards = 0, learners = 0;
  double steps = 0;
  if (std::sscanf(sizes, "%lld,%lld,%lld,%lf", &actors, &shards, &learners, &steps) != 4) {
    fmt::print(stderr, "--large {}: expected ACTORS,SHARDS,LEARNERS,STEPS\n", sizes);
    return 2;
  }
  const Plan plan = MakeLargePlan(actors, shards, learners, steps);
  const Outcome outcome = Live(plan);
  fmt::print("at most {} messages queued; ", outcome.waiting_max);
  Report(plan.seed, plan, outcome);
  return outcome.breach.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options o;
  const char* large = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--no-shrink" || flag == "--scaled") {
      (flag == "--scaled" ? o.scaled : o.shrink) = flag == "--scaled";
      continue;
    }
    if (flag == "--first-seed") o.first_seed = std::strtoull(value, nullptr, 10);
    if (flag == "--seeds") o.seeds = std::strtoull(value, nullptr, 10);
    if (flag == "--hours") o.hours = std::atof(value);
    if (flag == "--jobs") o.jobs = std::atoi(value);
    if (flag == "--large") large = value;
    const bool known = flag == "--first-seed" || flag == "--seeds" || flag == "--hours" ||
                       flag == "--jobs" || flag == "--large";
    if (!known || *value == 0 || o.hours <= 0 || o.jobs < 1) {
      fmt::print(stderr,
                 "usage: {} [--first-seed S] [--seeds N] [--hours H] [--jobs J] "
                 "[--no-shrink] [--scaled] | --large ACTORS,SHARDS,LEARNERS,STEPS\n",
                 argv[0]);
      return 2;
    }
    ++i;
  }
  const bool log = std::getenv("TROOP_SIMULATE_LOG") != nullptr;
  InitLog({.role = "simulate",
           .file = log ? "" : "/dev/null",
           .level = log ? LogLevel::kInfo : LogLevel::kError});
  if (large != nullptr) return LiveLarge(large);
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  int breaches = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto work = [&] {
    while (true) {
      const std::uint64_t k = next++;
      if (k >= o.seeds) return;
      const std::uint64_t seed = o.first_seed + k;
      const Plan plan = o.scaled ? MakeScaledPlan(seed, o.hours) : MakePlan(seed, o.hours);
      const Outcome outcome = Live(plan);
      const std::scoped_lock lock(mutex);
      Report(plan.seed, plan, outcome);
      if (outcome.breach.empty()) continue;
      ++breaches;
      if (!o.shrink) continue;
      const Plan least = Shrink(plan);
      fmt::print("seed {}: shrunk to {} faults\n", plan.seed, least.faults.size());
      Report(plan.seed, least, Live(least));
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < o.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} of {} seeds violated a guarantee; {:.2f} simulated hours per second\n", breaches,
             o.seeds, double(o.seeds) * o.hours / took);
  return breaches == 0 ? 0 : 1;
}

}  // namespace
}  // namespace troop::simulation

int main(int argc, char** argv) { return troop::simulation::Main(argc, argv); }
