// Implements local response normalization across channels.
#include <algorithm>
#include <cmath>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// y_i = x_i s_i^-beta with s_i = k + alpha Σ x_j². The cache has s, in f32.
class LocalResponseNormLayer final : public Module {
 public:
  explicit LocalResponseNormLayer(const LocalResponseNormOptions& options) : options_(options) {}

  std::span<const ParamSpec> params() const override { return {}; }

  // The workspace has one number per channel.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "local_response_norm"));
    const Shape& shape = in[0].shape;
    if (shape.rank() < 2 || shape[shape.rank() - 1] != options_.channels) {
      return InvalidArgument("local_response_norm: takes a tensor [B, …, {}], not {}",
                             options_.channels, in[0].ToString());
    }
    const TensorSpec out{DType::kF32, shape};
    return Plan{.out = {out},
                .cache_bytes = AlignBytes(out.bytes()),
                .workspace_bytes = AlignBytes(std::size_t(options_.channels) * sizeof(float))};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const std::int64_t channels = options_.channels;
    float* scale = reinterpret_cast<float*>(context.workspace.data());
    WithElement(in[0].dtype(), [&]<class X>(X*) {
      WithElement(out[0].dtype(), [&]<class Y>(Y*) {
        const X* x = ElementsOf<X>(in[0]).data();
        Y* y = ElementsOf<Y>(out[0]).data();
        for (std::int64_t row = 0; row < in[0].elements(); row += channels) {
          // Inference overwrites the scales of one row with those of the next.
          if (!cache.empty()) scale = reinterpret_cast<float*>(cache.data()) + row;
          for (std::int64_t i = 0; i < channels; ++i) {
            float sum = 0;
            for (std::int64_t j = First(i, Before()); j < End(i, After()); ++j) {
              sum += LoadElement(x[row + j]) * LoadElement(x[row + j]);
            }
            scale[i] = options_.k + options_.alpha * sum;
            const float factor = std::pow(scale[i], -options_.beta);
            y[row + i] = StoreElement<Y>(LoadElement(x[row + i]) * factor);
          }
        }
      });
    });
  }

  // dx_i = dy_i s_i^-beta - 2 alpha beta x_i Σ dy_j x_j s_j^(-beta-1), over the outputs j whose
  // sums contain x_i.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (din.empty() || din[0].empty()) return;
    const std::int64_t channels = options_.channels;
    const float* const scales = reinterpret_cast<const float*>(cache.data());
    // 1. dy_j x_j s_j^(-beta-1) of a row; 2. its sums over neighbors.
    float* const ratio = reinterpret_cast<float*>(context.workspace.data());
    WithElement(in[0].dtype(), [&]<class X>(X*) {
      const X* x = ElementsOf<X>(in[0]).data();
      WithElement(dout[0].dtype(), [&]<class Y>(Y*) {
        const Y* dy = ElementsOf<Y>(dout[0]).data();
        WithElement(din[0].dtype(), [&]<class D>(D*) {
          D* dx = ElementsOf<D>(din[0]).data();
          for (std::int64_t row = 0; row < in[0].elements(); row += channels) {
            const float* const scale = scales + row;
            for (std::int64_t j = 0; j < channels; ++j) {
              ratio[j] = LoadElement(dy[row + j]) * LoadElement(x[row + j]) *
                         std::pow(scale[j], -options_.beta - 1);
            }
            for (std::int64_t i = 0; i < channels; ++i) {
              float sum = 0;
              // The neighborhood of an even size is not symmetric, so it is mirrored here.
              for (std::int64_t j = First(i, After()); j < End(i, Before()); ++j) sum += ratio[j];
              const float direct = LoadElement(dy[row + i]) * std::pow(scale[i], -options_.beta);
              const float indirect =
                  2 * options_.alpha * options_.beta * LoadElement(x[row + i]) * sum;
              dx[row + i] = StoreElement<D>(direct - indirect);
            }
          }
        });
      });
    });
  }

 private:
  // Channels before and after the own one. An even size has one more before it, as in PyTorch.
  std::int64_t Before() const { return options_.size / 2; }
  std::int64_t After() const { return (options_.size - 1) / 2; }
  // Channels beyond the first and the last do not exist.
  static std::int64_t First(std::int64_t i, std::int64_t before) {
    return std::max<std::int64_t>(i - before, 0);
  }
  std::int64_t End(std::int64_t i, std::int64_t after) const {
    return std::min(i + after + 1, options_.channels);
  }

  const LocalResponseNormOptions options_;
};

}  // namespace

std::unique_ptr<Module> MakeLocalResponseNorm(const LocalResponseNormOptions& options) {
  TROOP_CHECK(options.channels > 0 && options.size > 0 && options.k > 0,
              "local_response_norm of {} channels: size {}, k {}", options.channels, options.size,
              options.k);
  return std::make_unique<LocalResponseNormLayer>(options);
}

}  // namespace troop
