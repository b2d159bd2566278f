#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "learners/images/image_step.h"
#include "learners/supervised/text_metrics.h"
#include "learners/training_config.h"
#include "paramserver/weights/evaluator.h"

namespace troop {

// Evaluates weights on images by their classes: on the validation set, on the test set at the end,
// or on an evenly spread subset. A slice is one batch. The running statistics normalize.
class ImageEvaluator final : public Evaluator {
 public:
  // Errors: as MakeTextModel and TransformOf; kInvalidArgument: weights of another size.
  static Result<std::unique_ptr<ImageEvaluator>> Make(const TrainingConfig& config,
                                                      std::shared_ptr<const ImageData> data,
                                                      const EvaluationRequest& options,
                                                      std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  // The measures of Scores without intervals, and top5_accuracy.
  std::vector<std::pair<std::string, double>> Measures() const override;
  void AddDetails(EvaluationReport* report) const override;
  // All measures with intervals, like TextEvaluator::Scores. REQUIRES: over, and no error.
  TextScores Scores(int resamples) const;
  int affordable_resamples() const { return metrics_.AffordableResamples(); }
  std::int64_t judged() const { return std::int64_t(next_); }
  // Share of images whose class has one of the five largest logits. REQUIRES: over, and no error.
  double top5() const;

 private:
  ImageEvaluator(const TrainingConfig& config, std::shared_ptr<const ImageData> data,
                 const EvaluationRequest& options, std::unique_ptr<Module> module,
                 const ImageTransform& transform);
  // The images under evaluation; only the final trial uses the test set.
  const ImageSet& set() const { return options_.final ? data_->test : data_->validation; }

  const std::shared_ptr<const ImageData> data_;
  const EvaluationRequest options_;
  const std::uint64_t seed_;
  const std::unique_ptr<Module> module_;
  const ImageCollator batches_;
  ImageStep step_;
  std::vector<float> value_;  // [P]
  std::unique_ptr<Packed> packed_;
  std::vector<std::int32_t> samples_;
  // Progress: the next of samples_, and the sums so far.
  std::size_t next_ = 0;
  ImageOutcome outcome_;
  TextMetrics metrics_;
  Status status_;
};

}  // namespace troop
