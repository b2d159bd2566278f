// Implements residual connections around a branch, with an optional projection.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/image_layers.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct ShortcutPacked final : Packed {
  std::unique_ptr<Packed> branch, shortcut;  // shortcut: nullptr without one
};

// y = activation(branch(x) + shortcut(x)). The cache has y, if there is an activation, then the
// caches of the branch and of the shortcut. The workspace has the gradient of the sum, the output
// or input gradient of the shortcut, and the workspace of either part.
class ShortcutLayer final : public Module {
 public:
  ShortcutLayer(std::unique_ptr<Module> branch, std::unique_ptr<Module> shortcut,
                Activation activation)
      : branch_(std::move(branch)), shortcut_(std::move(shortcut)), activation_(activation) {
    for (const ParamSpec& spec : branch_->params()) {
      params_.push_back(spec);
      branch_size_ = std::max(branch_size_, AlignParams(spec.offset + spec.shape.elements()));
    }
    // The shortcut's offsets begin after those of the branch.
    if (shortcut_ == nullptr) return;
    for (ParamSpec spec : shortcut_->params()) {
      spec.offset += branch_size_;
      params_.push_back(std::move(spec));
    }
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // The workspace is that of one part at a time. Both parts must have one output shape; the
  // identity has the input's.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "shortcut"));
    TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(in[0]));
    return Plan{.out = {{DType::kF32, layout.out}},
                .cache_bytes = layout.kept + layout.branch_cache + layout.shortcut_cache,
                .workspace_bytes = 2 * layout.wide + layout.inner,
                .cache_begins_with_out = activation_ != Activation::kNone};
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<ShortcutPacked>();
    packed->branch = branch_->MakePacked(precision);
    if (shortcut_ != nullptr) packed->shortcut = shortcut_->MakePacked(precision);
    return packed;
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<ShortcutPacked&>(*packed);
    branch_->Pack(value, mine.branch.get());
    if (shortcut_ != nullptr) {
      shortcut_->Pack(value.subspan(std::size_t(branch_size_)), mine.shortcut.get());
    }
  }

  // The branch writes the output, to which the shortcut is added.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const Layout layout = LayoutOf(in[0]);
    const bool keeps = !cache.empty();
    branch_->Forward(BranchContext(context, layout), in, out,
                     keeps ? BranchCache(layout, cache) : cache);
    if (shortcut_ == nullptr) {
      AddElements(in[0], out[0]);
    } else {
      const Tensor sum = Scratch(context, layout, out[0].spec());
      shortcut_->Forward(ShortcutContext(context, layout), in, {&sum, 1},
                         keeps ? OwnCache(layout, cache) : cache);
      AddElements(sum, out[0]);
    }
    if (activation_ == Activation::kNone) return;
    const auto bytes = out[0].bytes();
    ActivationForward(activation_, out[0].elements(), bytes.data(), bytes.data(), out[0].dtype());
    if (keeps && bytes.data() != cache.data())
      std::memcpy(cache.data(), bytes.data(), bytes.size());
  }

  // The gradient of the sum goes to both parts, whose input gradients are added.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const Layout layout = LayoutOf(in[0]);
    // 1. The gradient before the activation, which both parts get.
    ConstTensor dsum = dout[0];
    if (activation_ != Activation::kNone) {
      const Tensor before =
          Tensor::View(nullptr, context.workspace.first(dout[0].bytes().size()), dout[0].spec());
      ActivationBackward({.activation = activation_,
                          .n = dout[0].elements(),
                          .y = cache.data(),
                          .dy = dout[0].bytes().data(),
                          .dtype = dout[0].dtype(),
                          .dz = before.bytes().data(),
                          .dz_dtype = before.dtype()});
      dsum = before;
    }
    // 2. Both parts add to the parameters' gradient at their own places.
    const bool wanted = !din.empty() && !din[0].empty();
    branch_->Backward(BranchContext(context, layout), in, {&dsum, 1}, BranchCache(layout, cache),
                      din);
    if (shortcut_ == nullptr) {
      if (wanted) AddElements(dsum, din[0]);
      return;
    }
    const Tensor more = wanted ? Scratch(context, layout, din[0].spec()) : Tensor();
    shortcut_->Backward(ShortcutContext(context, layout), in, {&dsum, 1}, OwnCache(layout, cache),
                        {&more, 1});
    if (wanted) AddElements(more, din[0]);
  }

 private:
  // Sizes for one input, in bytes. `kept`: of y in the cache; `wide`: of the larger of x and y;
  // `inner`: the workspace of the parts.
  struct Layout {
    Shape out;
    std::size_t kept = 0, branch_cache = 0, shortcut_cache = 0, wide = 0, inner = 0;
  };

  Result<Layout> MakeLayout(const TensorSpec& in) const {
    TROOP_ASSIGN_OR_RETURN(const Plan branch, branch_->MakePlan({&in, 1}));
    Plan shortcut{.out = {in}};
    if (shortcut_ != nullptr) {
      TROOP_ASSIGN_OR_RETURN(shortcut, shortcut_->MakePlan({&in, 1}));
    }
    Layout layout{.out = branch.out[0].shape};
    if (shortcut.out[0].shape != layout.out) {
      return InvalidArgument("shortcut: the branch has the output {}, the shortcut {}",
                             branch.out[0].ToString(), shortcut.out[0].ToString());
    }
    const std::size_t y = AlignBytes(branch.out[0].bytes());
    layout.kept = activation_ == Activation::kNone ? 0 : y;
    layout.branch_cache = AlignBytes(branch.cache_bytes);
    layout.shortcut_cache = AlignBytes(shortcut.cache_bytes);
    layout.wide = std::max(y, AlignBytes(std::size_t(in.shape.elements()) * sizeof(float)));
    layout.inner =
        std::max(AlignBytes(branch.workspace_bytes), AlignBytes(shortcut.workspace_bytes));
    return layout;
  }
  // For an input that MakePlan accepted.
  Layout LayoutOf(const ConstTensor& in) const {
    auto layout = MakeLayout(in.spec());
    TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
    return *std::move(layout);
  }

  // The second buffer of the workspace.
  static Tensor Scratch(const StepContext& context, const Layout& layout, const TensorSpec& spec) {
    return Tensor::View(nullptr, context.workspace.subspan(layout.wide, spec.bytes()), spec);
  }
  // The branch's part of the cache, and the shortcut's after it.
  static Cache BranchCache(const Layout& layout, Cache cache) {
    return cache.subspan(layout.kept, layout.branch_cache);
  }
  static Cache OwnCache(const Layout& layout, Cache cache) {
    return cache.subspan(layout.kept + layout.branch_cache, layout.shortcut_cache);
  }

  // The branch's parameters come first, so its buffers begin where the layer's do.
  StepContext BranchContext(StepContext context, const Layout& layout) const {
    context.packed = static_cast<const ShortcutPacked&>(*context.packed).branch.get();
    context.workspace = context.workspace.subspan(2 * layout.wide);
    return context;
  }
  // The shortcut's parameters follow those of the branch in all buffers.
  StepContext ShortcutContext(StepContext context, const Layout& layout) const {
    const auto first = std::size_t(branch_size_);
    context.packed = static_cast<const ShortcutPacked&>(*context.packed).shortcut.get();
    context.workspace = context.workspace.subspan(2 * layout.wide);
    context.value = context.value.subspan(first);
    if (!context.gradient.empty()) context.gradient = context.gradient.subspan(first);
    if (!context.statistics.empty()) context.statistics = context.statistics.subspan(first);
    return context;
  }

  const std::unique_ptr<Module> branch_, shortcut_;
  const Activation activation_;
  std::vector<ParamSpec> params_;
  std::int64_t branch_size_ = 0;
};

}  // namespace

std::unique_ptr<Module> MakeShortcut(std::unique_ptr<Module> branch,
                                     std::unique_ptr<Module> shortcut, Activation activation) {
  return std::make_unique<ShortcutLayer>(std::move(branch), std::move(shortcut), activation);
}

}  // namespace troop
