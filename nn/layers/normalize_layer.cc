// Implements the input layer that normalizes observations by running statistics.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

// kVarianceFloor keeps constant elements finite; kCountMax turns the mean into an exponential one.
constexpr double kVarianceFloor = 1e-8;
constexpr double kCountMax = 1e6;
// Beyond 10 deviations an element is an outlier, which would dominate a layer.
constexpr float kClip = 10;
constexpr std::int64_t kBlock = 1024;  // elements converted at a time

// Packed form: mean [D], 1 / deviation [D].
struct NormalizePacked final : Packed {
  std::vector<float> mean, inverse;
};

// Parameters, none of them trained: mean [D], variance [D], count [1].
class NormalizeLayer final : public Module {
 public:
  explicit NormalizeLayer(const Shape& shape)
      : shape_(shape),
        size_(shape.elements()),
        params_({{.name = "mean", .shape = {size_}, .trained = false},
                 {.name = "variance", .shape = {size_}, .trained = false},
                 {.name = "count", .shape = {1}, .trained = false}}) {
    // Each parameter begins at a cache line, as the arena requires.
    params_[1].offset = AlignParams(size_);
    params_[2].offset = 2 * AlignParams(size_);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // The shape must match exactly: statistics are per element.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    if (in.size() != 1 || (in[0].dtype != DType::kF32 && in[0].dtype != DType::kU8) ||
        in[0].shape.rank() != shape_.rank() + 1 || !(in[0].shape.DropFirst() == shape_)) {
      return InvalidArgument("input: takes one tensor [B, {}] of u8 or f32, not {}",
                             shape_.ToString(),
                             in.empty() ? std::string("none") : in[0].ToString());
    }
    return Plan{.out = {{DType::kF32, in[0].shape}}};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    auto packed = std::make_unique<NormalizePacked>();
    packed->mean.resize(std::size_t(size_));
    packed->inverse.resize(std::size_t(size_));
    return packed;
  }
  // Before any statistics, inputs pass unscaled.
  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<NormalizePacked&>(*packed);
    // With a count of 0 there is no estimate of the variance.
    const bool any = Count(value) > 0;
    std::ranges::copy(Mean(value), mine.mean.begin());
    std::ranges::transform(Variance(value), mine.inverse.begin(), [any](float variance) {
      return any ? float(1 / std::sqrt(double(variance) + kVarianceFloor)) : 1.0f;
    });
  }

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache) const override {
    const auto& packed = static_cast<const NormalizePacked&>(*context.packed);
    if (in[0].dtype() == DType::kU8) {
      Normalize<std::uint8_t>(packed, in[0], out[0]);
    } else {
      Normalize<float>(packed, in[0], out[0]);
    }
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

  // Statistics are kept for the raw values, before conversion.
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override {
    if (in.dtype() == DType::kU8) {
      Merge(in.as<std::uint8_t>(), value);
    } else {
      Merge(in.as<float>(), value);
    }
  }

 private:
  template <class T>
  std::span<T> Mean(std::span<T> value) const {
    return value.first(std::size_t(size_));
  }
  template <class T>
  std::span<T> Variance(std::span<T> value) const {
    return value.subspan(std::size_t(params_[1].offset), std::size_t(size_));
  }
  template <class T>
  T& Count(std::span<T> value) const {
    return value[std::size_t(params_[2].offset)];
  }

  // Normalizes and clips in f32, block by block, then converts to the output's type.
  template <class T>
  void Normalize(const NormalizePacked& packed, const ConstTensor& in, const Tensor& out) const {
    std::array<float, kBlock> block;
    const T* from = in.as<T>().data();
    std::byte* to = out.bytes().data();
    const std::size_t out_size = DTypeSize(out.dtype());
    for (std::int64_t b = 0; b < in.dim(0); ++b, from += size_) {
      for (std::int64_t first = 0; first < size_; first += kBlock) {
        const std::int64_t count = std::min(kBlock, size_ - first);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = std::size_t(first + i);
          const float x = (float(from[at]) - packed.mean[at]) * packed.inverse[at];
          block[std::size_t(i)] = std::clamp(x, -kClip, kClip);
        }
        ConvertScaled({.n = count, .x = block.data(), .y = to, .y_dtype = out.dtype()});
        to += std::size_t(count) * out_size;
      }
    }
  }

  // Merges the moments of a batch into the running ones (Chan et al. 1979).
  template <class T>
  void Merge(std::span<const T> in, std::span<float> value) const {
    const double rows = double(in.size()) / double(size_), before = double(Count(value));
    // An empty batch changes nothing.
    if (rows == 0) return;
    const double all = before + rows;
    for (std::size_t i = 0; i < std::size_t(size_); ++i) {
      // Two passes over the batch: the mean, then the squared deviations from it.
      double sum = 0, squares = 0;
      for (std::size_t at = i; at < in.size(); at += std::size_t(size_)) sum += double(in[at]);
      const double mean = sum / rows;
      for (std::size_t at = i; at < in.size(); at += std::size_t(size_)) {
        squares += (double(in[at]) - mean) * (double(in[at]) - mean);
      }
      const double old = double(Mean(value)[i]), apart = mean - old;
      const double variance = (double(Variance(value)[i]) * before + squares) / all +
                              apart * apart * before * rows / (all * all);
      Mean(value)[i] = float(old + apart * rows / all);
      Variance(value)[i] = float(variance);
    }
    Count(value) = float(std::min(all, kCountMax));
  }

  const Shape shape_;
  const std::int64_t size_;
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeNormalizedInput(const Shape& shape) {
  return std::make_unique<NormalizeLayer>(shape);
}

}  // namespace troop
