// Implements the minibatches of synchronous learning.
#include "learners/node/rollout_sampler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/philox.h"
#include "learners/node/unroll_rows.h"

namespace troop {
namespace {

// More epochs than any run has, so that streams of different versions do not meet.
constexpr std::uint64_t kEpochsMax = 1 << 16;

}  // namespace

// Takes the unrolls that have arrived, as far as the rollout needs them.
Status RolloutSampler::Collect() {
  // Taken unrolls make room for further requests, which no event would send.
  bool taken = false;
  while (steps_ < options_.steps) {
    Result<std::optional<SampleBatch>> unroll = unrolls_->Next();
    if (!unroll.ok()) {
      dropped_ += std::ssize(rollout_);
      rollout_.clear();
      return unroll.status();
    }
    if (!unroll->has_value()) {
      if (!std::exchange(taken, false)) return Status::Ok();
      unrolls_->Poll(now_);
      continue;
    }
    taken = true;
    // After the run's end no newer weights need to follow.
    if ((*unroll)->policy_version[0] < version_ || Waiting()) {
      ++dropped_;
      continue;
    }
    steps_ += (*unroll)->length[0];
    rollout_.push_back(std::move(**unroll));
  }
  return Status::Ok();
}

// A random permutation (Fisher & Yates).
void RolloutSampler::BeginEpoch() {
  Rng rng({.run_seed = std::uint64_t(options_.seed),
           .purpose = Purpose::kBatchOrder,
           .index = std::uint64_t(options_.learner),
           .episode = version_ * kEpochsMax + std::uint64_t(epoch_)});
  order_.resize(rollout_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  for (std::size_t i = order_.size(); i > 1; --i)
    std::swap(order_[i - 1], order_[rng.Below(std::uint32_t(i))]);
  minibatch_ = 0;
}

// The unrolls of the current minibatch, copied into the rows of one batch.
SampleBatch RolloutSampler::Minibatch() const {
  const std::int64_t count = std::ssize(order_);
  const std::int64_t first = minibatch_ * count / minibatches_;
  const std::int64_t rows = (minibatch_ + 1) * count / minibatches_ - first;
  std::vector<const SampleBatch*> unrolls;
  for (std::int64_t row = 0; row < rows; ++row)
    unrolls.push_back(&rollout_[order_[std::size_t(first + row)]]);
  SampleBatch batch = JoinUnrolls(unrolls);
  std::ranges::fill(batch.weight, 1.0F);  // every unroll is used equally often
  return batch;
}

Result<std::optional<SampleBatch>> RolloutSampler::Next() {
  if (epoch_ == options_.epochs) {
    // Unrolls that arrive before newer weights are published stay where they are.
    if (Waiting() && !drained_) return std::optional<SampleBatch>();
    TROOP_RETURN_IF_ERROR(Collect());
    if (steps_ < options_.steps) return std::optional<SampleBatch>();
    minibatches_ = std::min(options_.minibatches, std::int64_t(std::ssize(rollout_)));
    epoch_ = 0;
    BeginEpoch();
  }
  std::optional<SampleBatch> batch = Minibatch();
  if (++minibatch_ < minibatches_) return batch;
  if (++epoch_ < options_.epochs) {
    BeginEpoch();
    return batch;
  }
  used_ = version_;
  rollout_.clear();
  steps_ = 0;
  ++rollouts_;
  ended_ = true;
  return batch;
}

// Minibatches that are left, or unrolls that Collect can take.
int RolloutSampler::ready_batches() const {
  if (epoch_ < options_.epochs) return int((options_.epochs - epoch_) * minibatches_ - minibatch_);
  return Waiting() ? 0 : unrolls_->ready_batches();
}

}  // namespace troop
