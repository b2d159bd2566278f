#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/device.h"
#include "kernels/dropout.h"
#include "learners/cuda/step_rule.h"
#include "learners/cuda/trained_on_device.h"
#include "nn/cuda/transformer.h"

// Training of a text model on a GPU (learners/text_step.h), or of one part of it: batches of any
// size are packed by the host and copied in one piece; weights, gradient and optimizer stay on the
// device. Parts make the same calls with the same batches; losses, right answers and norms are the
// whole model's, the same on each.
namespace troop::cuda {

struct TextStepOptions {
  TransformerSpec model;
  Precision precision = Precision::kBF16;
  StepRule rule;
  bool trains = true;  // false: it only judges, and has memory for that alone
};

// A packed batch in the host's memory, whose numbers are within their bounds; as TextBatch
// (learners/text_step.h).
struct HostTokens {
  std::span<const std::int32_t> ids, starts;  // [T], [B + 1]
  std::span<const DropoutKey> dropout;        // [B], or empty: nothing is dropped
  std::span<const std::int32_t> places;       // [M]: of the masked-LM head alone
  std::span<const std::int32_t> labels;       // [B] classes, or [M] words
};

// Of all that was added since Begin. Fixed layout: it is copied from the device.
struct TextStepReport {
  double loss = 0;           // Σ cross entropy
  double gradient_norm = 0;  // before the clip
  std::int64_t right = 0;    // labels that no other logit is larger than
  std::int32_t finite = 0;   // 0: loss or gradient was not; then RunStep changes nothing
  std::int32_t reserved = 0;
};

// Of a GPU's memory, for updates of so many tokens and outputs at a time. Without what the driver
// and cuBLAS take.
std::int64_t TextStepBytes(const TextStepOptions& options, std::int64_t tokens, std::int64_t rows);

class TextStep final : public TrainedOnDevice {
 public:
  // The value begins at 0: SetState.
  TextStep(Device& device, const TextStepOptions& options);
  ~TextStep() override;
  // Of a part: those who have the others, who outlive their use; nullptr: none by now.
  // REQUIRES: there are some while it is asked for anything but the state.
  void SetPeers(TensorPeers* peers);

  // An update: Begin, then Add with each part of the batch, which adds the gradient of scale Σ
  // loss; then Finish; and RunStep with what the gradient is by then, whose norm is taken again if
  // it was changed. ready: as Transformer::Backward's. A part may be packed while the device works
  // at those before.
  void Begin(Stream& stream);
  void Add(Stream& stream, const HostTokens& batch, float scale,
           const Transformer::Ready& ready = {});
  TextStepReport Finish(Stream& stream);  // waits for it
  void RunStep(Stream& stream, double learning_rate, bool changed);
  // Loss and right answers alone; waits.
  TextStepReport Judge(Stream& stream, const HostTokens& batch);

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
