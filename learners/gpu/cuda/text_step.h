#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/config/problem_type.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/transformer/dropout.h"
#include "learners/gpu/cuda/optimizer_step.h"
#include "learners/gpu/cuda/train_state.h"
#include "nn/cuda/transformer.h"

// Training of a text model (learners/supervised/text_step.h), or of one tensor-parallel part, on a
// GPU. The host packs batches of any size and copies each in one piece; weights, gradient and
// optimizer state stay on the device. All ranks make the same calls with the same batches; losses,
// correct predictions and norms are those of the whole model, equal on each rank.
namespace troop::cuda {

struct TextStepOptions {
  TransformerSpec model;
  ProblemType problem = ProblemType::kSingleLabel;  // of the classifier head
  Precision precision = Precision::kBF16;
  OptimizerRule rule;
  bool trains = true;  // false: evaluation only, with memory for that alone
};

// A packed batch in host memory with validated indices; fields as in TextBatch
// (learners/supervised/text_step.h).
struct HostTokens {
  std::span<const std::int32_t> ids, starts;  // [T], [B + 1]
  std::span<const std::int32_t> types;        // [T], or empty: all 0
  std::span<const DropoutKey> dropout;        // [B], or empty: no dropout
  std::span<const std::int32_t> places;       // [M], masked-LM head only
  std::span<const std::int32_t> labels;       // [B] classes, or [M] tokens
  std::span<const float> targets;             // [B, classes]; instead of labels
  std::span<const float> weights;             // [B] factors of the losses, or empty: all 1
};

// Sums over all parts added since Begin. Fixed layout, because it is copied from the device.
struct TextStepReport {
  double loss = 0;           // Σ of the rows' losses, times their weights
  double gradient_norm = 0;  // before the clip
  std::int64_t right = 0;    // rows as in TextOutcome::right
  std::int32_t finite = 0;   // 0: loss or gradient was not finite, and RunStep changes nothing
  std::int32_t reserved = 0;
};

// GPU memory in bytes for updates of that many tokens and outputs at a time, without the share of
// the driver and cuBLAS.
std::int64_t TextStepBytes(const TextStepOptions& options, std::int64_t tokens, std::int64_t rows);

// Training step on a device. All work is enqueued on the caller's stream.
class TextStep final : public GpuTrainState {
 public:
  // The value starts at 0; call SetState.
  TextStep(Device& device, const TextStepOptions& options);
  ~TextStep() override;
  // Tensor parallelism: sets the ranks with the other parts, which must outlive their use; nullptr:
  // none yet. REQUIRES: peers are set for every call except those about the state.
  void SetTensorParallelComm(TensorParallelComm* peers);

  // An update: Begin; then Add for each micro-batch, which adds the gradient of scale · Σ loss;
  // then Finish; then RunStep with the current gradient, whose norm is recomputed if `changed`.
  // ready: as in Transformer::Backward. The host may pack a micro-batch while the device works on
  // earlier ones.
  void Begin(Stream& stream);
  void Add(Stream& stream, const HostTokens& batch, float scale,
           const Transformer::Ready& ready = {});
  TextStepReport Finish(Stream& stream);  // waits for the report
  void RunStep(Stream& stream, double learning_rate, bool changed);
  // Computes loss and correct predictions only; waits for the result. logits: becomes the
  // classifier's [B, classes], empty after an error of the device; nullptr: not needed.
  TextStepReport Judge(Stream& stream, const HostTokens& batch,
                       std::vector<float>* logits = nullptr);

  float* gradient() const override;
  const float* value() const override;
  double GradientNorm(Stream& stream) override;
  // There is no target, and updates are not counted.
  void GetState(Stream& stream, State* state) override;
  void SetState(Stream& stream, const State& state) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troop::cuda
