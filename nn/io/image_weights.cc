// Implements the exchange of weights with torchvision: names are equal, layouts of convolutions
// differ.
#include "nn/io/image_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  if (tensor.spec() != expected) {
    return InvalidArgument("the tensor {:?} is {}, must be {}", spec.name, tensor.spec().ToString(),
                           expected.ToString());
  }
  // A negative variance would become NaN with the first image.
  const float least =
      spec.name.ends_with(".running_var") ? 0 : std::numeric_limits<float>::lowest();
  for (const float x : tensor.as<float>()) {
    if (std::isfinite(x) && x >= least) continue;
    return DataLoss("the tensor {:?} has the value {}, must be finite{}", spec.name, x,
                    least == 0 ? " and not negative" : "");
  }
  return tensor;
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
  file.metadata["format"] = "pt";  // PyTorch's loaders expect it
  for (const ParamSpec& spec : module.params()) {
    Tensor tensor(DType::kF32, TheirShape(spec));
    const float* const from = value.data() + spec.offset;
    float* const to = tensor.data<float>();
    ForEachElement(spec, [&](std::int64_t here, std::int64_t there) { to[there] = from[here]; });
    file.tensors.emplace(spec.name, std::move(tensor));
  }
  return file;
}

// The head is the last layer: its weights [classes, inputs], and its biases.
std::vector<std::string> KeepOwnHead(const Module& module, std::span<const float> value,
                                     TensorFile* file) {
  const std::span<const ParamSpec> head = module.params().last(2);
  const auto weight = file->tensors.find(head[0].name), bias = file->tensors.find(head[1].name);
  if (weight == file->tensors.end() || bias == file->tensors.end()) return {};
  const Shape there = weight->second.spec().shape, here = head[0].shape;
  // Other inputs are those of another network, which loading reports.
  if (there.rank() != 2 || there[0] == here[0] || there[1] != here[1]) return {};
  if (bias->second.spec().shape != Shape{there[0]}) return {};
  for (const ParamSpec& spec : head) {
    Tensor own(DType::kF32, spec.shape);
    std::copy_n(value.begin() + spec.offset, spec.shape.elements(), own.data<float>());
    file->tensors[spec.name] = std::move(own);
  }
  return {head[0].name, head[1].name};
}

}  // namespace troop
