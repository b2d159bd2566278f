// Implements a sequence of modules: parameter offsets, memory layout, and both passes.
#include <algorithm>

#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

// Memory layout for one input spec. Sizes are those of f32, of which bf16 uses the first half.
struct Layout {
  TensorSpec in;
  std::vector<Plan> plan;             // of each part
  std::vector<std::size_t> out_at;    // cache offset of each part's output, except the last's
  std::vector<std::size_t> cache_at;  // cache offset of each part's cache
  std::size_t cache_bytes = 0;
  std::size_t wide = 0;  // bytes of the largest value between parts
  std::size_t part_workspace = 0;
  std::size_t workspace_bytes() const { return 2 * wide + part_workspace; }
};

// Packed forms of the parts, and the layouts of the inputs seen so far.
struct SequentialPacked final : Packed {
  Precision precision = Precision::kF32;
  std::vector<std::unique_ptr<Packed>> parts;
  mutable std::vector<std::unique_ptr<Layout>> layouts;  // by input spec: a few batch sizes
};

// Parameters of a part are contiguous; names are prefixed with the part's.
class Sequential final : public Module {
 public:
  // first_weighted_ is the first part with trained parameters, where Backward may stop.
  explicit Sequential(std::vector<SequentialPart> parts) : parts_(std::move(parts)) {
    TROOP_CHECK(!parts_.empty(), "a sequence needs at least one part");
    first_weighted_ = parts_.size();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      base_.push_back(size_);
      std::int64_t end = size_;
      for (ParamSpec spec : parts_[i].module->params()) {
        if (spec.trained) first_weighted_ = std::min(first_weighted_, i);
        spec.name = parts_[i].name + "." + spec.name;
        spec.offset += size_;
        end = std::max(end, spec.offset + spec.shape.elements());
        params_.push_back(std::move(spec));
      }
      size_ = AlignParams(end);
      end_.push_back(size_);
    }
  }

  std::span<const ParamSpec> params() const override { return params_; }

  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(in));
    return Plan{.out = layout.plan.back().out,
                .cache_bytes = layout.cache_bytes,
                .workspace_bytes = layout.workspace_bytes()};
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<SequentialPacked>();
    packed->precision = AvailablePrecision(precision);
    for (const auto& part : parts_)
      packed->parts.push_back(part.module->MakePacked(packed->precision));
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<SequentialPacked&>(*packed);
    for (std::size_t i = 0; i < parts_.size(); ++i)
      parts_[i].module->Pack(value.subspan(std::size_t(base_[i])), mine.parts[i].get());
  }

  // Intermediate values are in the cache (training) or in two alternating workspace buffers
  // (inference). Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const auto& packed = static_cast<const SequentialPacked&>(*context.packed);
    const Layout& layout = FindLayout(packed, in[0].spec());
    CheckSizes(layout, context, cache);
    ConstTensor x = in[0];
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const bool last = i + 1 == parts_.size();
      // The last part writes directly to the caller's output.
      const Tensor y = last ? out[0]
                            : Between(layout, packed.precision, i,
                                      cache.empty() ? context.workspace.subspan(i % 2 * layout.wide)
                                                    : cache.subspan(layout.out_at[i]));
      const Cache mine = cache.empty() ? cache : PartCache(layout, i, cache);
      parts_[i].module->Forward(PartContext(context, packed, layout, i), std::span(&x, 1),
                                std::span(&y, 1), mine);
      x = y;
    }
  }

  // Gradients between parts alternate between two workspace buffers. Parts below the first trained
  // one are skipped unless din is wanted.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const auto& packed = static_cast<const SequentialPacked&>(*context.packed);
    const Layout& layout = FindLayout(packed, in[0].spec());
    CheckSizes(layout, context, cache);
    const bool wants_din = !din.empty() && !din[0].empty();
    const std::size_t stop = wants_din ? 0 : first_weighted_;  // parts below it are skipped
    // From the last part down; dx of a part is dy of the one below.
    ConstTensor dy = dout[0];
    for (std::size_t i = parts_.size(); i-- > stop;) {
      const ConstTensor x = i == 0 ? in[0]
                                   : ConstTensor(Between(layout, packed.precision, i - 1,
                                                         cache.subspan(layout.out_at[i - 1])));
      Tensor dx;
      if (i > stop) {
        dx = Between(layout, packed.precision, i - 1,
                     context.workspace.subspan(i % 2 * layout.wide));
      } else if (wants_din) {
        dx = din[0];
      }
      parts_[i].module->Backward(PartContext(context, packed, layout, i), std::span(&x, 1),
                                 std::span(&dy, 1), PartCache(layout, i, cache), std::span(&dx, 1));
      // Parameters from this part on are final.
      if (context.watch != nullptr) context.watch->GradientReady(base_[i]);
      dy = dx;
    }
  }

  // Only the first part sees the inputs.
  void UpdateStatistics(ConstTensor in, std::span<float> value) const override {
    parts_[0].module->UpdateStatistics(std::move(in), value.first(std::size_t(end_[0])));
  }

 private:
  // Chains the parts' plans. If a part's cache begins with its output, both share their memory.
  Result<Layout> MakeLayout(std::span<const TensorSpec> in) const {
    Layout layout;
    TensorSpec x = in.empty() ? TensorSpec{} : in[0];
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      auto plan = i == 0 ? parts_[i].module->MakePlan(in) : parts_[i].module->MakePlan({&x, 1});
      if (!plan.ok()) return plan.status().WithContext(parts_[i].name);
      x = plan->out.at(0);
      const bool last = i + 1 == parts_.size();
      const std::size_t out_bytes = last ? 0 : AlignBytes(x.bytes());
      layout.out_at.push_back(layout.cache_bytes);
      // Shared: the output is the beginning of the part's cache.
      if (plan->cache_begins_with_out) {
        layout.cache_at.push_back(layout.cache_bytes);
        layout.cache_bytes += std::max(out_bytes, AlignBytes(plan->cache_bytes));
      } else {
        layout.cache_at.push_back(layout.cache_bytes + out_bytes);
        layout.cache_bytes += out_bytes + AlignBytes(plan->cache_bytes);
      }
      layout.wide = std::max(layout.wide, out_bytes);
      layout.part_workspace = std::max(layout.part_workspace, AlignBytes(plan->workspace_bytes));
      layout.plan.push_back(*std::move(plan));
    }
    if (!in.empty()) layout.in = in[0];
    return layout;
  }

  // Looks up the layout of an input spec, or computes it once. Not thread safe: a Packed has one
  // owner.
  const Layout& FindLayout(const SequentialPacked& packed, const TensorSpec& in) const {
    for (const auto& layout : packed.layouts) {
      if (layout->in == in) return *layout;
    }
    auto layout = MakeLayout({&in, 1});
    TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
    packed.layouts.push_back(std::make_unique<Layout>(*std::move(layout)));
    return *packed.layouts.back();
  }

  // A cache or workspace of another plan would be overrun.
  static void CheckSizes(const Layout& layout, const StepContext& context, Cache cache) {
    TROOP_CHECK(cache.empty() || cache.size() >= layout.cache_bytes,
                "cache of {} bytes, {} planned", cache.size(), layout.cache_bytes);
    TROOP_CHECK(context.workspace.size() >= layout.workspace_bytes(),
                "workspace of {} bytes, {} planned", context.workspace.size(),
                layout.workspace_bytes());
  }

  // The value between part i and the next one, or its gradient, at `bytes`.
  static Tensor Between(const Layout& layout, Precision precision, std::size_t i,
                        std::span<std::byte> bytes) {
    const TensorSpec spec{ActivationDType(precision), layout.plan[i].out[0].shape};
    return Tensor::View(nullptr, bytes.first(spec.bytes()), spec);
  }

  static Cache PartCache(const Layout& layout, std::size_t i, Cache cache) {
    return cache.subspan(layout.cache_at[i], layout.plan[i].cache_bytes);
  }

  // Restricts a context to part i.
  StepContext PartContext(const StepContext& context, const SequentialPacked& packed,
                          const Layout& layout, std::size_t i) const {
    const auto first = std::size_t(base_[i]), count = std::size_t(end_[i] - base_[i]);
    StepContext part = context;
    part.watch = nullptr;
    part.value = context.value.subspan(first, count);
    part.packed = packed.parts[i].get();
    if (!context.gradient.empty()) part.gradient = context.gradient.subspan(first, count);
    if (!context.statistics.empty()) part.statistics = context.statistics.subspan(first, count);
    part.workspace = context.workspace.subspan(2 * layout.wide);
    return part;
  }

  const std::vector<SequentialPart> parts_;
  std::vector<ParamSpec> params_;
  std::vector<std::int64_t> base_, end_;  // of each part's parameters
  std::int64_t size_ = 0;
  std::size_t first_weighted_ = 0;
};

}  // namespace

std::unique_ptr<Module> MakeSequential(std::vector<SequentialPart> parts) {
  return std::make_unique<Sequential>(std::move(parts));
}

}  // namespace troop
