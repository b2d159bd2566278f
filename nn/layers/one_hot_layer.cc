// Implements the one-hot encoding of integer observations.
#include <cmath>
#include <cstring>

#include "nn/layers/layers.h"

namespace troop {
namespace {

struct NothingPacked final : Packed {};

// Without parameters and without a data gradient.
class OneHotLayer final : public Module {
 public:
  explicit OneHotLayer(std::int64_t classes) : classes_(classes) {}

  std::span<const ParamSpec> params() const override { return {}; }

  // The output is flattened: [B, elements * classes].
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    if (in.size() != 1 || in[0].shape.rank() < 1 || in[0].dtype == DType::kBF16) {
      return InvalidArgument("input: takes one tensor [B, …] of u8, i32 or f32");
    }
    const std::int64_t batch = in[0].shape[0];
    const std::int64_t numbers = batch == 0 ? 0 : in[0].shape.elements() / batch;
    return Plan{.out = {{DType::kF32, {batch, numbers * classes_}}}};
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<NothingPacked>();
  }
  void Pack(std::span<const float>, Packed*) const override {}

  // Dispatches by the type of the observations.
  void Forward(const StepContext&, std::span<const ConstTensor> in, std::span<const Tensor> out,
               Cache) const override {
    switch (in[0].dtype()) {
      case DType::kU8:
        return Mark(in[0].as<std::uint8_t>(), out[0]);
      case DType::kI32:
        return Mark(in[0].as<std::int32_t>(), out[0]);
      default:
        return Mark(in[0].as<float>(), out[0]);
    }
  }

  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
  }

 private:
  // Writes a 1 for each valid class; other values, NaN included, stay all zeros.
  template <class T>
  void Mark(std::span<const T> numbers, const Tensor& out) const {
    std::memset(out.bytes().data(), 0, out.bytes().size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto number = double(numbers[i]);
      if (!(number >= 0 && number < double(classes_)) || number != std::floor(number)) continue;
      const std::size_t at = i * std::size_t(classes_) + std::size_t(number);
      if (out.dtype() == DType::kBF16) {
        out.as<BF16>()[at] = BF16{0x3f80};  // 1.0
      } else {
        out.as<float>()[at] = 1;
      }
    }
  }

  const std::int64_t classes_;
};

}  // namespace

std::unique_ptr<Module> MakeOneHotInput(std::int64_t classes) {
  return std::make_unique<OneHotLayer>(classes);
}

}  // namespace troop
