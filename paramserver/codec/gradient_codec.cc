// Implements encoding, validation and decoding of gradients. Validation is complete, so that
// decoding needs no checks.
#include "paramserver/codec/gradient_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/check.h"
#include "core/tensor/tensor.h"
#include "kernels/elementwise/half_precision.h"
#include "kernels/elementwise/is_finite.h"
#include "kernels/optim/optimizer_step.h"
#include "net/wire/shared_memory.h"
#include "paramserver/codec/golomb_rice.h"

namespace troop {
namespace {

// The bits of |x|, which order like the magnitudes.
std::uint32_t MagnitudeBits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

HalfFormat FormatOf(GradientCodec codec) {
  return codec == GradientCodec::kFp16 ? HalfFormat::kF16 : HalfFormat::kBf16;
}
const HalfKernels& Halves() { return HalfKernelsFor(BestCpuLevel()); }

// Reads element i at any alignment.
template <class T>
T ReadAt(const std::byte* base, std::size_t i) {
  T value;
  std::memcpy(&value, base + i * sizeof value, sizeof value);
  return value;
}

// Copies the payload if it is not aligned for T.
template <class T>
void Align(Buffer* payload) {
  const auto address = reinterpret_cast<std::uintptr_t>(payload->data());
  if (address % alignof(T) != 0) *payload = Buffer::Copy(payload->bytes());
}

// Size, alignment and finiteness; the message names the first bad element.
Status CheckDense(CodedGradient* coded) {
  if (coded->payload.size() != std::size_t(coded->elements) * sizeof(float)) {
    return DataLoss("{} bytes of payload for {} f32 elements", coded->payload.size(),
                    coded->elements);
  }
  Align<float>(&coded->payload);
  const auto value = coded->payload.as<float>();
  const std::size_t bad = FirstNonFinite(value);
  return bad == value.size() ? Status::Ok() : DataLoss("element {} is {}", bad, value[bad]);
}

// Size, alignment and finiteness of 16-bit values.
Status CheckHalves(CodedGradient* coded) {
  if (coded->payload.size() != std::size_t(coded->elements) * sizeof(std::uint16_t)) {
    return DataLoss("{} bytes of payload for {} 16-bit elements", coded->payload.size(),
                    coded->elements);
  }
  Align<std::uint16_t>(&coded->payload);
  const std::int64_t bad = Halves().first_unfinite(FormatOf(coded->codec), coded->elements,
                                                   coded->payload.as<std::uint16_t>().data());
  return bad == coded->elements ? Status::Ok() : DataLoss("element {} is not finite", bad);
}

// The index gaps, which follow the values of kTopK.
std::span<const std::byte> GapBytes(const CodedGradient& coded) {
  const bool values = coded.codec == GradientCodec::kTopK;
  return coded.payload.bytes().subspan(values ? std::size_t(coded.entries) * sizeof(float) : 0);
}

// Decodes all gaps once: indices must increase and stay below the number of elements.
Status CheckSparse(const CodedGradient& coded) {
  if (coded.rice > kRiceMax) return DataLoss("invalid Rice parameter {}", coded.rice);
  const bool values = coded.codec == GradientCodec::kTopK;
  // An entry takes at least one bit, so the payload bounds the entry count.
  if (coded.entries < 0 || coded.entries > coded.elements ||
      std::size_t(coded.entries) > coded.payload.size() * 8 ||
      (values && std::size_t(coded.entries) > coded.payload.size() / sizeof(float))) {
    return DataLoss("{} entries of {} elements do not fit into {} bytes", coded.entries,
                    coded.elements, coded.payload.size());
  }
  if (!values && !(coded.threshold > 0 && std::isfinite(coded.threshold))) {
    return DataLoss("threshold {}, must be finite and above 0", coded.threshold);
  }
  // Untrusted entries: each needs an index, kTopK also a finite value.
  GolombRiceReader reader(GapBytes(coded), coded.rice, coded.elements);
  std::uint32_t sign = 0;
  for (std::int64_t i = 0, index = 0; i < coded.entries; ++i) {
    if (!reader.Next(&index, &sign, values ? 0 : 1)) return DataLoss("entry {} has no index", i);
    if (values && !std::isfinite(ReadAt<float>(coded.payload.data(), std::size_t(i)))) {
      return DataLoss("element {} is not finite", index);
    }
  }
  return reader.AtEnd() ? Status::Ok() : DataLoss("bytes follow the last entry");
}

// Rejects fields that the codec does not use, then checks the payload.
Status CheckCoded(CodedGradient* coded) {
  const bool sparse = coded->codec == GradientCodec::kTopK || coded->codec == GradientCodec::kStrom;
  if (!sparse && (coded->rice != 0 || coded->entries != 0))
    return DataLoss("a dense codec with entries");
  if (coded->codec != GradientCodec::kStrom && coded->threshold != 0) {
    return DataLoss("threshold {} of a codec without one", coded->threshold);
  }
  switch (coded->codec) {
    case GradientCodec::kNone:
      return CheckDense(coded);
    case GradientCodec::kFp16:
    case GradientCodec::kBf16:
      return CheckHalves(coded);
    case GradientCodec::kTopK:
    case GradientCodec::kStrom:
      return CheckSparse(*coded);
  }
  return DataLoss("codec {} is unknown", int(coded->codec));
}

}  // namespace

Status CheckCodecOptions(const CodecOptions& options) {
  if (options.codec == GradientCodec::kTopK && !(options.keep > 0 && options.keep <= 1)) {
    return InvalidArgument(
        "gradient codec: the fraction to keep is {}, must be above 0 and at most 1", options.keep);
  }
  if (options.codec == GradientCodec::kStrom &&
      !(options.threshold > 0 && std::isfinite(options.threshold))) {
    return InvalidArgument("gradient codec: the threshold is {}, must be finite and above 0",
                           options.threshold);
  }
  return Status::Ok();
}

// Shares the buffer.
CodedGradient CodedGradient::Dense(Buffer value) {
  CodedGradient coded;
  coded.elements = std::int64_t(value.size() / sizeof(float));
  coded.payload = std::move(value);
  return coded;
}

GradientEncoder::GradientEncoder(const CodecOptions& options, std::int64_t elements)
    : options_(options),
      elements_(elements),
      residual_(options.codec == GradientCodec::kNone ? 0 : std::size_t(elements)) {
  const Status status = CheckCodecOptions(options);
  TROOP_CHECK(status.ok() && elements >= 0, "{}, {} elements", status.ToString(), elements);
}

// Finiteness is checked before the residual changes; for a dense gradient the copy checks it.
Result<CodedGradient> GradientEncoder::Encode(std::span<const float> gradient) {
  TROOP_CHECK(gradient.size() == std::size_t(elements_), "{}, not {}", gradient.size(), elements_);
  // kNone has no residual, so copying and checking are one pass.
  const bool dense = options_.codec == GradientCodec::kNone;
  MutableBuffer copy = MakeSharedBuffer(dense ? gradient.size_bytes() : 0);
  const std::size_t bad = dense ? CopyFinite(gradient, copy.as<float>()) : FirstNonFinite(gradient);
  if (bad != gradient.size()) {
    return DataLoss("element {} of a gradient is {}, must be finite; nothing was sent", bad,
                    gradient[bad]);
  }
  if (dense) return CodedGradient::Dense(std::move(copy).Freeze());
  const bool sparse =
      options_.codec == GradientCodec::kTopK || options_.codec == GradientCodec::kStrom;
  if (!sparse) return EncodeHalfPrecision(gradient);
  // Sparse codecs choose from residual + gradient.
  OptimizerKernelsFor(BestCpuLevel()).add_scaled(elements_, 1, gradient.data(), residual_.data());
  return options_.codec == GradientCodec::kTopK ? EncodeTopK() : EncodeStrom();
}

// The kernel adds the residual, rounds to 16 bits, and stores the rounding error as new residual.
CodedGradient GradientEncoder::EncodeHalfPrecision(std::span<const float> gradient) {
  MutableBuffer payload = MakeSharedBuffer(residual_.size() * sizeof(std::uint16_t));
  Halves().encode(FormatOf(options_.codec), elements_, gradient.data(), residual_.data(),
                  payload.as<std::uint16_t>().data());
  CodedGradient coded;
  coded.codec = options_.codec;
  coded.elements = elements_;
  coded.payload = std::move(payload).Freeze();
  return coded;
}

// Sends the k elements of largest magnitude. Among equal ones the first are taken; zeros are never
// sent.
CodedGradient GradientEncoder::EncodeTopK() {
  CodedGradient coded;
  coded.codec = GradientCodec::kTopK;
  coded.elements = elements_;
  // 1. Find the magnitude of the k-th largest element.
  std::vector<std::uint32_t> size(residual_.size());
  std::ranges::transform(residual_, size.begin(), MagnitudeBits);
  const auto wanted = std::size_t(std::ceil(options_.keep * double(elements_)));
  const std::size_t k = std::min(std::max<std::size_t>(wanted, 1), size.size());
  std::uint32_t limit = 0;
  std::size_t ties = 0;  // elements of magnitude `limit` to send
  if (k > 0) {
    std::ranges::nth_element(size, size.begin() + std::ptrdiff_t(k) - 1, std::greater<>());
    limit = size[k - 1];
    ties = std::size_t(std::count(size.begin(), size.begin() + std::ptrdiff_t(k), limit));
  }
  // 2. Move the selected elements from the residual to the message. The gaps are coded for the
  // number of these, which is far below k if most elements are zero.
  std::vector<float> value;
  const std::int64_t nonzero = std::ranges::count_if(residual_, [](float r) { return r != 0; });
  const int rice = RiceParameter(std::min(std::int64_t(k), nonzero), elements_);
  GolombRiceWriter gaps(rice);
  for (std::size_t i = 0; i < residual_.size(); ++i) {
    const std::uint32_t magnitude = MagnitudeBits(residual_[i]);
    if (magnitude < limit || magnitude == 0) continue;
    if (magnitude == limit) {
      if (ties == 0) continue;
      --ties;
    }
    value.push_back(residual_[i]);
    gaps.Add(std::int64_t(i));
    residual_[i] = 0;
  }
  // 3. Concatenate values and gaps.
  coded.rice = std::uint8_t(rice);
  coded.entries = std::int64_t(value.size());
  const std::vector<std::byte> bytes = std::move(gaps).Take();
  MutableBuffer payload(value.size() * sizeof(float) + bytes.size());
  std::ranges::copy(std::as_bytes(std::span(value)), payload.data());
  std::ranges::copy(bytes, payload.data() + value.size() * sizeof(float));
  coded.payload = std::move(payload).Freeze();
  return coded;
}

// Sends ±τ for each residual of at least that magnitude and subtracts it (Strom 2015). One pass
// counts the entries, which determine the Rice parameter; the second encodes them.
CodedGradient GradientEncoder::EncodeStrom() {
  const float threshold = options_.threshold;
  CodedGradient coded;
  coded.codec = GradientCodec::kStrom;
  coded.elements = elements_;
  coded.threshold = threshold;
  coded.entries =
      std::ranges::count_if(residual_, [&](float r) { return std::abs(r) >= threshold; });
  coded.rice = std::uint8_t(RiceParameter(coded.entries, elements_));
  GolombRiceWriter gaps(coded.rice);
  for (std::size_t i = 0; i < residual_.size(); ++i) {
    if (!(std::abs(residual_[i]) >= threshold)) continue;
    const bool negative = residual_[i] < 0;
    residual_[i] -= negative ? -threshold : threshold;
    gaps.Add(std::int64_t(i), negative ? 1 : 0, 1);
  }
  const std::vector<std::byte> bytes = std::move(gaps).Take();
  coded.payload = Buffer::Copy(bytes);
  return coded;
}

// The only constructor of a payload, hence always validated.
Result<GradientPayload> GradientPayload::Parse(CodedGradient coded, std::int64_t elements) {
  if (coded.elements != elements) {
    return DataLoss("a gradient of {} elements, must have {}", coded.elements, elements);
  }
  TROOP_RETURN_IF_ERROR(CheckCoded(&coded).WithContext("damaged gradient"));
  return GradientPayload(std::move(coded));
}

// Dense copies and 16-bit codecs overwrite directly; sparse ones clear first.
void GradientPayload::WriteTo(float weight, std::span<float> sum) const {
  TROOP_CHECK(sum.size() == std::size_t(coded_.elements), "{}, not {}", sum.size(),
              coded_.elements);
  if (coded_.codec == GradientCodec::kNone && weight == 1) {
    std::ranges::copy(coded_.payload.as<float>(), sum.begin());
  } else if (coded_.codec == GradientCodec::kFp16 || coded_.codec == GradientCodec::kBf16) {
    Halves().write(FormatOf(coded_.codec), coded_.elements, weight,
                   coded_.payload.as<std::uint16_t>().data(), sum.data());
  } else {
    std::ranges::fill(sum, 0.0f);
    AddTo(weight, sum);
  }
}

// Parse has validated the gaps: decoding cannot fail.
void GradientPayload::AddTo(float weight, std::span<float> sum) const {
  TROOP_CHECK(sum.size() == std::size_t(coded_.elements), "{}, not {}", sum.size(),
              coded_.elements);
  const std::byte* data = coded_.payload.data();
  switch (coded_.codec) {
    case GradientCodec::kNone:
      OptimizerKernelsFor(BestCpuLevel())
          .add_scaled(coded_.elements, weight, coded_.payload.as<float>().data(), sum.data());
      return;
    case GradientCodec::kFp16:
    case GradientCodec::kBf16:
      Halves().add(FormatOf(coded_.codec), coded_.elements, weight,
                   coded_.payload.as<std::uint16_t>().data(), sum.data());
      return;
    case GradientCodec::kTopK:
    case GradientCodec::kStrom:
      break;
  }
  const bool values = coded_.codec == GradientCodec::kTopK;
  GolombRiceReader reader(GapBytes(coded_), coded_.rice, coded_.elements);
  std::uint32_t sign = 0;
  for (std::int64_t i = 0, index = 0; i < coded_.entries; ++i) {
    TROOP_CHECK(reader.Next(&index, &sign, values ? 0 : 1), "the gaps were validated");
    const float value = values      ? ReadAt<float>(data, std::size_t(i))
                        : sign == 1 ? -coded_.threshold
                                    : coded_.threshold;
    sum[std::size_t(index)] += weight * value;
  }
}

}  // namespace troop
