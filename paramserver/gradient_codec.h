#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace troop {

// How a gradient goes to a parameter shard. All but kNone keep what they do not send and add it to
// the next gradient (error feedback): sent + residual is the sum of all gradients, always.
enum class GradientCodec : std::uint8_t {
  kNone = 0,   // 32 bits an element
  kFp16 = 1,   // 16 bits; beyond ±65504 the rest stays in the residual
  kBf16 = 2,   // 16 bits
  kTopK = 3,   // the largest share of the elements, as f32
  kStrom = 4,  // those of size τ at least, as ±τ: 1 bit and a gap each (Strom 2015)
};
Result<GradientCodec> ParseGradientCodec(std::string_view text);  // "none", "fp16", "bf16", …
std::string_view GradientCodecName(GradientCodec codec);

struct CodecOptions {
  GradientCodec codec = GradientCodec::kNone;
  double keep = 0.01;   // kTopK: the share that is sent, (0, 1]; one element at least
  float threshold = 1;  // kStrom: τ > 0
};
// Errors: kInvalidArgument: which option, which limit.
Status CheckCodecOptions(const CodecOptions& options);

// An encoded gradient as it travels: the fields in a message's body, the payload as its part.
//   kNone: [elements] f32; kFp16, kBf16: [elements] of 16 bits; kTopK: [entries] f32 in the order
//   of their indices, then the indices as gaps (gap_code.h); kStrom: gaps with a bit each, 1: -τ.
struct CodedGradient {
  GradientCodec codec = GradientCodec::kNone;
  std::uint8_t rice = 0;  // kTopK, kStrom
  float threshold = 0;    // kStrom
  std::int64_t elements = 0;
  std::int64_t entries = 0;  // kTopK, kStrom: how many were sent
  Buffer payload;

  template <class A>
  void serialize(A& a) {
    a(codec, rice, threshold, elements, entries);
  }
  // [n] f32, shared, not copied.
  static CodedGradient Dense(Buffer value);
};

// Owner: a learner's thread, one encoder a shard. Same gradients, same bytes.
class GradientEncoder {
 public:
  // REQUIRES: CheckCodecOptions is ok.
  GradientEncoder(const CodecOptions& options, std::int64_t elements);
  // [elements]. Errors: kDataLoss: an element is not finite; the residual is as it was. O(n).
  Result<CodedGradient> Encode(std::span<const float> gradient);
  // What was not sent, [elements]; kNone: empty. For checkpoints it may be written to.
  std::span<float> residual() { return residual_; }

 private:
  CodedGradient EncodeHalves(std::span<const float> gradient);
  CodedGradient EncodeTopK();
  CodedGradient EncodeStrom();

  CodecOptions options_;
  std::int64_t elements_;
  std::vector<float> residual_;
};

// One that was checked: lengths, order, bounds, and that every number is finite. Immutable.
class GradientPayload {
 public:
  // Allocates nothing (but where an f32 payload is not aligned). Errors: kDataLoss: damaged, or of
  // another size than `elements`. O(payload).
  static Result<GradientPayload> Parse(CodedGradient coded, std::int64_t elements);
  // sum[i] += weight * decoded[i]; [elements], in the order of the indices. A weight of 1 is exact.
  void AddTo(float weight, std::span<float> sum) const;
  // The same, and what was there is written over.
  void WriteTo(float weight, std::span<float> sum) const;
  const CodedGradient& coded() const { return coded_; }

 private:
  explicit GradientPayload(CodedGradient coded) : coded_(std::move(coded)) {}
  CodedGradient coded_;
};

}  // namespace troop
