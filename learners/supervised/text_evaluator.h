#pragma once

#include <memory>
#include <span>
#include <vector>

#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/supervised.h"
#include "paramserver/weights/evaluator.h"

namespace troop {

// Evaluates weights on reviews, by sentiment or by masked tokens, and counts correct predictions:
// on the validation_split, on the test set at the end, or on an evenly spread subset. A slice is
// one batch of a few thousand tokens. Runs on a GPU if the config's updates do.
class SentimentEvaluator final : public Evaluator {
 public:
  // Errors: as MakeTextModel; kInvalidArgument: weights of another size.
  static Result<std::unique_ptr<SentimentEvaluator>> Make(const TrainingConfig& config,
                                                          std::shared_ptr<const ReviewData> data,
                                                          const EvaluationRequest& options,
                                                          std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  std::int64_t judged() const { return std::int64_t(next_); }

 private:
  SentimentEvaluator(const TrainingConfig& config, std::shared_ptr<const ReviewData> data,
                     const EvaluationRequest& options, std::unique_ptr<Module> module);
  // The examples under evaluation; only the final trial uses the test set.
  const TokenizedDataset& set() const {
    return options_.final ? data_->test : data_->validation_split;
  }

  const std::shared_ptr<const ReviewData> data_;
  const EvaluationRequest options_;
  const std::unique_ptr<Module> module_;
  const TextCollator batches_;
  TextStep step_;
  std::vector<float> value_;  // [P]
  std::unique_ptr<Packed> packed_;
  std::unique_ptr<GpuTextEvaluator> on_device_;  // nullptr: evaluate on the CPU
  std::vector<std::int32_t> samples_;            // by increasing length
  // Progress: the next of samples_, and the sums so far.
  std::size_t next_ = 0;
  TextOutcome outcome_;
  Status status_;
};

}  // namespace troop
