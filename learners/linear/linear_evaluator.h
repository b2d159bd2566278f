#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "learners/linear/linear_data.h"
#include "learners/supervised/text_metrics.h"
#include "nn/sparse/linear_model.h"
#include "paramserver/weights/evaluator.h"

namespace troop {

// Evaluates the weights of a linear model: on the validation_split, on the test set at the end, or
// on an evenly spread subset. The loss is that of training, a sum over the outputs. A slice is a
// thousand examples. The measures are those of TextEvaluator, from AppendLinearLogits.
class LinearEvaluator final : public Evaluator {
 public:
  // weights: [P], as those of MakeLinearTraining. Errors: kInvalidArgument: weights of another
  // size.
  static Result<std::unique_ptr<LinearEvaluator>> Make(const TrainingConfig& config,
                                                       LinearLoss loss,
                                                       std::shared_ptr<const LinearData> data,
                                                       const EvaluationRequest& request,
                                                       std::span<const float> weights);
  State Advance(int steps) override;
  const Status& error() const override { return status_; }
  EvaluationReport Report() const override;
  std::vector<std::pair<std::string, double>> Measures() const override;
  // All measures with bootstrap intervals for `resamples` > 0, keyed by the run's seed. REQUIRES:
  // over, and no error.
  TextScores Scores(int resamples) const;
  int affordable_resamples() const { return metrics_.AffordableResamples(); }
  std::int64_t judged() const { return std::int64_t(next_); }  // examples so far

 private:
  LinearEvaluator(const TrainingConfig& config, const LinearForm& form,
                  std::shared_ptr<const LinearData> data, const EvaluationRequest& request);
  // The examples under evaluation; only the final trial uses the test set.
  const LinearSet& set() const { return request_.final ? data_->test : data_->validation_split; }
  void Judge(std::int64_t i);

  const std::shared_ptr<const LinearData> data_;
  const EvaluationRequest request_;
  const ProblemType problem_;
  const std::uint64_t seed_;
  const LinearForm form_;
  std::vector<float> weights_;
  std::vector<std::int64_t> samples_;
  // Progress: the next of samples_, and the sums so far.
  std::size_t next_ = 0;
  TextOutcome outcome_;
  TextMetrics metrics_;
  Status status_;
};

}  // namespace troop
