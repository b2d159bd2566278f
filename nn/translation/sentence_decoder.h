#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "nn/translation/beam_search.h"
#include "nn/translation/gnmt.h"

namespace troop {

// Translates one sentence at a time, token by token. The logits are those of Gnmt::Forward within
// rounding. Owns its memory, which grows to the longest sentence. One owner thread.
class SentenceDecoder {
 public:
  // model, and the memory of `value` [P], must outlive this. packed: of the model, or nullptr.
  SentenceDecoder(const Gnmt* model, std::span<const float> value, const Packed* packed);
  // Encodes a sentence and searches for its translation. O(source + length) steps. REQUIRES: source
  // is not empty, and its ids are below the vocabulary.
  Hypothesis Translate(std::span<const std::int32_t> source, const BeamOptions& options);

  // Parts of Translate. Begin encodes the sentence and resets the states; Step is BeamModel::step.
  // rows: the most rows of a step.
  void Begin(std::span<const std::int32_t> source, std::int64_t rows);
  void Step(const BeamStep& step);

 private:
  // State of a decoder layer, [rows, hidden] each, in two copies: before and after a step.
  struct State {
    std::vector<float> h[2], c[2];
  };
  void Encode(std::span<const std::int32_t> source);
  // Makes the states of the parents those before the step.
  void TakeStates(std::span<const std::int32_t> parents);
  // One time step of a decoder layer on x [rows, in]. Returns h [rows, hidden].
  const float* RunLayer(std::size_t layer, std::int64_t rows, const float* x);

  const Gnmt* const model_;
  const std::span<const float> value_;
  const Params params_;
  MutableBuffer memory_, encoder_memory_;
  SequenceAttention::Kept attention_;
  SequenceAttention::Scratch attention_scratch_;
  std::int64_t sources_ = 0;
  std::vector<State> states_;
  std::vector<float> bias_, gates_, x_, y_, context_;  // of one step
};

}  // namespace troop
