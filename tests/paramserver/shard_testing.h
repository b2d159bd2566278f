#pragma once

// Utilities for tests of ParameterShard: pushes, and K shards as their clients see them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

using Outcome = ParameterShard::Outcome;
using Floats = std::vector<float>;

inline constexpr std::int64_t kParameters = 1000;

inline OptimizerConfig ConfigOf(const std::string& optimizer) {
  OptimizerConfig config;
  const bool momentum = optimizer == "momentum";
  config.type = momentum ? OptimizerType::kSgd : *ParseEnum<OptimizerType>(optimizer);
  config.momentum = momentum ? 0.9 : 0;
  config.epsilon = 1e-3;
  return config;
}

inline Floats FirstValue() {
  Rng rng({1, Purpose::kTest});
  Floats value(kParameters);
  for (float& v : value) v = float(rng.Normal());
  return value;
}

// A learner's gradient at `value`: it pulls to 0, with noise that depends on the learner and the
// step.
inline Floats GradientAt(std::span<const float> value, std::int32_t learner, std::uint64_t step) {
  Rng rng({2, Purpose::kTest, std::uint64_t(learner), step});
  Floats gradient(value.size());
  for (std::size_t i = 0; i < value.size(); ++i) {
    gradient[i] = value[i] + 0.1f * rng.UniformF32();
  }
  return gradient;
}

inline std::unique_ptr<ParameterShard> Make(const ParameterShard::Options& options,
                                            std::span<const float> value) {
  auto shard = ParameterShard::Make(options, value);
  EXPECT_TRUE(shard.ok()) << shard.status().ToString();
  return std::move(*shard);
}

inline ParameterShard::Options OptionsOf(SyncOptions sync, const std::string& optimizer = "sgd") {
  return {.optimizer = ConfigOf(optimizer), .ranges = {{0, kParameters}}, .sync = sync};
}

inline std::unique_ptr<ParameterShard> MakeWhole(const ParameterShard::Options& options) {
  auto shard = Make(options, FirstValue());
  for (int i = 0; i < options.sync.learners; ++i) shard->Join(i);
  return shard;
}

inline ShardPush PushOf(PushId id, std::uint64_t clock, std::span<const float> gradient,
                        std::uint64_t epoch = 1) {
  ShardPush push{.id = id, .epoch = epoch, .clock = clock, .learning_rate = 0.01f, .loss = 1};
  auto part = GradientPayload::Parse(CodedGradient::Dense(Buffer::Copy(std::as_bytes(gradient))),
                                     std::int64_t(gradient.size()));
  EXPECT_TRUE(part.ok()) << part.status().ToString();
  push.parts.push_back(*part);
  return push;
}

inline Outcome Push(ParameterShard* shard, ShardPush push) {
  const auto outcome = shard->Push(std::move(push));
  EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
  return outcome.ok() ? *outcome : Outcome::kRepeated;
}

inline void Drain(ParameterShard* shard) {
  while (shard->ApplyNext()) {
  }
}

inline bool SameBytes(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// K shards of one map, as their clients see them.
class Group {
 public:
  Group(ShardMap map, const ParameterShard::Options& options) : map_(std::move(map)) {
    const Floats value = FirstValue();
    for (const std::int32_t id : map_.shards()) {
      shards_.push_back(Make(OptionsFor(id, options), Cut(value, id)));
      for (int i = 0; i < options.sync.learners; ++i) shards_.back()->Join(i);
    }
  }

  Floats Pull() {
    Floats value(kParameters);
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      const auto snapshot = shards_[s]->Pull();
      std::size_t at = 0;
      for (const ParamRange& range : map_.RangesOf(map_.shards()[s])) {
        const auto part = snapshot->value.as<float>().subspan(at, std::size_t(range.size()));
        std::ranges::copy(part, &value[std::size_t(range.begin)]);
        at += part.size();
      }
    }
    return value;
  }

  // Pushes to each shard `times` times, one shard after the other.
  void Push(PushId id, std::uint64_t clock, std::span<const float> gradient, int times = 1) {
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      const Floats part = Cut(gradient, map_.shards()[s]);
      for (int t = 0; t < times; ++t) {
        const auto outcome = shards_[s]->Push(PushOf(id, clock, part, map_.epoch()));
        EXPECT_TRUE(outcome.ok()) << outcome.status().ToString();
        Drain(shards_[s].get());
      }
    }
  }

  void Move(const ShardMap& map, const ParameterShard::Options& options) {
    std::vector<Buffer> snapshots;
    for (const auto& shard : shards_) snapshots.push_back(shard->Snapshot());
    map_ = map;
    shards_.clear();
    for (const std::int32_t id : map_.shards()) {
      auto shard = ParameterShard::Restore(OptionsFor(id, options), snapshots);
      ASSERT_TRUE(shard.ok()) << shard.status().ToString();
      shards_.push_back(std::move(*shard));
    }
  }

  const ShardMap& map() const { return map_; }
  std::vector<std::unique_ptr<ParameterShard>>& shards() { return shards_; }

 private:
  ParameterShard::Options OptionsFor(std::int32_t id, ParameterShard::Options options) {
    options.ranges = map_.RangesOf(id);
    options.epoch = map_.epoch();
    return options;
  }
  Floats Cut(std::span<const float> whole, std::int32_t id) {
    Floats part;
    for (const ParamRange& range : map_.RangesOf(id)) {
      part.insert(part.end(), whole.begin() + range.begin, whole.begin() + range.end);
    }
    return part;
  }

  ShardMap map_;
  std::vector<std::unique_ptr<ParameterShard>> shards_;
};

inline ShardMap ByMemory(int shards) {
  return *ShardMap::Make(Sharding::kMemory, {}, kParameters, shards);
}
inline ShardMap ByLayer(int shards) {
  const std::vector<ParamSpec> params{{.name = "a.weight", .offset = 0},
                                      {.name = "a.bias", .offset = 480},
                                      {.name = "b.weight", .offset = 496},
                                      {.name = "c.weight", .offset = 800}};
  return *ShardMap::Make(Sharding::kLayer, params, kParameters, shards);
}

}  // namespace troop
