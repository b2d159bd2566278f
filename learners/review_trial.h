#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/device_supervised.h"
#include "learners/supervised.h"
#include "paramserver/weights_trial.h"

namespace troop {

// Tells the sentiment of reviews, or words that are masked in them, and counts what is right: of
// the held-out ones, in the end of the test's, or of as many of them as are wanted, evenly spread.
// A slice is a batch of a few thousand tokens. On a GPU, where the config's updates are.
class ReviewTrial final : public WeightsTrial {
 public:
  // Errors: those of MakeTextModel; kInvalidArgument: weights of another size.
  static Result<std::unique_ptr<ReviewTrial>> Make(const Config& config,
                                                   std::shared_ptr<const ReviewData> data,
                                                   const TrialOptions& options,
                                                   std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  std::int64_t judged() const { return std::int64_t(next_); }

 private:
  ReviewTrial(const Config& config, std::shared_ptr<const ReviewData> data,
              const TrialOptions& options, std::unique_ptr<Module> module);
  const TokenSet& set() const { return options_.final ? data_->test : data_->holdout; }

  const std::shared_ptr<const ReviewData> data_;
  const TrialOptions options_;
  const std::unique_ptr<Module> module_;
  const TextBatches batches_;
  TextStep step_;
  std::vector<float> value_;  // [P]
  std::unique_ptr<Packed> packed_;
  std::unique_ptr<DeviceJudge> on_device_;  // nullptr: the CPU does it
  std::vector<std::int32_t> samples_;       // by growing length
  std::size_t next_ = 0;
  TextOutcome outcome_;
  Status status_;
};

}  // namespace troop
