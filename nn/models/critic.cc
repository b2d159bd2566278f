// Implements the critic Q(s, a): `front` sees the observation, `rest` its output joined with the
// action.
#include <algorithm>
#include <cstring>

#include "kernels/elementwise/cast.h"
#include "nn/arena.h"
#include "nn/models/model.h"
#include "nn/models/policy_critic.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

// Packed forms of both parts, which share one precision.
struct CriticPacked final : Packed {
  Precision precision = Precision::kF32;
  std::unique_ptr<Packed> front, rest;
};

// Memory layout for one batch. Sizes are those of f32, of which bf16 uses less.
struct Layout {
  TensorSpec features, joined, out;  // [B, F], [B, F + A], [B, outputs] f32
  Plan front, rest;
  // Cache: joined, front's, rest's. Workspace: features, joined or its gradient, the parts' own.
  std::size_t front_at() const { return AlignBytes(joined.bytes()); }
  std::size_t rest_at() const { return front_at() + AlignBytes(front.cache_bytes); }
  std::size_t cache_bytes() const { return rest_at() + rest.cache_bytes; }
  std::size_t joined_at() const { return AlignBytes(features.bytes()); }
  std::size_t inner_at() const { return joined_at() + AlignBytes(joined.bytes()); }
  std::size_t workspace_bytes() const {
    return inner_at() + std::max(front.workspace_bytes, rest.workspace_bytes);
  }
};

// A tensor at the start of `bytes`.
Tensor At(std::span<std::byte> bytes, const TensorSpec& spec) {
  return Tensor::View(nullptr, bytes.first(spec.bytes()), spec);
}

// Parameters: those of `front`, then those of `rest`.
class Critic final : public Module {
 public:
  // The gradient of the front is skipped if it has no trained parameters.
  explicit Critic(CriticParts parts) : parts_(std::move(parts)) {
    rest_offset_ = ParameterCount(*parts_.front);
    // Without bounds this is the identity. A range of 0 has no information: its input is 0.
    offset_.resize(std::size_t(parts_.actions));
    scale_.assign(std::size_t(parts_.actions), 1.0f);
    for (std::size_t k = 0; k < parts_.low.size(); ++k) {
      const double low = parts_.low[k], half = 0.5 * (double(parts_.high[k]) - low);
      offset_[k] = float(low + half);
      scale_[k] = half > 0 ? float(1 / half) : 0;
    }
    for (const ParamSpec& spec : parts_.front->params()) {
      front_trains_ = front_trains_ || spec.trained;
      params_.push_back(spec);
    }
    for (ParamSpec spec : parts_.rest->params()) {
      spec.offset += rest_offset_;
      params_.push_back(std::move(spec));
    }
  }

