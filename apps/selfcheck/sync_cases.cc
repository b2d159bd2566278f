// The cases of `troop selftest sync`: modes, their settings, and the product with codecs, shardings
// and optimizers.
#include "apps/selfcheck/sync_cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/config/enum_names.h"

namespace troop {
namespace {

constexpr std::string_view kOptimizers[] = {"sgd",      "momentum", "adagrad", "rmsprop",
                                            "centered", "adam",     "adamw",   "radam"};

// A mode by name; the settings that GeneralCases varies have their defaults here.
struct ShardMode {
  std::string_view name;
  SyncOptions sync;
};
const std::vector<ShardMode>& ShardModes() {
  static const std::vector<ShardMode> modes{
      {"bsp", {.mode = SyncMode::kBsp}},
      {"k_of_n", {.mode = SyncMode::kKOfN}},
      {"k_of_n+cancel", {.mode = SyncMode::kKOfN, .cancel = true}},
      {"k_of_n+batch", {.mode = SyncMode::kKOfN, .per_batch = true}},
      {"k_of_n+cancel+batch", {.mode = SyncMode::kKOfN, .cancel = true, .per_batch = true}},
      {"ssp", {.mode = SyncMode::kSsp, .staleness = 1}},
      {"async", {.mode = SyncMode::kAsync}},
      {"local_sgd", {.mode = SyncMode::kLocalSgd}},
  };
  return modes;
}

// Learning rates at which a dozen updates stay stable, so that errors are comparable.
void SetOptimizer(SyncCase* c, std::string_view name) {
  c->config = SyncOptimizer(name);
  c->learning_rate = name == "sgd" ? 0.05f : name == "momentum" ? 0.01f : 0.005f;
}

// Guards with tight limits, so that they drop pushes within a dozen updates.
constexpr GradientFilterOptions kOutliers{
    .loss_deviations = 1, .norm_deviations = 1, .window = 6, .first = 3};

// The settings of a mode, for three learners.
std::vector<SyncCase> GeneralCases(const SyncCase& base) {
  std::vector<SyncCase> cases;
  const auto add = [&](const auto& change) {
    SyncCase c = base;
    change(&c);
    cases.push_back(c);
  };
  const auto every = [](int fetch, int push) {
    return ReplicaOptions{.pull_every = fetch, .push_every = push};
  };
  switch (base.sync.mode) {
    case SyncMode::kBsp:
      add([](SyncCase*) {});
      add([&](SyncCase* c) { c->replica = every(2, 2); });
      add([](SyncCase* c) { c->guards = kOutliers; });
      break;
    case SyncMode::kKOfN:
      add([](SyncCase* c) { c->sync.k = 2; });
      // k = 3 equals BSP; with per_batch, k may exceed the number of learners.
      add([](SyncCase* c) { c->sync.k = c->sync.per_batch ? 5 : 3; });
      add([](SyncCase* c) { c->sync.k = 1, c->sync.staleness_discount = true; });
      add([](SyncCase* c) { c->sync.k = 2, c->sync.staleness_discount = true; });
      add([&](SyncCase* c) {
        c->sync.k = 2, c->replica = c->sync.per_batch ? every(2, 3) : every(2, 2);
      });
      add([](SyncCase* c) { c->sync.k = 2, c->guards = kOutliers, c->guards.staleness_max = 1; });
      break;
    case SyncMode::kSsp:
      // A staleness of 0 equals BSP.
      add([](SyncCase* c) { c->sync.staleness = 0; });
      add([](SyncCase* c) { c->sync.staleness = 1; });
      add([](SyncCase* c) { c->sync.staleness = 3, c->sync.staleness_discount = true; });
      add([&](SyncCase* c) { c->sync.staleness = 2, c->replica = every(2, 3); });
      add([](SyncCase* c) {
        c->sync.staleness = 2, c->guards = kOutliers, c->guards.staleness_max = 2;
      });
      break;
    case SyncMode::kAsync:
      add([](SyncCase*) {});
      add([&](SyncCase* c) { c->replica = every(2, 3); });
      // The warm start holds back all learners but the first until version 5.
      add([](SyncCase* c) { c->sync.warm_start_updates = 5, c->guards.staleness_max = 2; });
      add([](SyncCase* c) { c->sync.staleness_discount = true; });
      add([](SyncCase* c) { c->guards = kOutliers; });
      break;
    case SyncMode::kLocalSgd:
      // H local steps between two averages; H = 1 averages after each step.
      for (const int h : {1, 4}) {
        add([h](SyncCase* c) {
          c->replica = {.pull_every = h, .push_every = h, .push_value = true};
        });
      }
      add([](SyncCase* c) { c->replica.push_value = true, c->guards = kOutliers; });
      break;
  }
  return cases;
}

// No codec, then each codec with a setting at which it loses information.
std::vector<CodecOptions> CodecsFor(SyncMode mode) {
  // Local SGD averages parameters, not gradients; lossy codecs do not apply to those.
  if (mode == SyncMode::kLocalSgd) return {{}};
  return {{},
          {.codec = GradientCodec::kFp16},
          {.codec = GradientCodec::kBf16},
          {.codec = GradientCodec::kTopK, .keep = 0.1},
          {.codec = GradientCodec::kStrom, .threshold = 0.01f}};
}

// The learners of local SGD make plain SGD steps.
std::vector<std::string_view> OptimizersFor(SyncMode mode) {
  if (mode == SyncMode::kLocalSgd) return {"sgd"};
  return {std::begin(kOptimizers), std::end(kOptimizers)};
}

// One learner: with any number of shards the result must equal one device.
void AddDegenerate(const SyncCase& base, std::vector<SyncCase>* cases) {
  for (int shards = 1; shards <= 3; ++shards) {
    for (const std::string_view optimizer : OptimizersFor(base.sync.mode)) {
      SyncCase c = base;
      c.shards = shards;
      c.replica.push_value = base.sync.mode == SyncMode::kLocalSgd;
      SetOptimizer(&c, optimizer);
      cases->push_back(c);
      // One optimizer is enough to show that a sparse payload of all elements is lossless.
      if (optimizer != "adam") continue;
      c.codec = {.codec = GradientCodec::kTopK, .keep = 1};  // sends every element
      cases->push_back(c);
    }
  }
}

// Adds all combinations; every second one has backups.
void AddProduct(const SyncCase& general, std::vector<SyncCase>* cases) {
  for (const CodecOptions& codec : CodecsFor(general.sync.mode)) {
    for (int shards = 1; shards <= 3; ++shards) {
      for (const Sharding sharding : {Sharding::kMemory, Sharding::kLayer}) {
        // One shard holds everything in either sharding.
        if (shards == 1 && sharding == Sharding::kLayer) continue;
        for (const std::string_view optimizer : OptimizersFor(general.sync.mode)) {
          SyncCase c = general;
          c.shards = shards, c.sharding = sharding, c.codec = codec;
          // Each case has other values and another message order.
          c.seed = general.seed + cases->size();
          c.backup = cases->size() % 2 == 1;
          SetOptimizer(&c, optimizer);
          // Each push is an update here: more updates give each learner about as many pushes.
          if (c.sync.mode == SyncMode::kAsync) c.updates = 30;
          cases->push_back(c);
        }
      }
    }
  }
}

}  // namespace

std::span<const std::string_view> SyncOptimizers() { return kOptimizers; }

// A large epsilon keeps 1 / sqrt(v) small in the first steps, where f32 and fp64 would diverge.
Config SyncOptimizer(std::string_view name) {
  TROOP_CHECK(std::ranges::find(kOptimizers, name) != std::end(kOptimizers), "{}", name);
  Config config;
  config.optimizer.epsilon = 1e-3;
  config.optimizer.type = name == "momentum"   ? OptimizerType::kSgd
                          : name == "centered" ? OptimizerType::kRmsProp
                          : name == "adamw"    ? OptimizerType::kAdam
                                               : *ParseEnum<OptimizerType>(name);
  config.optimizer.momentum = name == "momentum" ? 0.9 : 0;
  config.optimizer.centered = name == "centered";
  config.optimizer.weight_decay = name == "adamw" ? 0.5 : name == "momentum" ? 0.1 : 0;
  return config;
}

// The inverse of SyncOptimizer, from the keys that it sets.
std::string SyncOptimizerText(const Config& config) {
  const auto& keys = config.optimizer;
  if (keys.type == OptimizerType::kSgd && keys.momentum > 0) return "momentum";
  if (keys.type == OptimizerType::kRmsProp && keys.centered) return "centered rmsprop";
  if (keys.type == OptimizerType::kAdam && keys.weight_decay > 0) return "adamw";
  return std::string(EnumName(keys.type));
}

std::vector<std::string_view> SyncShardModes() {
  std::vector<std::string_view> names;
  for (const ShardMode& mode : ShardModes()) names.push_back(mode.name);
  return names;
}

// Settings with default values are omitted.
std::string SyncCaseText(const SyncCase& c) {
  std::string text =
      fmt::format("{} learner{}, {} shard{}", c.sync.learners, c.sync.learners == 1 ? "" : "s",
                  c.shards, c.shards == 1 ? "" : "s");
  if (c.shards > 1) text += fmt::format(" by {}", EnumName(c.sharding));
  text += fmt::format(", {}", EnumName(c.codec.codec));
  if (c.codec.codec == GradientCodec::kTopK) text += fmt::format(" {}", c.codec.keep);
  text += ", " + SyncOptimizerText(c.config);
  if (c.sync.mode == SyncMode::kKOfN) text += fmt::format(", k = {}", c.sync.k);
  if (c.sync.mode == SyncMode::kSsp) text += fmt::format(", s = {}", c.sync.staleness);
  if (c.replica.push_every > 1 || c.replica.pull_every > 1) {
    text +=
        fmt::format(", pull every {}, push every {}", c.replica.pull_every, c.replica.push_every);
  }
  if (c.sync.warm_start_updates > 0) text += ", warm start";
  if (c.sync.staleness_discount) text += ", stale pushes damped";
  if (c.guards.staleness_max >= 0) text += ", stale pushes dropped";
  if (c.guards.loss_deviations > 0) text += ", outliers dropped";
  if (c.backup) text += ", backups";
  return text + (c.sockets ? ", over sockets" : "");
}

// The order is stable: verdicts of two runs with the same seed can be compared line by line.
std::vector<SyncCase> SyncCasesOf(std::string_view mode, std::uint64_t seed) {
  const auto found = std::ranges::find(ShardModes(), mode, &ShardMode::name);
  if (found == ShardModes().end()) return {};
  // Order: one learner, the product for three learners, then sockets.
  SyncCase base{.sync = found->sync, .seed = seed};
  std::vector<SyncCase> cases;
  AddDegenerate(base, &cases);
  base.sync.learners = 3;
  for (const SyncCase& general : GeneralCases(base)) AddProduct(general, &cases);
  SyncCase real = cases.back();  // over sockets: with the last codec, then without a codec
  real.sockets = true, real.backup = false;
  cases.push_back(real);
  real.codec = {};
  cases.push_back(real);
  return cases;
}

}  // namespace troop
