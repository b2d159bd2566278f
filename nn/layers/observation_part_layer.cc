// Implements the layer that selects one part of structured observations.
#include <algorithm>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// Frames of a stack lie one after another in the input; in the output their channels alternate.
class ObservationPartLayer final : public Module {
 public:
  explicit ObservationPartLayer(const ObservationPartOptions& options) : options_(options) {}

  std::span<const ParamSpec> params() const override { return {}; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.stack * options_.width, "observation part"));
    return Plan{.out = {{DType::kF32, options_.out().Prepend(in[0].shape[0])}}};
  }

  // Nothing to pack: there are no parameters.
  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // Input and output have the precision of the network.
  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    TROOP_CHECK(in[0].dtype() == out[0].dtype(), "observation part: {} -> {}",
                DTypeName(in[0].dtype()), DTypeName(out[0].dtype()));
    // Parts are selected in the precision of the network.
    WithElement(in[0].dtype(),
                [&]<class T>(T*) { Select(ElementsOf<T>(in[0]).data(), ElementsOf<T>(out[0])); });
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

 private:
  template <class T>
  void Select(const T* in, std::span<T> out) const {
    const std::int64_t size = options_.shape.elements();
    const bool image = options_.shape.rank() == 3;
    // A pixel's channels stay together; a vector counts as one pixel.
    const std::int64_t channels = image ? options_.shape[2] : size;
    const std::int64_t row = options_.stack * size;
    for (std::int64_t at = 0; at < std::int64_t(out.size()); at += row) {
      for (std::int64_t s = 0; s < options_.stack; ++s, in += options_.width) {
        const T* from = in + options_.first;
        for (std::int64_t pixel = 0; pixel < size; pixel += channels) {
          T* const to = &out[std::size_t(at + pixel * options_.stack + s * channels)];
          for (std::int64_t c = 0; c < channels; ++c)
            to[c] = StoreElement<T>(options_.scale * LoadElement(*from++));
        }
      }
    }
  }

  const ObservationPartOptions options_;
};

}  // namespace

// Frames of an image become channels, as in MakePictureInput.
Shape ObservationPartOptions::out() const {
  if (shape.rank() == 3) return {shape[0], shape[1], stack * shape[2]};
  return {stack * shape.elements()};
}

std::unique_ptr<Module> MakeObservationPart(const ObservationPartOptions& options) {
  TROOP_CHECK(options.stack > 0 && options.first >= 0 &&
                  options.first + options.shape.elements() <= options.width,
              "observation part [{}, {} + {}) of {}", options.first, options.first,
              options.shape.elements(), options.width);
  return std::make_unique<ObservationPartLayer>(options);
}

}  // namespace troop
