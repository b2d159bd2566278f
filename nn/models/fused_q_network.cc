// Implements networks that run as one fused kernel call.
#include "nn/models/fused_q_network.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/fused_mlp/fused_network.h"

namespace troop {
namespace {

// Limits under which everything stays in the caches during an update.
constexpr std::int64_t kActivationBytesMax = 512 << 10;  // activations of one item
constexpr std::int64_t kWeightBytesMax = 1 << 20;

// A copy of the weights, transposed where that is faster.
struct SmallPacked final : public Packed {
  explicit SmallPacked(std::int64_t parameters)
      : storage(MutableBuffer::Zeros(std::size_t(parameters) * sizeof(float))) {}
  MutableBuffer storage;
};

// The cache holds all activations of the batch.
class SmallNetwork final : public Module {
 public:
  SmallNetwork(const FusedNet& net, const TensorSpec& observation,
               std::span<const ParamSpec> params)
      : net_(net), observation_(observation), params_(params.begin(), params.end()) {
    for (const ParamSpec& param : params_) {
      parameters_ = std::max(parameters_, param.offset + param.shape.elements());
    }
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Inference needs activations in the workspace as well.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    // The kernels are specialized for the observation's type and shape.
    if (in.size() != 1 || in[0].dtype != observation_.dtype ||
        in[0].shape.rank() != observation_.shape.rank() + 1 ||
        !(in[0].shape.DropFirst() == observation_.shape)) {
      return InvalidArgument("the network takes one tensor [B, {}], not {}",
                             observation_.ToString(),
                             in.empty() ? std::string("none") : in[0].ToString());
    }
    const std::int64_t batch = in[0].shape[0];
    const auto activations = std::size_t(SmallNetActivations(net_, batch));
    Plan plan;
    plan.out = {{DType::kF32, {batch, net_.actions()}}};
    plan.cache_bytes = activations * sizeof(float);
    plan.workspace_bytes =
        (activations + std::size_t(SmallNetScratch(net_, batch))) * sizeof(float);
    return plan;
  }

  std::unique_ptr<Packed> MakePacked(Precision) const override {
    return std::make_unique<SmallPacked>(parameters_);
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    auto* const to = reinterpret_cast<float*>(static_cast<SmallPacked*>(packed)->storage.data());
    kernels_.transpose(net_, value.data(), to);
  }

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const std::int64_t batch = in[0].shape()[0];
    auto* const workspace = reinterpret_cast<float*>(context.workspace.data());
    // Without Packed the kernels use the weights as they are.
    FusedNetForward call;
    call.batch = batch;
    call.value = context.value.data();
    if (context.packed != nullptr) {
      const auto* packed = static_cast<const SmallPacked*>(context.packed);
      call.transposed = reinterpret_cast<const float*>(packed->storage.data());
    }
    call.input = in[0].bytes().data();
    call.scratch = workspace;
    call.activations = cache.empty() ? workspace + SmallNetScratch(net_, batch)
                                     : reinterpret_cast<float*>(cache.data());
    call.q = out[0].data<float>();
    kernels_.forward(net_, call);
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
    if (context.gradient.empty()) return;
    FusedNetBackward call;
    call.batch = in[0].shape()[0];
    call.value = context.value.data();
    call.input = in[0].bytes().data();
    call.activations = reinterpret_cast<const float*>(cache.data());
    call.scratch = reinterpret_cast<float*>(context.workspace.data());
    call.dq = dout[0].data<float>();
    call.gradient = context.gradient.data();
    call.accumulate = context.accumulate;
    kernels_.backward(net_, call);
  }

 private:
  const FusedNet net_;
  const TensorSpec observation_;
  const std::vector<ParamSpec> params_;
  std::int64_t parameters_ = 0;
  const FusedNetKernels& kernels_ = SmallNetKernelsFor(BestCpuLevel());
};

// Reads the parameters in order and checks their shapes.
class ParamReader {
 public:
  explicit ParamReader(std::span<const ParamSpec> params) : params_(params) {}

  std::int64_t Take(const Shape& shape) {
    TROOP_CHECK(next_ < params_.size(), "{} parameters are too few", params_.size());
    const ParamSpec& param = params_[next_++];
    TROOP_CHECK(param.shape == shape, "{} is {}, not {}", param.name, param.shape.ToString(),
                shape.ToString());
    return param.offset;
  }
  FusedLinear TakeLinear(std::int64_t in, std::int64_t out, Activation activation) {
    FusedLinear l{in, out, activation, 0, 0};
    l.weight = Take({out, in});
    l.bias = Take({out});
    return l;
  }
  bool done() const { return next_ == params_.size(); }

