// Implements dropout of the elements of a row, with masks that the row's key determines.
#include "kernels/transformer/dropout.h"

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// The mask is generated again in Backward.
class DropoutLayer final : public Module {
 public:
  explicit DropoutLayer(const DropoutOptions& options) : options_(options) {}

  std::span<const ParamSpec> params() const override { return {}; }

  // The workspace holds the factors of a row.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.elements, "dropout"));
    return Plan{.out = {{DType::kF32, in[0].shape}},
                .workspace_bytes = AlignBytes(std::size_t(options_.elements) * sizeof(float))};
  }
  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // Both passes multiply by the same factors.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache) const override {
    Apply(context, in[0], out[0]);
  }
  void Backward(const StepContext& context, std::span<const ConstTensor>,
                std::span<const ConstTensor> dout, Cache,
                std::span<const Tensor> din) const override {
    if (!din.empty() && !din[0].empty()) Apply(context, dout[0], din[0]);
  }

 private:
  // to = factor ⊙ from, row by row; without keys every factor is 1.
  void Apply(const StepContext& context, const ConstTensor& from, const Tensor& to) const {
    const auto n = std::size_t(options_.elements);
    const std::span<float> factor(reinterpret_cast<float*>(context.workspace.data()), n);
    const bool drops = !context.dropout.empty() && options_.rate > 0;
    if (!drops) std::ranges::fill(factor, 1.0f);
    WithElement(from.dtype(), [&]<class X>(X*) {
      WithElement(to.dtype(), [&]<class Y>(Y*) {
        const std::span<const X> x = ElementsOf<X>(from);
        const std::span<Y> y = ElementsOf<Y>(to);
        for (std::size_t b = 0; b < std::size_t(from.dim(0)); ++b) {
          // Elements of a row are numbered from 0, whatever its place in the batch.
          if (drops) {
            DropoutFactors({context.dropout[b], options_.site}, options_.rate, 0, options_.elements,
                           factor.data());
          }
          for (std::size_t i = 0; i < n; ++i)
            y[b * n + i] = StoreElement<Y>(factor[i] * LoadElement(x[b * n + i]));
        }
      });
    });
  }

  const DropoutOptions options_;
};

}  // namespace

std::unique_ptr<Module> MakeDropout(const DropoutOptions& options) {
  TROOP_CHECK(options.elements > 0 && options.rate >= 0 && options.rate < 1,
              "dropout of {} elements at {}", options.elements, options.rate);
  return std::make_unique<DropoutLayer>(options);
}

}  // namespace troop
