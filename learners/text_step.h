#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/dropout.h"
#include "nn/tensor_parallel.h"
#include "text/length_batches.h"

namespace troop {

// A packed batch as a model takes it, with what it is to say.
struct TextBatch {
  std::vector<std::int32_t> ids, starts;  // [T], [B + 1]
  std::vector<DropoutKey> dropout;        // [B]; empty: nothing is dropped
  std::vector<std::int32_t> places;       // [M], masked_lm: tokens that are asked for
  std::vector<std::int32_t> labels;       // [B] classes, or [M] words
};

// What became of a batch. Sums: those of parts of a batch add up.
struct TextOutcome {
  double loss = 0;          // Σ cross entropy
  std::int64_t rows = 0;    // labels
  std::int64_t right = 0;   // of them, by the largest logit; of slices, unknown: 0
  std::int64_t tokens = 0;  // of the batch
  std::int64_t sequences = 0;
  TextOutcome& operator+=(const TextOutcome& other);
};

// A text model at work: forward, loss, backward, in memory that grows to what the largest batch
// took. One owner thread. The same bytes for the same batch.
class TextStep {
 public:
  struct Weights {
    std::span<const float> value;    // [P]
    const Packed* packed = nullptr;  // of the same
  };
  // `module` outlives it. words: of the vocabulary, where its head is asked for words; 0: for
  // classes.
  TextStep(const Module* module, std::int64_t words) : module_(module), words_(words) {}
  // Of a module that is one rank's part: with whom steps are made. All ranks take the same ones.
  void SetTensorGroup(TensorGroup* group) { tensor_ = group; }

  // The loss of each label. Errors: as MakePlan, where the batch is none.
  Result<TextOutcome> Forward(const Weights& weights, const TextBatch& batch);
  // Forward, and the gradient of scale Σ loss: added into `gradient`, or in its place (accumulate).
  struct Gradient {
    std::span<float> gradient;  // [P]
    float scale = 1;
    bool accumulate = false;
    GradientWatch* watch = nullptr;
  };
  Result<TextOutcome> ForwardBackward(const Weights& weights, const TextBatch& batch,
                                      const Gradient& gradient);
  // Of the last Forward: [rows, classes or the rank's share of the vocabulary].
  std::span<const float> logits() const { return logits_.as<float>(); }

 private:
  Status Prepare(const TextBatch& batch);
  TextOutcome Judge(const TextBatch& batch, float scale, bool differentiate);

  const Module* const module_;
  const std::int64_t words_;
  TensorGroup* tensor_ = nullptr;
  std::vector<ConstTensor> inputs_;
  Tensor logits_, logits_memory_;  // a masked model's are a hundred megabytes
  std::vector<float> loss_;        // of each row
  MutableBuffer cache_, workspace_;
  std::size_t cache_bytes_ = 0;  // of this batch
};

}  // namespace troop