  std::span<const ParamSpec> params() const override { return params_; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(in));
    return Plan{.out = {layout.out},
                .cache_bytes = layout.cache_bytes(),
                .workspace_bytes = layout.workspace_bytes()};
  }

  // Resolved once, so that both parts agree on the precision of `joined`.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<CriticPacked>();
    packed->precision = AvailablePrecision(precision);
    packed->front = parts_.front->MakePacked(packed->precision);
    packed->rest = parts_.rest->MakePacked(packed->precision);
    return packed;
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<CriticPacked&>(*packed);
    parts_.front->Pack(value.first(std::size_t(rest_offset_)), mine.front.get());
    parts_.rest->Pack(value.subspan(std::size_t(rest_offset_)), mine.rest.get());
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const Layout layout = LayoutFor(in);
    // In inference `joined` is in the workspace.
    const bool keep = !cache.empty();
    // 1. Features of the observation.
    const Tensor features = At(context.workspace, layout.features);
    const Tensor flat = features.Reshape(layout.front.out[0].shape);
    parts_.front->Forward(
        FrontContext(context, layout), in.first(1), {&flat, 1},
        keep ? cache.subspan(layout.front_at(), layout.front.cache_bytes) : cache);
    const Tensor joined =
        Joined(context, layout,
               keep ? Cache(cache) : Cache(context.workspace.subspan(layout.joined_at())));
    Join(features, in[1], joined);
    // 2. Values of features and action.
    const ConstTensor x(joined);
    parts_.rest->Forward(RestContext(context, layout), {&x, 1}, out,
                         keep ? cache.subspan(layout.rest_at(), layout.rest.cache_bytes) : cache);
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
    const Layout layout = LayoutFor(in);
    // The gradient of `joined` is computed only if the features or the action need it.
    const bool to_front = front_trains_ && !context.gradient.empty();
    const Tensor daction = din.size() > 1 ? din[1] : Tensor();
    Tensor djoined;
    if (to_front || !daction.empty()) {
      djoined = At(context.workspace.subspan(layout.joined_at()), layout.joined);
    }
    // 1. Gradients of `rest`'s parameters, and of `joined` if needed.
    const ConstTensor x(Joined(context, layout, cache));
    parts_.rest->Backward(RestContext(context, layout), {&x, 1}, dout,
                          cache.subspan(layout.rest_at(), layout.rest.cache_bytes), {&djoined, 1});
    // Its last columns are the action's gradient, its first ones the features'.
    if (!daction.empty()) {
      Split(djoined, parts_.features, daction);
      const std::span<float> d = daction.as<float>();
      for (std::size_t i = 0; i < d.size(); ++i) d[i] *= scale_[i % scale_.size()];
    }
    if (!to_front) return;
    // 2. Gradients of `front`'s parameters.
    const Tensor dfeatures = At(context.workspace, layout.features);
    Split(djoined, 0, dfeatures);
    const ConstTensor dfront(dfeatures.Reshape(layout.front.out[0].shape));
    parts_.front->Backward(FrontContext(context, layout), in.first(1), {&dfront, 1},
                           cache.subspan(layout.front_at(), layout.front.cache_bytes), {});
  }

  // Only `front` sees observations.
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override {
    parts_.front->UpdateStatistics(std::move(in), value.first(std::size_t(rest_offset_)));
  }

 private:
  // Chains the plans of both parts: features, joined, outputs.
  Result<Layout> MakeLayout(std::span<const TensorSpec> in) const {
    if (in.size() != 2)
      return InvalidArgument("a critic takes observation and action, not {} inputs", in.size());
    const std::int64_t batch = in[0].shape.rank() > 0 ? in[0].shape[0] : 0;
    const TensorSpec action{DType::kF32, {batch, parts_.actions}};
    if (!(in[1] == action))
      return InvalidArgument("a critic takes actions {}, not {}", action.ToString(),
                             in[1].ToString());
    Layout layout;
    TROOP_ASSIGN_OR_RETURN(layout.front, parts_.front->MakePlan(in.first(1)));
    layout.features = {DType::kF32, {batch, parts_.features}};
    layout.joined = {DType::kF32, {batch, parts_.features + parts_.actions}};
    TROOP_ASSIGN_OR_RETURN(layout.rest, parts_.rest->MakePlan({&layout.joined, 1}));
    layout.out = layout.rest.out[0];
    return layout;
  }
  // The layout of inputs that passed MakePlan.
  Layout LayoutFor(std::span<const ConstTensor> in) const {
    const std::vector<TensorSpec> specs{in[0].spec(), in[1].spec()};
    const Result<Layout> layout = MakeLayout(specs);
    TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
    return *layout;
  }

  // The joined tensor, in the precision that `rest` computes in.
  static Tensor Joined(const StepContext& context, const Layout& layout,
                       std::span<std::byte> bytes) {
    const auto& packed = static_cast<const CriticPacked&>(*context.packed);
    return At(bytes, {ActivationDType(packed.precision), layout.joined.shape});
  }
  // joined[i] = (features[i], normalized action[i]), converted to its type.
  void Join(const Tensor& features, const ConstTensor& action, const Tensor& joined) const {
    const std::int64_t batch = joined.dim(0), seen = features.dim(1), done = action.dim(1);
    const std::size_t size = DTypeSize(joined.dtype());
    std::byte* to = joined.bytes().data();
    for (std::int64_t i = 0; i < batch; ++i, to += std::size_t(seen + done) * size) {
      ConvertScaled(
          {.n = seen, .x = features.data<float>() + i * seen, .y = to, .y_dtype = joined.dtype()});
      for (std::int64_t k = 0; k < done; ++k) {
        const float a =
            (action.data<float>()[i * done + k] - offset_[std::size_t(k)]) * scale_[std::size_t(k)];
        ConvertScaled(
            {.n = 1, .x = &a, .y = to + std::size_t(seen + k) * size, .y_dtype = joined.dtype()});
      }
    }
  }
  // Copies the columns of `joined` from `first` on.
  static void Split(const Tensor& joined, std::int64_t first, const Tensor& part) {
    const std::int64_t wide = joined.dim(1), count = part.dim(1);
    for (std::int64_t i = 0; i < part.dim(0); ++i) {
      std::copy_n(joined.data<float>() + i * wide + first, count, part.data<float>() + i * count);
    }
  }

  // Restricts a context to the parameters of `front`.
  StepContext FrontContext(const StepContext& context, const Layout& layout) const {
    StepContext part = context;
    part.value = context.value.first(std::size_t(rest_offset_));
    part.packed = static_cast<const CriticPacked&>(*context.packed).front.get();
    if (!context.gradient.empty()) {
      part.gradient = context.gradient.first(std::size_t(rest_offset_));
    }
    part.workspace = context.workspace.subspan(layout.inner_at());
    return part;
  }
  // Restricts a context to the parameters of `rest`.
  StepContext RestContext(const StepContext& context, const Layout& layout) const {
    StepContext part = context;
    part.value = context.value.subspan(std::size_t(rest_offset_));
    part.packed = static_cast<const CriticPacked&>(*context.packed).rest.get();
    if (!context.gradient.empty()) {
      part.gradient = context.gradient.subspan(std::size_t(rest_offset_));
    }
    part.workspace = context.workspace.subspan(layout.inner_at());
    return part;
  }

  const CriticParts parts_;
  std::vector<ParamSpec> params_;
  std::vector<float> offset_, scale_;  // normalization of each action dimension
  std::int64_t rest_offset_ = 0;
  bool front_trains_ = false;
};

}  // namespace

std::unique_ptr<Module> MakeCritic(CriticParts parts) {
  return std::make_unique<Critic>(std::move(parts));
}

}  // namespace troop
