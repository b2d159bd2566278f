#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "replay/service/client.h"

namespace troop {

inline constexpr std::int64_t kQueueSteps = 4;  // columns of an unroll

// State of an UnrollQueue, which the test changes.
struct UnrollQueueState {
  std::deque<SampleBatch> batches;
  std::deque<SampleBatch> later;  // arrive one by one, each with a Poll
  std::uint64_t version = 0;
  bool drained = false;
  Time polled{};
  std::vector<std::pair<std::uint32_t, float>> priorities;  // slot and value
};

// A sampler whose batches the test adds.
class UnrollQueue final : public ReplaySampler {
 public:
  explicit UnrollQueue(UnrollQueueState* state) : state_(state) {}
  void AddShard(std::unique_ptr<Channel>) override {}
  void Poll(Time now) override {
    state_->polled = now;
    if (state_->later.empty() || !state_->batches.empty()) return;
    state_->batches.push_back(std::move(state_->later.front()));
    state_->later.pop_front();
  }
  Result<std::optional<SampleBatch>> Next() override {
    if (!state_->batches.empty()) {
      std::optional<SampleBatch> next = std::move(state_->batches.front());
      state_->batches.pop_front();
      return next;
    }
    if (state_->drained) return OutOfRange("drained");
    return std::optional<SampleBatch>();
  }
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override {
    for (std::size_t i = 0; i < keys.size(); ++i)
      state_->priorities.emplace_back(keys[i].slot, priority[i]);
  }
  void ObservePolicyVersion(std::uint64_t version) override { state_->version = version; }
  void SetBeta(double) override {}
  void Drain() override { state_->drained = true; }
  int ready_batches() const override { return int(state_->batches.size()); }
  int shards_alive() const override { return 1; }

 private:
  UnrollQueueState* const state_;
};

// A batch of unrolls whose numbers identify them: number `slot` in every tensor, slot % 4 + 1
// steps.
inline SampleBatch NumberedUnrolls(const std::vector<std::uint32_t>& slots, std::uint64_t version) {
  const std::int64_t rows = std::ssize(slots);
  SampleBatch batch{.observation = Tensor(DType::kF32, {rows, kQueueSteps + 1, 2}),
                    .action = Tensor(DType::kI32, {rows, kQueueSteps}),
                    .reward = Tensor(DType::kF32, {rows, kQueueSteps}),
                    .discount = Tensor(DType::kF32, {rows, kQueueSteps}),
                    .state = Tensor(DType::kF32, {rows, kQueueSteps})};
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint32_t slot = slots[std::size_t(row)];
    for (Tensor* t : {&batch.observation, &batch.reward, &batch.discount, &batch.state})
      std::ranges::fill(t->Rows(row, 1).as<float>(), float(slot));
    std::ranges::fill(batch.action.Rows(row, 1).as<std::int32_t>(), std::int32_t(slot));
    batch.key.push_back({.slot = slot, .generation = 1});
    batch.probability.push_back(0.25);
    batch.weight.push_back(0.5F);
    batch.length.push_back(std::int32_t(slot % kQueueSteps) + 1);
    batch.burn_in.push_back(0);
    batch.policy_version.push_back(version);
  }
  return batch;
}

// Slots of a batch, whose tensors must be those of NumberedUnrolls.
inline std::vector<std::uint32_t> SlotsOf(const SampleBatch& b) {
  std::vector<std::uint32_t> slots;
  for (std::size_t i = 0; i < b.key.size(); ++i) {
    slots.push_back(b.key[i].slot);
    for (const Tensor* t : {&b.observation, &b.reward, &b.discount, &b.state}) {
      EXPECT_EQ(t->dim(0), b.size());
      for (const float x : t->Rows(std::int64_t(i), 1).as<float>())
        EXPECT_EQ(x, float(b.key[i].slot));
    }
    for (const std::int32_t x : b.action.Rows(std::int64_t(i), 1).as<std::int32_t>())
      EXPECT_EQ(std::uint32_t(x), b.key[i].slot);
    EXPECT_EQ(b.length[i], 1 + std::int32_t(b.key[i].slot % kQueueSteps));
  }
  return slots;
}

}  // namespace troop
