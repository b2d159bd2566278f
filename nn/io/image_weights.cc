// Implements the exchange of weights with torchvision: names are equal, layouts of convolutions
// differ.
#include "nn/io/image_weights.h"

#include <algorithm>
#include <string>
#include <vector>

namespace troop {
namespace {

constexpr std::string_view kIgnored = ".num_batches_tracked";

// The shape of a parameter in PyTorch: channels first.
Shape TheirShape(const ParamSpec& spec) {
  const Shape& s = spec.shape;
  return s.rank() == 4 ? Shape{s[0], s[3], s[1], s[2]} : s;
}

// Calls f(index here, index there) for every element.
template <class F>
void ForEachElement(const ParamSpec& spec, F f) {
  const Shape& s = spec.shape;
  if (s.rank() != 4) {
    for (std::int64_t i = 0; i < s.elements(); ++i) f(i, i);
    return;
  }
  // o: filter; p: pixel of the kernel, whose order is the same in both; c: channel.
  const std::int64_t pixels = s[1] * s[2], channels = s[3];
  for (std::int64_t o = 0; o < s[0]; ++o) {
    for (std::int64_t p = 0; p < pixels; ++p) {
      for (std::int64_t c = 0; c < channels; ++c) {
        f((o * pixels + p) * channels + c, (o * channels + c) * pixels + p);
      }
    }
  }
}

// Looks up the tensor of a parameter and checks it.
Result<ConstTensor> Find(const TensorFile& file, const ParamSpec& spec) {
  const auto found = file.tensors.find(spec.name);
  if (found == file.tensors.end()) {
    return InvalidArgument("the weights lack the tensor {:?}", spec.name);
  }
  const ConstTensor& tensor = found->second;
  const TensorSpec expected{DType::kF32, TheirShape(spec)};
  if (tensor.spec() == expected) return tensor;
  return InvalidArgument("the tensor {:?} is {}, must be {}", spec.name, tensor.spec().ToString(),
                         expected.ToString());
}

// A tensor that no parameter has belongs to another model.
Status CheckKnown(const TensorFile& file, const Module& module) {
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(kIgnored)) continue;
    const auto known = [&](const ParamSpec& spec) { return spec.name == name; };
    if (!std::ranges::any_of(module.params(), known)) {
      return InvalidArgument("the weights have the tensor {:?}, which the model lacks", name);
    }
  }
  return Status::Ok();
}

}  // namespace

// All tensors are checked before the first is copied.
Status LoadImageWeights(const TensorFile& file, const Module& module, std::span<float> value) {
  TROOP_RETURN_IF_ERROR(CheckKnown(file, module));
  std::vector<ConstTensor> tensors;
  for (const ParamSpec& spec : module.params()) {
    TROOP_ASSIGN_OR_RETURN(ConstTensor tensor, Find(file, spec));
    tensors.push_back(std::move(tensor));
  }
  // Padding between parameters keeps its zeros.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ParamSpec& spec = module.params()[i];
    const float* const from = tensors[i].as<float>().data();
    float* const to = value.data() + spec.offset;
    ForEachElement(spec, [&](std::int64_t here, std::int64_t there) { to[here] = from[there]; });
  }
  return Status::Ok();
}

TensorFile SaveImageWeights(const Module& module, std::span<const float> value) {
  TensorFile file;
  for (const ParamSpec& spec : module.params()) {
    Tensor tensor(DType::kF32, TheirShape(spec));
    const float* const from = value.data() + spec.offset;
    float* const to = tensor.data<float>();
    ForEachElement(spec, [&](std::int64_t here, std::int64_t there) { to[there] = from[here]; });
    file.tensors.emplace(spec.name, std::move(tensor));
  }
  return file;
}

}  // namespace troop
