// Implements layers without parameters: standalone activations, and the input layers that scale
// observations.
#include <algorithm>
#include <cstring>

#include "kernels/conv/nchw_to_nhwc.h"
#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// The cache holds the output, from which the derivative is computed.
class ActivationLayer final : public Module {
 public:
  explicit ActivationLayer(Activation activation) : activation_(activation) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "activation"));
    const TensorSpec out{DType::kF32, in[0].shape};
    return Plan{.out = {out},
                .cache_bytes = AlignBytes(out.bytes()),
                .workspace_bytes = 0,
                .cache_begins_with_out = true};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache cache) const override {
    const auto bytes = out[0].bytes();
    ActivationForward(activation_, in[0].elements(), in[0].bytes().data(), bytes.data(),
                      in[0].dtype());
    // The caller may place the output in the cache itself (cache_begins_with_out).
    if (!cache.empty() && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // The derivatives of relu and tanh are functions of the output.
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor> dout,
                Cache cache, std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    ActivationBackward({.activation = activation_,
                        .n = dout[0].elements(),
                        .y = cache.data(),
                        .dy = dout[0].bytes().data(),
                        .dtype = dout[0].dtype(),
                        .dz = din[0].bytes().data(),
                        .dz_dtype = din[0].dtype()});
  }

 private:
  const Activation activation_;
};

// Scales and converts observations.
class InputLayer final : public Module {
 public:
  explicit InputLayer(float scale) : scale_(scale) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "input"));
    if (in[0].dtype != DType::kU8 && in[0].dtype != DType::kF32 && in[0].dtype != DType::kBF16)
      return InvalidArgument("networks take observations of u8 or f32, not {}", in[0].ToString());
    return Plan{.out = {{DType::kF32, in[0].shape}}};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    ConvertScaled({.n = in[0].elements(),
                   .x = in[0].bytes().data(),
                   .x_dtype = in[0].dtype(),
                   .scale = scale_,
                   .y = out[0].bytes().data(),
                   .y_dtype = out[0].dtype()});
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    // Observations are data: a request for their gradient is an error of the caller.
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

 private:
  const float scale_;
};

// Writes elements [first, first + count) of an image with interleaved channels, from `stack`
// separate images. first and count: whole pixels.
template <class T>
void Interleave(const T* in, const PictureStack& p, std::int64_t first, std::int64_t count,
                T* out) {
  const std::int64_t plane = p.height * p.width, depth = p.stack * p.channels;
  // Single-channel bytes, the layout of Atari frames, have a SIMD kernel.
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    if (p.channels == 1)
      return NchwToNhwcBytes(in + first / depth, plane, depth, count / depth, out);
  }
  for (std::int64_t s = 0; s < p.stack; ++s) {
    const T* from = in + s * plane * p.channels + first / depth * p.channels;
    // Channels of image s are at [s * channels, (s + 1) * channels) of each pixel.
    T* to = out + s * p.channels;
    for (std::int64_t at = 0; at < count; at += depth) {
      for (std::int64_t c = 0; c < p.channels; ++c) to[at + c] = *from++;
    }
  }
}

// Scales images and moves their channels last, block by block: a block is interleaved in the cache,
// then converted.
class PictureInputLayer final : public Module {
 public:
  PictureInputLayer(float scale, const PictureStack& pictures)
      : scale_(scale), pictures_(pictures) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, pictures_.out().elements(), "input"));
    if (in[0].dtype != DType::kU8 && in[0].dtype != DType::kF32)
      return InvalidArgument("networks take observations of u8 or f32, not {}", in[0].ToString());
    return Plan{.out = {{DType::kF32, pictures_.out().Prepend(in[0].shape[0])}}};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    if (in[0].dtype() == DType::kU8) {
      Convert<std::uint8_t>(in[0], out[0]);
    } else {
      Convert<float>(in[0], out[0]);
    }
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

 private:
  // 16 KiB of f32 fit into the L1 cache together with the input.
  static constexpr std::int64_t kBlock = 4096;  // elements

  template <class T>
  void Convert(const ConstTensor& in, const Tensor& out) const {
    // Blocks consist of whole pixels, so that a block interleaves independently.
    const std::int64_t depth = pictures_.stack * pictures_.channels;
    const std::int64_t picture = pictures_.height * pictures_.width * depth;
    // At least one pixel, however many channels it has.
    const std::int64_t block = std::max<std::int64_t>(kBlock / depth, 1) * depth;
    std::vector<T> interleaved(std::size_t(std::min(block, picture)));
    const auto* from = reinterpret_cast<const T*>(in.bytes().data());
    std::byte* to = out.bytes().data();
    const std::size_t size = out.bytes().size() / std::size_t(out.elements());
    for (std::int64_t i = 0; i < in.dim(0); ++i, from += picture) {
      for (std::int64_t at = 0; at < picture; at += block) {
        const std::int64_t count = std::min(block, picture - at);
        Interleave(from, pictures_, at, count, interleaved.data());
        ConvertScaled({.n = count,
                       .x = interleaved.data(),
                       .x_dtype = in.dtype(),
                       .scale = scale_,
                       .y = to,
                       .y_dtype = out.dtype()});
        to += std::size_t(count) * size;
      }
    }
  }

  const float scale_;
  const PictureStack pictures_;
};

}  // namespace

std::unique_ptr<Module> MakeActivation(Activation activation) {
  TROOP_CHECK(activation != Activation::kNone, "an activation layer needs an activation");
  return std::make_unique<ActivationLayer>(activation);
}

std::unique_ptr<Module> MakeInput(float scale) { return std::make_unique<InputLayer>(scale); }

std::unique_ptr<Module> MakePictureInput(float scale, const PictureStack& pictures) {
  return std::make_unique<PictureInputLayer>(scale, pictures);
}

}  // namespace troop