 private:
  const std::span<const ParamSpec> params_;
  std::size_t next_ = 0;
};

// True if the kernels support this convolution.
bool IsSmallConv(const FusedNetworkSpec& spec, const LayerConfig& layer) {
  const Shape& shape = spec.observation.shape;
  return shape.rank() == 3 && (layer.filters == 16 || layer.filters == 32) && layer.stride >= 1 &&
         layer.kernel >= 1 && layer.kernel <= shape[0] && layer.kernel <= shape[1];
}

// True if the kernels support all layers.
bool IsSupported(const FusedNetworkSpec& spec) {
  const DType dtype = spec.observation.dtype;
  if (dtype != DType::kU8 && dtype != DType::kF32) return false;
  std::size_t linears = 0;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerConfig& layer = spec.layers[i];
    // Other types have their own modules.
    if (layer.type != LayerType::kLinear && layer.type != LayerType::kConv2d) return false;
    // Its convolution reads the observation in place, which has no zeros around it.
    if (layer.padding > 0) return false;
    if (layer.type == LayerType::kConv2d) {
      if (i != 0 || !IsSmallConv(spec, layer)) return false;
    } else if (layer.units < 1 || ++linears > std::size_t(FusedNet::kTrunkMax)) {
      return false;
    }
  }
  return spec.actions >= 1 && spec.observation.shape.elements() >= 1;
}

// Adds the linear head, or both streams of a dueling head.
void AddHead(const FusedNetworkSpec& spec, std::int64_t features, ParamReader* params,
             FusedNet* net) {
  net->dueling = spec.dueling;
  if (!spec.dueling) {
    net->advantage[0] = params->TakeLinear(features, spec.actions, Activation::kNone);
    return;
  }
  const std::int64_t hidden = spec.dueling_units;
  net->stream_count = hidden > 0 ? 2 : 1;
  // Value stream first, as in the parameter order of MakeDuelingHead.
  for (auto [stream, out] :
       {std::pair{net->value, std::int64_t{1}}, std::pair{net->advantage, spec.actions}}) {
    if (hidden > 0) *stream++ = params->TakeLinear(features, hidden, Activation::kRelu);
    *stream = params->TakeLinear(hidden > 0 ? hidden : features, out, Activation::kNone);
  }
}

// Translates the spec to the kernels' description, with parameter offsets.
FusedNet Describe(const FusedNetworkSpec& spec, std::span<const ParamSpec> param_specs) {
  ParamReader params(param_specs);
  FusedNet net;
  net.inputs = spec.observation.shape.elements();
  net.input_u8 = spec.observation.dtype == DType::kU8;
  net.input_scale = spec.observation_scale;
  // Features flow through conv and linear layers into the head.
  std::int64_t features = net.inputs;
  for (const LayerConfig& layer : spec.layers) {
    const Activation activation = layer.activation;
    if (layer.type == LayerType::kLinear) {
      net.trunk[net.trunk_count++] = params.TakeLinear(features, layer.units, activation);
      features = layer.units;
      continue;
    }
    const Shape& shape = spec.observation.shape;
    net.has_conv = true;
    net.conv = {shape[0],   shape[1], shape[2], layer.filters, layer.kernel, layer.stride,
                activation, 0,        0};
    net.conv.weight = params.Take({layer.filters, layer.kernel, layer.kernel, shape[2]});
    net.conv.bias = params.Take({layer.filters});
    features = net.conv.out_height() * net.conv.out_width() * layer.filters;
  }
  AddHead(spec, features, &params, &net);
  TROOP_CHECK(params.done(), "{} parameters are too many", param_specs.size());
  return net;
}

}  // namespace

// Checks support first, then the limits of weights and activations.
std::unique_ptr<Module> MakeFusedNetwork(const FusedNetworkSpec& spec,
                                         std::span<const ParamSpec> params) {
  // The general network is used instead.
  if (!IsSupported(spec)) return nullptr;
  std::int64_t weights = 0;
  for (const ParamSpec& param : params) weights += param.shape.elements();
  if (weights * std::int64_t(sizeof(float)) > kWeightBytesMax) return nullptr;
  const FusedNet net = Describe(spec, params);
  if (SmallNetActivations(net, 1) * std::int64_t(sizeof(float)) > kActivationBytesMax) {
    return nullptr;
  }
  return std::make_unique<SmallNetwork>(net, spec.observation, params);
}

}  // namespace troop
