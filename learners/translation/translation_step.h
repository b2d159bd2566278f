#pragma once

#include <span>

#include "core/base/buffer.h"
#include "learners/translation/translation_data.h"
#include "nn/translation/gnmt.h"
#include "nn/translation/smoothed_loss.h"

namespace troop {

// Forward, loss and backward of a translation model on the CPU. Owns the memory that a pass needs,
// and grows it to the largest batch. One owner thread.
class TranslationStep {
 public:
  explicit TranslationStep(const Gnmt* model) : model_(model) {}
  struct Weights {
    std::span<const float> value;  // [P]
    const Packed* packed = nullptr;
  };
  struct Gradient {
    std::span<float> gradient;  // [P], accumulated into
    float scale = 1;            // factor of each token's loss
    float smoothing = 0;
    GradientWatch* watch = nullptr;
  };
  // Inference: the losses without smoothing. Errors: kInvalidArgument: too many tokens.
  Result<TokenLosses> Forward(const Weights& weights, const TranslationBatch& batch);
  // Training: adds the gradient of scale · Σ loss. Errors: as above.
  Result<TokenLosses> ForwardBackward(const Weights& weights, const TranslationBatch& batch,
                                      const Gradient& gradient);

 private:
  Status Prepare(const TranslationBatch& batch);

  const Gnmt* const model_;
  std::vector<ConstTensor> in_;
  Tensor logits_;
  MutableBuffer cache_, workspace_;
  std::size_t cache_bytes_ = 0;  // needed by this batch
};

}  // namespace troop
