#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/config/problem_type.h"
#include "datasets/text/length_bucketing.h"
#include "kernels/transformer/dropout.h"
#include "nn/parallel/tensor_parallel.h"

namespace troop {

// A packed batch of model inputs with its labels.
struct TextBatch {
  std::vector<std::int32_t> ids, starts;  // [T], [B + 1]
  std::vector<DropoutKey> dropout;        // [B]; empty: no dropout
  std::vector<std::int32_t> places;       // [M], masked_lm: positions of the tokens to predict
  std::vector<std::int32_t> types;        // [T] segment of each token; empty: all 0
  std::vector<std::int32_t> labels;       // [B] classes, or [M] tokens
  std::vector<float> targets;  // [B, labels] 0 or 1 (multi-label), or [B] numbers (regression)
  // [B] factors of the rows' losses, of mean 1 over the whole batch of all learners, so that the
  // mean over it is a weighted mean; empty: all 1. Only for classes.
  std::vector<float> weights;
  // Number of predictions: labels, or else texts with targets.
  std::int64_t rows() const {
    if (targets.empty()) return std::int64_t(labels.size());
    return std::int64_t(starts.size()) - 1;
  }
};

// Results of a batch, as sums, so that the parts of a batch can be added.
struct TextOutcome {
  double loss = 0;        // Σ of the rows' losses
  std::int64_t rows = 0;  // labels, or texts with targets
  // Rows whose label has the largest logit; kMultiLabel: whose labels are all correct at a
  // probability of 1/2. Not counted (0): kRegression, and vocabulary slices.
  std::int64_t right = 0;
  std::int64_t tokens = 0;  // of the batch
  std::int64_t sequences = 0;
  TextOutcome& operator+=(const TextOutcome& other);
};

// Forward, loss and backward of a text model, with buffers that grow to the largest batch. One
// owner thread. Deterministic: the same batch gives the same bytes.
class TextStep {
 public:
  struct Weights {
    std::span<const float> value;    // [P]
    const Packed* packed = nullptr;  // the same weights, packed
  };
  // `module` must outlive this. words: vocabulary size for a masked-LM head; 0: a classifier.
  // problem: its loss and the part of TextBatch with the targets: cross entropy of `labels`, or
  // BinaryCrossEntropy or SquaredError of `targets` (kernels/loss/text_loss.h).
  TextStep(const Module* module, std::int64_t words,
           ProblemType problem = ProblemType::kSingleLabel)
      : module_(module), words_(words), problem_(problem) {}
  // Sets the group for a tensor-parallel part. All ranks must make the same steps.
  void SetTensorGroup(TensorGroup* group) { tensor_ = group; }

  // Computes the loss of each row. Errors: as MakePlan, for an invalid batch; kInvalidArgument: not
  // one target per output.
  Result<TextOutcome> Forward(const Weights& weights, const TextBatch& batch);
  // Target of ForwardBackward: the gradient of scale · Σ loss is stored in `gradient`, or added to
  // it (accumulate).
  struct Gradient {
    std::span<float> gradient;  // [P]
    float scale = 1;
    bool accumulate = false;
    GradientWatch* watch = nullptr;
  };
  // Forward, then backward. Errors: as Forward.
  Result<TextOutcome> ForwardBackward(const Weights& weights, const TextBatch& batch,
                                      const Gradient& gradient);
  // Logits of the last Forward: [rows, classes or the rank's share of the vocabulary]; kRegression:
  // the numbers [rows, 1].
  std::span<const float> logits() const { return logits_.as<float>(); }
  // Losses of the last Forward: [rows], without the factors TextBatch::weights.
  std::span<const float> losses() const { return loss_; }

 private:
  // Plans the forward pass and grows the buffers to it.
  Status Prepare(const TextBatch& batch);
  // Losses and counts from the logits; with `differentiate`, their gradient replaces the logits.
  TextOutcome Judge(const TextBatch& batch, float scale, bool differentiate);
  std::int64_t JudgeLabels(const TextBatch& batch, float scale, bool differentiate);
  std::int64_t JudgeTargets(const TextBatch& batch, float scale, bool differentiate);

  const Module* const module_;
  const std::int64_t words_;
  const ProblemType problem_;
  TensorGroup* tensor_ = nullptr;
  std::vector<ConstTensor> inputs_;
  Tensor logits_, logits_memory_;  // about 100 MB for a masked LM
  std::vector<float> loss_;        // per row
  MutableBuffer cache_, workspace_;
  std::size_t cache_bytes_ = 0;  // used by this batch
};

}  // namespace troop
