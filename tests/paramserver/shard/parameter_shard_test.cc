#include "paramserver/shard/parameter_shard.h"
#include "core/config/enum_names.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/paramserver/shard_testing.h"

namespace troop {
namespace {

// Every optimizer, n learners in lockstep: against plain loops in f64 over the mean gradient.
TEST(ParameterShardTest, BspMatchesF64ReferenceWithEveryOptimizer) {
  constexpr int kLearners = 3, kSteps = 100;
  for (const std::string name : {"sgd", "momentum", "adagrad", "rmsprop", "adam", "radam"}) {
    auto shard = MakeWhole(OptionsOf({.learners = kLearners}, name));
    const Floats first = FirstValue();
    std::vector<double> want(first.begin(), first.end()), m(kParameters), v(kParameters);
    for (int t = 1; t <= kSteps; ++t) {
      std::vector<double> mean(kParameters);
      Floats pulled(want.begin(), want.end());
      for (const int learner : {2, 0, 1}) {
        const Floats g = GradientAt(pulled, learner, std::uint64_t(t));
        for (std::size_t i = 0; i < kParameters; ++i) mean[i] += double(g[i]) / kLearners;
        Push(shard.get(), PushOf({learner, 1, std::uint64_t(t)}, std::uint64_t(t), g));
      }
      Drain(shard.get());
      for (std::size_t i = 0; i < kParameters; ++i) {
        const double g = mean[i];
        if (name == "sgd") want[i] -= 0.01 * g;
        if (name == "momentum") m[i] = 0.9 * m[i] + g, want[i] -= 0.01 * m[i];
        if (name == "adagrad") v[i] += g * g, want[i] -= 0.01 * g / (std::sqrt(v[i]) + 1e-3);
        if (name == "rmsprop") {
          m[i] = 0.95 * m[i] + 0.05 * g;
          v[i] = 0.95 * v[i] + 0.05 * g * g;
          want[i] -= 0.01 * g / std::sqrt(std::max(v[i] - m[i] * m[i], 0.0) + 1e-3);
        }
        if (name == "adam" || name == "radam") {
          m[i] = 0.9 * m[i] + 0.1 * g;
          v[i] = 0.999 * v[i] + 0.001 * g * g;
          const double power = std::pow(0.999, t), length = 1999 - 2 * t * power / (1 - power);
          const double root = std::sqrt(v[i] / (1 - power));
          double step = 0.01 * m[i] / (1 - std::pow(0.9, t));
          if (name == "radam" && t >= 6)
            step *= std::sqrt((length - 4) * (length - 2) * 1999 / (1995.0 * 1997 * length));
          if (name == "adam" || t >= 6) step /= root + 1e-3;
          want[i] -= step;
        }
      }
    }
    EXPECT_EQ(shard->version(), 1u + kSteps);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      error += std::pow(double(shard->value()[i]) - want[i], 2);
      norm += want[i] * want[i];
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-5) << name;
  }
}

// A shard that owns only some ranges; with zero gradients only the decay changes the weights.
TEST(ParameterShardTest, WeightDecaySkipsUndecayedRanges) {
  ParameterShard::Options options = OptionsOf({}, "adam");
  options.optimizer.weight_decay = 0.5;
  options.ranges = {{16, 64}, {96, 128}};
  options.undecayed = {{0, 20}, {40, 48}, {60, 100}, {127, 300}};
  const Floats first(80, 1), zero(80, 0);
  auto shard = Make(options, first);
  shard->Join(0);
  Push(shard.get(), PushOf({0, 1, 1}, 1, zero));
  Drain(shard.get());
  for (std::int64_t i = 0; i < 80; ++i) {
    const std::int64_t place = i < 48 ? 16 + i : 96 + i - 48;
    bool decays = true;
    for (const ParamRange& r : options.undecayed) decays &= place < r.begin || place >= r.end;
    EXPECT_FLOAT_EQ(shard->value()[std::size_t(i)], decays ? 1 - 0.01f * 0.5f : 1) << place;
  }
}

// The degenerate setting of every mode is one learner with its own optimizer, bit for bit.
TEST(ParameterShardTest, OneLearnerMatchesLocalOptimizerBitwiseInEveryMode) {
  for (const std::string name : {"sgd", "momentum", "adagrad", "rmsprop", "adam", "radam"}) {
    const OptimizerConfig config = ConfigOf(name);
    auto optimizer = *MakeOptimizer(config, kParameters);
    Floats want = FirstValue();
    for (std::uint64_t t = 0; t < 500; ++t) {
      optimizer->Step(GradientAt(want, 0, t), 1, 0.01f, want);
    }
    for (const SyncOptions& sync :
         {SyncOptions{.mode = SyncMode::kBsp}, SyncOptions{.mode = SyncMode::kKOfN},
          SyncOptions{.mode = SyncMode::kKOfN, .cancel = true, .per_batch = true},
          SyncOptions{.mode = SyncMode::kSsp}, SyncOptions{.mode = SyncMode::kSsp, .staleness = 3},
          SyncOptions{.mode = SyncMode::kAsync, .staleness_discount = true}}) {
      auto shard = MakeWhole(OptionsOf(sync, name));
      for (std::uint64_t t = 0; t < 500; ++t) {
        EXPECT_TRUE(shard->MayPull(0));
        const auto pulled = shard->Pull();
        const Floats g = GradientAt(pulled->value.as<float>(), 0, t);
        Push(shard.get(), PushOf({0, 1, t + 1}, pulled->version, g));
        Drain(shard.get());
      }
      EXPECT_TRUE(SameBytes(shard->value(), want)) << name << EnumName(sync.mode);
    }
  }
}

TEST(ParameterShardTest, LocalSgdReturnsMeanOfLearnerValues) {
  auto one = MakeWhole(OptionsOf({.mode = SyncMode::kLocalSgd}));
  const Floats value = GradientAt(FirstValue(), 0, 0);
  Push(one.get(), PushOf({0, 1, 1}, 1, value));
  Drain(one.get());
  EXPECT_TRUE(SameBytes(one->value(), value));
  auto two = MakeWhole(OptionsOf({.mode = SyncMode::kLocalSgd, .learners = 2}));
  const Floats other = GradientAt(FirstValue(), 1, 0);
  Push(two.get(), PushOf({1, 1, 1}, 1, other));
  Push(two.get(), PushOf({0, 1, 1}, 1, value));
  Drain(two.get());
  for (std::size_t i = 0; i < kParameters; ++i) {
    EXPECT_NEAR(two->value()[i], (double(value[i]) + double(other[i])) / 2, 1e-6);
  }
}

// However the arena is cut, and in whatever order the pushes of a round come.
TEST(ParameterShardTest, EveryShardingMatchesBitwise) {
  for (const std::string name : {"adam", "adagrad", "radam"}) {
    for (const SyncMode mode : {SyncMode::kBsp, SyncMode::kAsync}) {
      const auto options = OptionsOf({.mode = mode, .learners = 3}, name);
      Floats first;
      for (const ShardMap& map :
           {ByMemory(1), ByMemory(2), ByMemory(4), ByMemory(7), ByLayer(2), ByLayer(4)}) {
        Group group(map, options);
        for (std::uint64_t t = 1; t <= 20; ++t) {
          const Floats value = group.Pull();
          const std::uint64_t clock = group.shards()[0]->version();
          // Asynchronous pushes count in their order; synchronous ones in any.
          std::vector<int> order{0, 1, 2};
          if (mode == SyncMode::kBsp && map.shards().size() % 2 == 0) order = {2, 0, 1};
          for (const int learner : order) {
            group.Push({learner, 1, t}, clock, GradientAt(value, learner, t));
          }
        }
        if (first.empty()) first = group.Pull();
        EXPECT_TRUE(SameBytes(group.Pull(), first)) << map.ToString();
      }
    }
  }
}

TEST(ParameterShardTest, DuplicatesOfEveryMessageChangeNothing) {
  for (const SyncOptions& sync :
       {SyncOptions{.learners = 2}, SyncOptions{.mode = SyncMode::kAsync, .learners = 2},
        SyncOptions{.mode = SyncMode::kSsp, .learners = 2, .staleness = 1}}) {
    Floats results[2];
    for (const int times : {1, 3}) {
      Group group(ByMemory(3), OptionsOf(sync, "adam"));
      Floats before;  // repeats of the last round come late
      for (std::uint64_t t = 1; t <= 20; ++t) {
        const Floats value = group.Pull();
        const std::uint64_t clock = group.shards()[0]->version();
        for (const int learner : {0, 1}) {
          if (times > 1 && t > 1) group.Push({learner, 1, t - 1}, clock, before);
          group.Push({learner, 1, t}, clock, GradientAt(value, learner, t), times);
        }
        before = GradientAt(value, 0, t);
      }
      results[times / 2] = group.Pull();
    }
    EXPECT_TRUE(SameBytes(results[0], results[1])) << EnumName(sync.mode);
  }
}

TEST(ParameterShardTest, DropsAndCountsStaleGradients) {
  auto options = OptionsOf({.mode = SyncMode::kAsync, .learners = 2});
  options.guards.staleness_max = 3;
  auto shard = MakeWhole(options);
  Rng rng({9, Purpose::kTest});
  std::uint64_t too_old = 0, applied = 0;
  for (std::uint64_t i = 1; i <= 300; ++i) {
    const std::uint64_t clock =
        shard->version() - std::min<std::uint64_t>(rng.Below(8), shard->version() - 1);
    const bool old = shard->version() - clock > 3;
    too_old += old;
    applied += !old;
    EXPECT_EQ(Push(shard.get(), PushOf({0, 1, i}, clock, FirstValue())),
              old ? Outcome::kTooOld : Outcome::kHeld);
    Drain(shard.get());
  }
  Metrics metrics;
  shard->Report(&metrics);
  EXPECT_EQ(metrics.Get("paramserver/pushes_rejected_stale"), double(too_old));
  EXPECT_EQ(metrics.Get("paramserver/pushes_applied"), double(applied));
  EXPECT_EQ(shard->staleness().count(), applied);
  EXPECT_LE(shard->staleness().max(), 3);
  EXPECT_GT(too_old, 0u);
}

// Pushes that waited during the last update have no effect either. Thus all readers of a version
// beyond the limit get the same weights.
TEST(ParameterShardTest, NothingChangesAfterLastUpdate) {
  constexpr std::uint64_t kMost = 4;
  struct Case {
    SyncOptions sync;
    std::uint64_t pushes;  // of an update
  };
  for (const Case& c :
       {Case{{.mode = SyncMode::kAsync, .learners = 2}, 1},
        Case{{.mode = SyncMode::kSsp, .learners = 2, .staleness = 50}, 1},
        Case{{.mode = SyncMode::kKOfN, .learners = 2, .k = 2, .per_batch = true}, 2},
        Case{{.mode = SyncMode::kBsp, .learners = 2}, 2}}) {
    SCOPED_TRACE(EnumName(c.sync.mode));
    ParameterShard::Options options = OptionsOf(c.sync);
    auto first = MakeWhole(options);  // is given no more than those that count
    options.updates_max = kMost;
    auto each = MakeWhole(options), together = MakeWhole(options);
    for (std::uint64_t i = 0; i < 12; ++i) {
      const auto learner = std::int32_t(i % 2);
      const std::uint64_t clock = c.sync.mode == SyncMode::kBsp ? 1 + i / 2 : 1;
      const ShardPush push =
          PushOf({learner, 1, 1 + i / 2}, clock, GradientAt(FirstValue(), learner, i));
      if (i < kMost * c.pushes) {
        Push(first.get(), push);
        Drain(first.get());
      }
      Push(each.get(), push);
      Drain(each.get());
      Push(together.get(), push);
      if (c.pushes > 1) Drain(together.get());
    }
    Drain(together.get());
    ASSERT_EQ(first->version(), 1 + kMost);
    EXPECT_GE(each->version(), 1 + kMost);
    EXPECT_GE(together->version(), 1 + kMost);
    EXPECT_TRUE(SameBytes(each->value(), first->value()));
    EXPECT_TRUE(SameBytes(together->value(), first->value()));
  }
}

TEST(ParameterShardTest, DropsOutliersWithoutBlockingOthers) {
  auto options = OptionsOf({.learners = 2});
  options.guards.loss_deviations = 5;
  auto shard = MakeWhole(options);
  for (std::uint64_t t = 1; t <= 100; ++t) {
    for (const int learner : {0, 1}) {
      ShardPush push = PushOf({learner, 1, t}, t, FirstValue());
      push.loss = t % 10 == 0 && t > 50 && learner == 1 ? 1e4f : 1 + 0.01f * float(t % 7);
      const bool outlier = push.loss > 100;
      EXPECT_EQ(Push(shard.get(), std::move(push)), outlier ? Outcome::kOutlier : Outcome::kHeld);
    }
    EXPECT_TRUE(shard->ApplyNext().has_value());
    EXPECT_EQ(shard->version(), t + 1);
  }
  Metrics metrics;
  shard->Report(&metrics);
  EXPECT_EQ(metrics.Get("paramserver/pushes_rejected_outlier"), 5);
  EXPECT_EQ(metrics.Get("paramserver/pushes_applied"), 195);
}

// Gradients with a normal loss and an outlying norm. Each of the two guards learns from all pushes.
TEST(ParameterShardTest, DropsNormOutliersRegardlessOfLoss) {
  for (const bool norms : {false, true}) {
    auto options = OptionsOf({.mode = SyncMode::kAsync});
    options.guards.loss_deviations = 5;
    options.guards.norm_deviations = norms ? 5 : 0;
    auto shard = MakeWhole(options);
    int dropped = 0;
    for (std::uint64_t t = 1; t <= 100; ++t) {
      ShardPush push = PushOf({0, 1, t}, shard->version(), FirstValue());
      push.loss = t == 60 ? 1e4f : 1 + 0.01f * float(t % 7);
      push.norm = t % 20 == 10 && t > 50 ? 1e3f : 5 + 0.1f * float(t % 5);
      dropped += Push(shard.get(), std::move(push)) == Outcome::kOutlier;
      Drain(shard.get());
    }
    EXPECT_EQ(dropped, norms ? 3 : 1);
  }
}

TEST(ParameterShardTest, KeepsTwoImmutableVersions) {
  for (const int kept : {1, 2}) {
    auto options = OptionsOf({.mode = SyncMode::kAsync}, "momentum");
    options.versions_kept = kept;
    auto shard = MakeWhole(options);
    EXPECT_EQ(shard->Pull()->version, 1u);
    std::vector<WeightSnapshot> pulled;
    std::vector<Floats> copies;
    for (std::uint64_t t = 1; t <= 10; ++t) {
      Push(shard.get(), PushOf({0, 1, t}, t, FirstValue()));
      Drain(shard.get());
      if (t % 3 == 0) continue;  // not every version is pulled
      pulled.push_back(*shard->Pull());
      copies.emplace_back(shard->value().begin(), shard->value().end());
      EXPECT_EQ(pulled.back().version, t + 1);
    }
    for (std::size_t i = 0; i < pulled.size(); ++i) {
      EXPECT_TRUE(SameBytes(pulled[i].value.as<float>(), copies[i]));
    }
    EXPECT_EQ(shard->Pull(11)->value.data(), shard->Pull()->value.data());
    EXPECT_EQ(shard->Pull(12).status().code(), Code::kNotFound);
    EXPECT_EQ(shard->Pull(9).status().code(), Code::kNotFound);
    ASSERT_EQ(shard->Pull(10).ok(), kept == 2);
    if (kept == 2) {
      EXPECT_EQ(shard->Pull(10)->version, 10u);
    }
  }
}

TEST(ParameterShardTest, RejectedPushesChangeNothing) {
  auto options = OptionsOf({.learners = 2});
  options.guards.loss_deviations = 5;
  auto shard = MakeWhole(options);
  const Buffer before = shard->Snapshot();
  const auto code = [&](ShardPush push) { return shard->Push(std::move(push)).status().code(); };
  EXPECT_EQ(code(PushOf({0, 1, 1}, 1, FirstValue(), 2)), Code::kFailedPrecondition);
  EXPECT_EQ(code(PushOf({0, 1, 1}, 2, FirstValue())), Code::kFailedPrecondition);
  EXPECT_EQ(code(PushOf({7, 1, 1}, 1, FirstValue())), Code::kFailedPrecondition);
  EXPECT_EQ(code(PushOf({0, 1, 0}, 1, FirstValue())), Code::kInvalidArgument);
  EXPECT_EQ(code(PushOf({0, 1, 1}, 1, Floats(7))), Code::kInvalidArgument);
  for (const float rate : {-1.0f, 1e9f, std::nanf("")}) {
    ShardPush push = PushOf({0, 1, 1}, 1, FirstValue());
    push.learning_rate = rate;
    EXPECT_EQ(code(std::move(push)), Code::kInvalidArgument);
  }
  EXPECT_TRUE(std::ranges::equal(shard->Snapshot().bytes(), before.bytes()));
  for (const int learner : {0, 1}) Push(shard.get(), PushOf({learner, 5, 1}, 1, FirstValue()));
  Drain(shard.get());
  EXPECT_EQ(code(PushOf({0, 4, 9}, 2, FirstValue())), Code::kAborted);
}

TEST(ParameterShardTest, RejectsInconsistentOptions) {
  auto options = OptionsOf({});
  EXPECT_FALSE(ParameterShard::Make(options, Floats(999)).ok());
  Floats bad = FirstValue();
  bad[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(ParameterShard::Make(options, bad).ok());
  for (const std::vector<ParamRange>& ranges :
       {std::vector<ParamRange>{{8, 1008}}, {{0, 500}, {496, 996}}, {{0, 0}, {0, 1000}}}) {
    options.ranges = ranges;
    EXPECT_EQ(ParameterShard::Make(options, FirstValue()).status().code(), Code::kInvalidArgument);
  }
  options = OptionsOf({});
  options.versions_kept = 3;
  EXPECT_FALSE(ParameterShard::Make(options, FirstValue()).ok());
}

// One learner of two sends as Strom does: the other's gradient and its ±τ are summed alike.
TEST(ParameterShardTest, SumsPushesOfDifferentCodecs) {
  auto shard = MakeWhole(OptionsOf({.learners = 2}));
  GradientEncoder strom({.codec = GradientCodec::kStrom, .threshold = 0.5f}, kParameters);
  const Floats g0 = GradientAt(FirstValue(), 0, 0), g1 = GradientAt(FirstValue(), 1, 0);
  ShardPush push = PushOf({1, 1, 1}, 1, g1);
  push.parts = {*GradientPayload::Parse(*strom.Encode(g1), kParameters)};
  Push(shard.get(), std::move(push));
  Push(shard.get(), PushOf({0, 1, 1}, 1, g0));
  Drain(shard.get());
  const Floats first = FirstValue();
  for (std::size_t i = 0; i < kParameters; ++i) {
    const double sent = std::abs(g1[i]) < 0.5 ? 0 : std::copysign(0.5, double(g1[i]));
    EXPECT_NEAR(shard->value()[i], first[i] - 0.01 * (double(g0[i]) + sent) / 2, 1e-6);
  }
}

TEST(ParameterShardTest, EmptyShardFollowsUpdates) {
  auto options = OptionsOf({.learners = 1}, "adam");
  options.ranges.clear();
  auto shard = Make(options, {});
  shard->Join(0);
  for (std::uint64_t t = 1; t <= 3; ++t) {
    Push(shard.get(), PushOf({0, 1, t}, t, {}));
    Drain(shard.get());
  }
  EXPECT_EQ(shard->Pull()->version, 4u);
  const Buffer bytes = shard->Snapshot();
  EXPECT_TRUE(ParameterShard::Restore(options, std::span(&bytes, 1)).ok());
}

}  // namespace
}  // namespace troop
