// Timings of the sum tree, next to a comparison with plain f64 sums.

#include "bench/replay_tree.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/replay_cases.h"
#include "core/base/check.h"
#include "core/base/philox.h"
#include "replay/selectors/minmax_tree.h"
#include "replay/selectors/priority_kernels.h"
#include "replay/selectors/sum_tree.h"

namespace troop {
namespace {

constexpr std::size_t kBatch = 512;
constexpr int kRepeats = 5;
constexpr std::size_t kColdBytes = std::size_t{96} << 20;  // three times the last-level cache
constexpr int kPlayedDraws = 200;
constexpr double kTolerance = 0.01;  // deviation of means: about three sigmas of the peers' samples
constexpr double kAlpha = 0.6, kBeta = 0.4;

// Trees of 2^bits slots, all in use, and inputs for one batch.
struct World {
  explicit World(int bits)
      : sum(Take(SumTree::Make(std::int64_t{1} << bits))),
        least(Take(MinMaxTree::Make(MinMaxTree::Kind::kLeast, std::int64_t{1} << bits))),
        rng({.run_seed = 1, .purpose = Purpose::kSynthetic}),
        bits(bits) {
    std::vector<std::uint32_t> all(std::size_t{1} << bits);
    std::vector<float> value(all.size());
    std::iota(all.begin(), all.end(), 0u);
    for (std::size_t i = 0; i < value.size(); ++i) value[i] = bench::RewardOf(i);
    PowerPriorities(value, kAlpha, value);
    sum.Set(all, value);
    least.Set(all, value);
  }
  template <class T>
  static T Take(Result<T> result) {
    TROOP_CHECK(result.ok(), "{}", result.status().ToString());
    return std::move(*result);
  }

  // Inputs of the next call, generated while the clock is stopped.
  void Prepare() {
    for (double& m : mass) m = rng.Uniform() * sum.total();
    for (std::uint32_t& s : slot) s = rng.NextU32() >> (32 - bits);
    for (float& p : priority) p = rng.UniformF32() + 0.01f;
  }

  SumTree sum;
  MinMaxTree least;
  Rng rng;
  int bits;
  std::vector<double> mass = std::vector<double>(kBatch), probability = mass;
  std::vector<std::uint32_t> slot = std::vector<std::uint32_t>(kBatch), found = slot;
  std::vector<float> priority = std::vector<float>(kBatch), value = priority, weight = priority;
};

void Find(World* w) { w->sum.Find(w->mass, w->found, w->value); }
void Update(World* w) { w->sum.Set(w->slot, w->priority); }
void UpdateLeast(World* w) { w->least.Set(w->slot, w->priority); }
void UpdatePowers(World* w) {
  PowerPriorities(w->priority, kAlpha, w->value);
  w->sum.Set(w->slot, w->value);
}
void Full(World* w) {
  const double total = w->sum.total();
  StratifiedMasses(total, &w->rng, w->mass);
  w->sum.Find(w->mass, w->found, w->value);
  for (std::size_t i = 0; i < kBatch; ++i) w->probability[i] = double(w->value[i]) / total;
  ImportanceWeights(w->probability, double(w->least.value().value_or(1)) / total, kBeta, w->weight);
}

// Checks that the peers compute too, before any update: the mean slot of masses in the middles of
// equal parts; and the mean priority of 200 samples.
double CheckFind(World* w) {
  for (std::size_t i = 0; i < kBatch; ++i) {
    w->mass[i] = (double(i) + 0.5) / double(kBatch) * w->sum.total();
  }
  Find(w);
  return std::accumulate(w->found.begin(), w->found.end(), 0.0) / double(kBatch);
}
double PlayFull(World* w) {
  double sum = 0;
  for (int i = 0; i < kPlayedDraws; ++i) {
    Full(w);
    for (const std::uint32_t slot : w->found) sum += double(bench::RewardOf(slot));
  }
  return sum / double(kBatch * kPlayedDraws);
}

struct TreeCase {
  const char* name;
  void (*call)(World*);
  const char* checks = nullptr;  // name of the check that `compare` returns
  double (*compare)(World*) = nullptr;
};
constexpr TreeCase kTreeCases[] = {{"tree-find", &Find, "check", &CheckFind},
                                   {"tree-update", &Update},
                                   {"tree-update-powers", &UpdatePowers},
                                   {"tree-update-min", &UpdateLeast},
                                   {"tree-draw-weighted", &Full, "play", &PlayFull}};

// Compares the tree with f64 sums, before anything is timed.
void Verify(World* world) {
  Full(world);
  double before = 0;
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < kBatch; ++i) {
    for (; at < world->found[i]; ++at) before += double(world->sum.priority(at));
    const double slack = 1e-6 * world->sum.total() / double(kBatch) + 1e-7 * before;
    const double end = before + double(world->value[i]);
    TROOP_CHECK(world->mass[i] >= before - slack && world->mass[i] <= end + slack,
                "mass {} found slot {}, of masses {} to {}", world->mass[i], at, before, end);
  }
}

// Median of `batches` calls, in ns per item.
double Measure(World* world, void (*call)(World*), std::vector<std::uint8_t>* cold, int batches) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> ns;
  for (int i = 0; i < batches; ++i) {
    world->Prepare();
    for (std::size_t at = 0; at < cold->size(); at += 64) ++(*cold)[at];
    const auto start = Clock::now();
    call(world);
    ns.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBatch);
  }
  std::ranges::nth_element(ns, ns.begin() + batches / 2);
  return ns[std::size_t(batches) / 2];
}

}  // namespace

int RunTreeCases(std::string_view only, bool quick) {
  int ran = 0;
  for (const int bits : {20, 24}) {
    if (quick && bits == 24 && only.empty()) continue;  // filling it takes most of the time
    const auto suffix = std::string("-2^") + std::to_string(bits);
    const auto wanted = [&](const TreeCase& c, const char* cache) {
      return only.empty() || only == c.name + suffix + cache;
    };
    if (std::ranges::none_of(kTreeCases, [&](const TreeCase& c) {
          return wanted(c, "-warm") || wanted(c, "-cold");
        })) {
      continue;
    }
    World world(bits);
    Verify(&world);
    std::vector<double> compared;
    for (const TreeCase& c : kTreeCases) {
      compared.push_back(c.compare == nullptr ? 0 : c.compare(&world));
    }
    for (const bool is_cold : {false, true}) {
      const char* const cache = is_cold ? "-cold" : "-warm";
      std::vector<std::uint8_t> cold(is_cold ? kColdBytes : 0);
      for (const TreeCase& c : kTreeCases) {
        if (!wanted(c, cache)) continue;
        const int batches = (is_cold ? 40 : 4000) / (quick ? 10 : 1);
        std::printf("{\"case\": \"%s%s%s\", \"metric\": \"ns_per_item\", \"unit\": \"ns\", ",
                    c.name, suffix.c_str(), cache);
        std::printf("\"values\": [");
        for (int i = 0; i < kRepeats; ++i) {
          std::printf("%s%.2f", i == 0 ? "" : ", ", Measure(&world, c.call, &cold, batches));
        }
        std::printf("]");
        if (c.checks != nullptr) {
          std::printf(", \"%s\": [%.9g], \"%s_tolerance\": %g", c.checks,
                      compared[std::size_t(&c - kTreeCases)], c.checks, kTolerance);
        }
        std::printf("}\n");
        std::fflush(stdout);
        ++ran;
      }
    }
  }
  return ran;
}

}  // namespace troop
