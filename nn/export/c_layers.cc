// Implements the translation of a policy's layers to C99: constants, and calls of the layers'
// functions.
#include "nn/export/c_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/export/c_policy_text.h"

namespace troop {
namespace {

// 9 digits identify every f32 (IEEE 754-2008, sec. 5.12.2); the point makes it a constant of C.
std::string Literal(float value) {
  std::string text = fmt::format("{:.9g}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text + "f";
}

// Translates the layers to calls. Their outputs alternate between two buffers of the state, `a` and
// `b`, whose sizes are counted.
class CTranslator {
 public:
  CTranslator(const PolicyDescription& policy, const TensorFile& file)
      : policy_(policy), file_(file) {}

  // Errors of parameters are recorded, and end the translation after the layer.
  Result<CLayers> Translate() {
    Use(CFunction::kFinite);
    for (const PolicyLayer& layer : policy_.layers) {
      Translate(layer);
      TROOP_RETURN_IF_ERROR(error_);
    }
    CLayers out{.constants = std::move(constants_),
                .calls = std::move(calls_),
                .result = Present(),
                .values = values_};
    out.sizes = sizes_;
    out.state = state_;
    // C has no empty arrays.
    for (const std::size_t i : {0, 1}) out.sizes[i] = std::max<std::int64_t>(sizes_[i], 1);
    for (int i = 0; i < kCFunctions; ++i) {
      if (used_[std::size_t(i)]) out.functions += TextOf(CFunction(i));
    }
    return out;
  }

 private:
  static std::string Name(std::size_t buffer) {
    return fmt::format("state->{}", char('a' + int(buffer)));
  }

  void Use(CFunction function) { used_[std::size_t(function)] = true; }
  // A call of a function, whose name is text after the prefix.
  template <class... Args>
  void Call(CFunction function, fmt::format_string<Args...> format, Args&&... args) {
    Use(function);
    calls_ += "  @_" + fmt::format(format, std::forward<Args>(args)...) + ";\n";
  }
  // The buffer of the next output, with room for this number of elements.
  std::string Next(std::int64_t elements) {
    place_.second = place_.begun && !place_.second;
    place_.begun = true;
    sizes_[place_.buffer()] = std::max(sizes_[place_.buffer()], elements);
    return Name(place_.buffer());
  }
  // The output of the layer before: the observation for the first layer.
  std::string Present() const { return place_.begun ? Name(place_.buffer()) : place_.input; }

  void Translate(const PolicyLayer& layer) {
    const std::int64_t in = layer.in.elements(), out = layer.out.elements();
    const std::string from = Present();  // before Next changes it
    switch (layer.kind) {
      case PolicyLayerKind::kClip:
        return Clip(layer);
      case PolicyLayerKind::kScale:
        return Call(CFunction::kScale, "scale({}, {}, {}, {})", Literal(layer.factor), in, from,
                    Next(out));
      case PolicyLayerKind::kNormalize:
        return Normalize(layer);
      case PolicyLayerKind::kOneHot:
        return Call(CFunction::kOneHot, "one_hot({}, {}, {}, {})", layer.classes, in, from,
                    Next(out));
      case PolicyLayerKind::kImages:
        return Call(CFunction::kImages, "images({}, {}, {}, {}, {}, {})", Literal(layer.factor),
                    layer.stack, layer.out[0] * layer.out[1], layer.out[2] / layer.stack, from,
                    Next(out));
      case PolicyLayerKind::kConv2d:
        return Conv2d(layer);
      case PolicyLayerKind::kLinear:
        Linear(layer.tensors, out, in, {Present(), Next(out)});
        return Activate(layer.activation, out);
      case PolicyLayerKind::kLayerNorm:
        return LayerNorm(layer);
      case PolicyLayerKind::kDueling:
        return Dueling(layer);
      case PolicyLayerKind::kCategoricalMean:
        return CategoricalMean(layer);
      case PolicyLayerKind::kQuantileMean:
        return Call(CFunction::kQuantileMean, "quantile_mean({}, {}, {}, {})", out, in / out, from,
                    Next(out));
      case PolicyLayerKind::kActionBounds:
        Use(CFunction::kTanh);
        return ActionBounds(CFunction::kActionBounds, "action_bounds");
      case PolicyLayerKind::kClippedBounds:
        return ActionBounds(CFunction::kClippedBounds, "clipped_bounds");
      case PolicyLayerKind::kPadding:
        return Pad(layer.padding, layer.in, {from, Next(out)});
      case PolicyLayerKind::kMaxPool:
        return MaxPool(layer);
      case PolicyLayerKind::kResidual:
        return Residual(layer);
      case PolicyLayerKind::kPart:
        return Part(layer);
      case PolicyLayerKind::kParts:
        return Parts(layer);
      case PolicyLayerKind::kActionMask:
        // The newest frame is the last one of the stack.
        return Call(CFunction::kHide, "hide({}, in + {}, {})", in,
                    (policy_.frame_stack - 1) * policy_.observation.shape.elements() + layer.first,
                    from);
      case PolicyLayerKind::kLstm:
        Recurrent(CFunction::kLstm, "lstm", layer);
        state_ += 2 * out;
        return;
      case PolicyLayerKind::kGru:
        Recurrent(CFunction::kGru, "gru", layer);
        state_ += out;
        return;
    }
  }

  // Writes a static constant array, which compilers put into read-only memory, in lines of at most
  // 96 columns. Returns its name.
  std::string Constant(std::string_view what, std::span<const float> values) {
    std::string name = fmt::format("@_{}_{}", what, count_++);
    constants_ += fmt::format("static const float {}[{}] = {{\n", name, values.size());
    std::string line = " ";
    for (const float value : values) {
      const std::string text = " " + Literal(value) + ",";
      if (line.size() + text.size() > 96) constants_ += std::exchange(line, " ") + "\n";
      line += text;
    }
    constants_ += line + "\n};\n";
    values_ += std::int64_t(values.size());
    return name;
  }
  // The values of a parameter; records an error if there is none of that size, or too many values.
  std::span<const float> Values(const std::string& name, std::int64_t elements) {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end() || found->second.elements() != elements) {
      error_ = InvalidArgument("the network has no parameter {} of {} values", name, elements);
      return {};
    }
    return found->second.as<float>();
  }
  std::string Parameter(const std::string& name, std::int64_t elements) {
    return Constant("w", Values(name, elements));
  }

  struct Buffers {
    std::string in, out;
  };
  void Linear(const std::string& tensors, std::int64_t out, std::int64_t in,
              const Buffers& buffers) {
    const std::string weight = Parameter(tensors + ".weight", out * in);
    const std::string bias = Parameter(tensors + ".bias", out);
    Call(CFunction::kLinear, "linear({}, {}, {}, {}, {}, {})", weight, bias, out, in, buffers.in,
         buffers.out);
  }
  // In place, on the output of the last layer.
  void Activate(Activation activation, std::int64_t n) {
    if (activation == Activation::kRelu) Call(CFunction::kRelu, "relu({}, {})", n, Present());
    if (activation != Activation::kTanh) return;
    Use(CFunction::kTanh);
    Call(CFunction::kTanhAll, "tanh_all({}, {})", n, Present());
  }

  // The layers after it read floats, which must then be the observation's own type.
  void Clip(const PolicyLayer& layer) {
    if (policy_.observation.dtype != DType::kF32) {
      error_ = InvalidArgument("format \"c\" has no clipping of {} observations; use another one",
                               DTypeName(policy_.observation.dtype));
      return;
    }
    const std::string from = Present();
    const std::int64_t n = layer.in.elements();
    Call(CFunction::kClip, "clip({}, {}, {}, {}, {})", Literal(layer.low), Literal(layer.high), n,
         from, Next(n));
  }

  // Mean and deviation as in nn/layers/normalize_layer.cc.
  void Normalize(const PolicyLayer& layer) {
    const std::int64_t n = layer.in.elements();
    const auto variance = Values(layer.tensors + ".variance", n);
    const auto count = Values(layer.tensors + ".count", 1);
    if (!error_.ok()) return;
    // The inverse deviation is computed here: the file needs no square root.
    std::vector<float> inverse;
    for (const float v : variance)
      inverse.push_back(count[0] > 0 ? float(1 / std::sqrt(double(v) + 1e-8)) : 1);
    const std::string mean = Parameter(layer.tensors + ".mean", n);
    const std::string from = Present();
    Call(CFunction::kNormalize, "normalize({}, {}, {}, {}, {})", mean, Constant("w", inverse), n,
         from, Next(n));
  }

  // A constant array of sizes. Returns its name.
  std::string Sizes(const std::vector<std::int64_t>& sizes) {
    std::string name = fmt::format("@_size_{}", count_++);
    constants_ += fmt::format("static const int32_t {}[{}] = {{{}}};\n", name, sizes.size(),
                              fmt::join(sizes, ", "));
    return name;
  }

  // A convolution without padding and activation.
  struct Kernel {
    std::int64_t size, stride;
  };
  void Convolve(const std::string& tensors, Kernel kernel, const Shape& in, const Shape& out,
                const Buffers& buffers) {
    const std::int64_t k = kernel.size, channels = in[2], filters = out[2];
    const std::string weight = Parameter(tensors + ".weight", filters * k * k * channels);
    const std::string bias = Parameter(tensors + ".bias", filters);
    const std::string size = Sizes({k, kernel.stride, in[1], channels, out[0], out[1], filters});
    Call(CFunction::kConv2d, "conv2d({}, {}, {}, {}, {})", weight, bias, size, buffers.in,
         buffers.out);
  }
  void Conv2d(const PolicyLayer& layer) {
    // The name of the input's buffer is read before Next changes it.
    const std::string from = Present();
    Convolve(layer.tensors, {layer.kernel, layer.stride}, layer.in, layer.out,
             {from, Next(layer.out.elements())});
    Activate(layer.activation, layer.out.elements());
  }

  // Zeros around an image, which must not be in the same buffer.
  void Pad(std::int64_t padding, const Shape& in, const Buffers& buffers) {
    Call(CFunction::kPad, "pad({}, {}, {}, {}, {}, {})", padding, in[0], in[1], in[2], buffers.in,
         buffers.out);
  }
  // The function cuts windows at the edges, for which it needs the sizes of both images.
  void MaxPool(const PolicyLayer& layer) {
    const Shape &in = layer.in, &out = layer.out;
    const std::string size =
        Sizes({layer.kernel, layer.stride, layer.padding, in[0], in[1], in[2], out[0], out[1]});
    const std::string from = Present();
    Call(CFunction::kMaxPool, "max_pool({}, {}, {})", size, from, Next(out.elements()));
  }

  // The padded image follows the output in its buffer.
  void Residual(const PolicyLayer& layer) {
    const Shape& in = layer.in;
    const std::int64_t n = in.elements(), padding = layer.kernel / 2;
    const Shape outer{in[0] + 2 * padding, in[1] + 2 * padding, in[2]};
    const std::string from = Present();
    const std::string to = Next(n + outer.elements());
    const std::string padded = fmt::format("{} + {}", to, n);
    // relu keeps the zeros around the image.
    Pad(padding, in, {from, padded});
    Call(CFunction::kRelu, "relu({}, {})", outer.elements(), padded);
    Convolve(layer.tensors + ".conv0", {layer.kernel, 1}, outer, in, {padded, to});
    Call(CFunction::kRelu, "relu({}, {})", n, to);
    // The second convolution reads the padded output of the first one, and overwrites that output.
    Pad(padding, in, {to, padded});
    Convolve(layer.tensors + ".conv1", {layer.kernel, 1}, outer, in, {padded, to});
    Call(CFunction::kAdd, "add({}, {}, {})", n, from, to);
    Activate(layer.activation, n);
  }

  // Frames of the whole observation follow each other.
  void Part(const PolicyLayer& layer) {
    const bool image = layer.out.rank() == 3;
    const std::int64_t pixels = image ? layer.out[0] * layer.out[1] : 1;
    const std::int64_t channels = layer.out.elements() / layer.stack / pixels;
    const std::string from = fmt::format("{} + {}", Present(), layer.first);
    Call(CFunction::kPart, "part({}, {}, {}, {}, {}, {}, {})", Literal(layer.factor), layer.stack,
         layer.in.elements() / layer.stack, pixels, channels, from, Next(layer.out.elements()));
  }
  // Branches have two buffers apart, because both the input and the output remain.
  void Parts(const PolicyLayer& layer) {
    const std::string from = Present(), to = Next(layer.out.elements());
    const Place outside = place_;
    std::int64_t first = 0;
    for (const std::vector<PolicyLayer>& branch : layer.branches) {
      place_ = {.input = from, .branch = true};
      for (const PolicyLayer& next : branch) Translate(next);
      const std::int64_t size = branch.back().out.elements();
      Call(CFunction::kCopy, "copy({}, {}, {} + {})", size, Present(), to, first);
      first += size;
    }
    place_ = outside;
  }

  // The sums of the gates follow the output in its buffer: those of the input, then those of h.
  void Recurrent(CFunction function, const char* name, const PolicyLayer& layer) {
    const std::int64_t in = layer.in.elements(), units = layer.out[0];
    const std::int64_t sums = (function == CFunction::kLstm ? 4 : 3) * units;
    const std::string from = Present(), to = Next(units + 2 * sums);
    const std::string x = fmt::format("{} + {}", to, units);
    const std::string u = fmt::format("{} + {}", to, units + sums);
    const std::string state = fmt::format("state->recurrent + {}", state_);
    const auto multiply = [&](const char* side, std::int64_t n, const Buffers& buffers) {
      const std::string weight =
          Parameter(fmt::format("{}.weight_{}", layer.tensors, side), sums * n);
      const std::string bias = Parameter(fmt::format("{}.bias_{}", layer.tensors, side), sums);
      Call(CFunction::kLinear, "linear({}, {}, {}, {}, {}, {})", weight, bias, sums, n, buffers.in,
           buffers.out);
    };
    multiply("ih", in, {from, x});
    multiply("hh", units, {state, u});
    Use(CFunction::kTanh);
    Use(CFunction::kSigmoid);
    Call(function, "{}({}, {}, {}, {}, {})", name, units, x, u, state, to);
  }

  // In place on the last output, which exists: each network begins with an input layer.
  void LayerNorm(const PolicyLayer& layer) {
    const std::int64_t n = layer.in[layer.in.rank() - 1], rows = layer.in.elements() / n;
    const std::string weight = Parameter(layer.tensors + ".weight", n);
    const std::string bias = Parameter(layer.tensors + ".bias", n);
    Use(CFunction::kInverseRoot);
    Call(CFunction::kLayerNorm, "layer_norm({}, {}, {}, {}, {})", weight, bias, rows, n, Present());
    Activate(layer.activation, layer.in.elements());
  }

  // The advantages are in the output buffer, followed by the hidden units and the value.
  void Dueling(const PolicyLayer& layer) {
    const std::int64_t in = layer.in.elements(), units = layer.units, out = layer.out[0];
    const std::string from = Present();
    const std::string to = Next(out + units + layer.numbers);
    const std::string hidden = fmt::format("{} + {}", to, out);
    const std::string value = fmt::format("{} + {}", to, out + units);
    const auto stream = [&](const std::string& name, std::int64_t outputs,
                            const std::string& result) {
      if (units > 0) {
        Linear(fmt::format("{}.{}.hidden", layer.tensors, name), units, in, {from, hidden});
        Call(CFunction::kRelu, "relu({}, {})", units, hidden);
      }
      Linear(fmt::format("{}.{}", layer.tensors, name), outputs, units > 0 ? units : in,
             {units > 0 ? hidden : from, result});
    };
    stream("value", layer.numbers, value);
    stream("advantage", out, to);
    Call(CFunction::kDueling, "dueling({}, {}, {}, {})", value, out / layer.numbers, layer.numbers,
         to);
  }

  void CategoricalMean(const PolicyLayer& layer) {
    const std::int64_t actions = layer.out[0], atoms = layer.in[0] / actions;
    const double step = (double(layer.high) - double(layer.low)) / double(atoms - 1);
    // Its function calls the exponential.
    Use(CFunction::kExp);
    const std::string from = Present();
    Call(CFunction::kCategoricalMean, "categorical_mean({}, {}, {}, {}, {}, {})",
         Literal(layer.low), Literal(float(step)), actions, atoms, from, Next(actions));
  }

  // In place: the output has the size of the input.
  void ActionBounds(CFunction function, const char* name) {
    const std::string low = Constant("w", policy_.action.low);
    Call(function, "{}({}, {}, {}, {})", name, low, Constant("w", policy_.action.high),
         policy_.action.low.size(), Present());
  }

  const PolicyDescription& policy_;
  const TensorFile& file_;
  std::string constants_, calls_;
  std::array<bool, kCFunctions> used_{};
  // The buffer with the last output, of a and b, or within a branch of c and d.
  struct Place {
    std::string input = "in";  // input of the first layer
    bool branch = false;
    bool begun = false;  // a buffer has an output
    bool second = false;
    std::size_t buffer() const { return (branch ? 2 : 0) + (second ? 1 : 0); }
  };
  Place place_;
  std::array<std::int64_t, 4> sizes_{};
  std::int64_t values_ = 0, state_ = 0;
  int count_ = 0;  // number of constants
  Status error_;
};

}  // namespace

Result<CLayers> TranslateToC(const PolicyDescription& policy, const TensorFile& file) {
  return CTranslator(policy, file).Translate();
}

}  // namespace troop
