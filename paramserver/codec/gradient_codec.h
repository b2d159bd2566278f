#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "paramserver/paramserver_modes.h"

namespace troop {

struct CodecOptions {
  GradientCodec codec = GradientCodec::kNone;
  double keep = 0.01;   // kTopK: fraction sent, in (0, 1]; at least one element
  float threshold = 1;  // kStrom: τ > 0
};
// Errors: kInvalidArgument, naming the option and its limit.
Status CheckCodecOptions(const CodecOptions& options);

// Wire form of an encoded gradient: the fields in a message's body, the payload as its part.
//   kNone: [elements] f32; kFp16, kBf16: [elements] of 16 bits; kTopK: [entries] f32 in the order
//   of their indices, then the indices as gaps (golomb_rice.h); kStrom: gaps with one bit each, 1:
//   -τ.
struct CodedGradient {
  GradientCodec codec = GradientCodec::kNone;
  std::uint8_t rice = 0;  // kTopK, kStrom
  float threshold = 0;    // kStrom
  std::int64_t elements = 0;
  std::int64_t entries = 0;  // kTopK, kStrom: elements sent
  Buffer payload;

  template <class A>
  void serialize(A& a) {
    a(codec, rice, threshold, elements, entries);
  }
  // Wraps [n] f32 without copying.
  static CodedGradient Dense(Buffer value);
};

// Encoder with error feedback. Owner: a learner's thread, one encoder per part. Deterministic.
class GradientEncoder {
 public:
  // REQUIRES: CheckCodecOptions is ok.
  GradientEncoder(const CodecOptions& options, std::int64_t elements);
  // Encodes a gradient [elements]. Errors: kDataLoss: an element is not finite; the residual is
  // unchanged. O(n).
  Result<CodedGradient> Encode(std::span<const float> gradient);
  // Unsent remainder, [elements]; empty for kNone. Writable so that it can be restored.
  std::span<float> residual() { return residual_; }

 private:
  CodedGradient EncodeHalfPrecision(std::span<const float> gradient);
  CodedGradient EncodeTopK();
  CodedGradient EncodeStrom();

  CodecOptions options_;
  std::int64_t elements_;
  std::vector<float> residual_;
};

// A validated encoded gradient: lengths, order, bounds and finiteness were checked. Immutable.
class GradientPayload {
 public:
  // Validates an encoded gradient. Allocates only if an f32 payload is unaligned. Errors:
  // kDataLoss: damaged, or of another size than `elements`. O(payload).
  static Result<GradientPayload> Parse(CodedGradient coded, std::int64_t elements);
  // sum[i] += weight * decoded[i]; [elements], in index order. A weight of 1 is exact.
  void AddTo(float weight, std::span<float> sum) const;
  // sum[i] = weight * decoded[i].
  void WriteTo(float weight, std::span<float> sum) const;
  const CodedGradient& coded() const { return coded_; }

 private:
  explicit GradientPayload(CodedGradient coded) : coded_(std::move(coded)) {}
  CodedGradient coded_;
};

}  // namespace troop
