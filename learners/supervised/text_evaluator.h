#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/supervised.h"
#include "learners/supervised/text_metrics.h"
#include "paramserver/weights/evaluator.h"

namespace troop {

// Evaluates weights on texts, by their labels or by masked tokens: on the validation_split, on the
// test set at the end, or on an evenly spread subset. A slice is one batch of a few thousand
// tokens. Runs on a GPU if the config's updates do, with the same measures: a classifier's logits
// are copied to the host.
class TextEvaluator final : public Evaluator {
 public:
  // Errors: as MakeTextModel; kInvalidArgument: weights of another size.
  static Result<std::unique_ptr<TextEvaluator>> Make(const TrainingConfig& config,
                                                     std::shared_ptr<const ReviewData> data,
                                                     const EvaluationRequest& options,
                                                     std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  std::vector<std::pair<std::string, double>> Measures() const override;
  void AddDetails(EvaluationReport* report) const override;
  // All measures with bootstrap intervals for `resamples` > 0, keyed by the run's seed; none for a
  // masked LM. REQUIRES: over, and no error.
  TextScores Scores(int resamples) const;
  int affordable_resamples() const { return metrics_.AffordableResamples(); }
  std::int64_t judged() const { return std::int64_t(next_); }

 private:
  TextEvaluator(const TrainingConfig& config, std::shared_ptr<const ReviewData> data,
                const EvaluationRequest& options, std::unique_ptr<Module> module);
  // The examples under evaluation; only the final trial uses the test set.
  const TokenizedDataset& set() const {
    return options_.final ? data_->test : data_->validation_split;
  }

  const std::shared_ptr<const ReviewData> data_;
  const EvaluationRequest options_;
  const ProblemType problem_;
  const std::uint64_t seed_;
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
  TextMetrics metrics_;  // without examples for a masked LM
  Status status_;
};

}  // namespace troop
