#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/dropout.h"
#include "nn/module.h"
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
  double loss = 0;              // Σ cross entropy
  std::int64_t rows = 0;        // labels
  std::int64_t right = 0;       // of them, by the largest logit
  std::int64_t tokens = 0;      // of the batch
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
  // `module` outlives it. masked: its head is asked for places.
  TextStep(const Module* module, bool masked) : module_(module), masked_(masked) {}

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
  // Of the last Forward: [rows, classes or vocabulary].
  std::span<const float> logits() const { return logits_.as<float>(); }

 private:
  Status Prepare(const TextBatch& batch);
  TextOutcome Judge(const TextBatch& batch, float scale, bool differentiate);

  const Module* const module_;
  const bool masked_;
  std::vector<ConstTensor> inputs_;
  Tensor logits_;
  std::vector<float> loss_;  // of each row
  MutableBuffer cache_, workspace_;
  std::size_t cache_bytes_ = 0;  // of this batch
};

}  // namespace troop
