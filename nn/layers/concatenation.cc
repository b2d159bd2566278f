// Implements the concatenation of modules that share one input.
#include <algorithm>
#include <utility>

#include "nn/arena.h"
#include "nn/layers/layers.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

struct ConcatenationPacked final : Packed {
  std::vector<std::unique_ptr<Packed>> parts;
};

// Each part writes into the workspace, from which the rows are put together.
class Concatenation final : public Module {
 public:
  // The parameters of the parts follow each other, each part at the beginning of a cache line.
  explicit Concatenation(std::vector<SequentialPart> parts) : parts_(std::move(parts)) {
    TROOP_CHECK(!parts_.empty(), "a concatenation needs at least one part");
    for (const SequentialPart& part : parts_) {
      base_.push_back(size_);
      std::int64_t end = size_;
      for (ParamSpec spec : part.module->params()) {
        spec.name = part.name + "." + spec.name;
        spec.offset += size_;
        end = std::max(end, spec.offset + spec.shape.elements());
        params_.push_back(std::move(spec));
      }
      size_ = AlignParams(end);
      end_.push_back(size_);
    }
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // The output's features are those of the parts, one part after another.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const Layout layout, MakeLayout(in));
    return Plan{.out = {{DType::kF32, {in[0].shape[0], layout.features}}},
                .cache_bytes = layout.cache_bytes,
                .workspace_bytes = layout.wide + layout.part_workspace};
  }

  // The concatenation itself has no packed form.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<ConcatenationPacked>();
    for (const SequentialPart& part : parts_)
      packed->parts.push_back(part.module->MakePacked(precision));
    return packed;
  }
  void Pack(std::span<const float> value, Packed* packed) const override {
    const auto& mine = static_cast<ConcatenationPacked&>(*packed);
    for (std::size_t i = 0; i < parts_.size(); ++i)
      parts_[i].module->Pack(value.subspan(std::size_t(base_[i])), mine.parts[i].get());
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const Layout layout = LayoutFor(in[0]);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Tensor part = PartOutput(layout, i, out[0].dtype(), context);
      parts_[i].module->Forward(PartContext(context, layout, i), in, {&part, 1},
                                cache.empty() ? cache : PartCache(layout, i, cache));
      // The next part overwrites the workspace, so the rows are copied at once.
      const Columns columns{layout, i, column, out[0].dtype()};
      for (std::size_t b = 0; b < columns.rows(part); ++b) {
        std::ranges::copy(columns.OfPart(part.bytes(), b),
                          columns.OfAll(out[0].bytes(), b).begin());
      }
      column += layout.columns[i];
    }
  }

  // Parts run last to first, as in a sequence.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    TROOP_CHECK(din.empty() || din[0].empty(), "observations have no gradient");
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    if (context.gradient.empty()) return;
    const Layout layout = LayoutFor(in[0]);
    std::int64_t column = layout.features;
    for (std::size_t i = parts_.size(); i-- > 0;) {
      column -= layout.columns[i];
      // Plain numbers have nothing to train.
      if (parts_[i].module->params().empty()) continue;
      const Tensor part = PartOutput(layout, i, dout[0].dtype(), context);
      const Columns columns{layout, i, column, dout[0].dtype()};
      for (std::size_t b = 0; b < columns.rows(part); ++b) {
        std::ranges::copy(columns.OfAll(dout[0].bytes(), b),
                          columns.OfPart(part.bytes(), b).begin());
      }
      const ConstTensor dpart(part);
      const Tensor none;
      parts_[i].module->Backward(PartContext(context, layout, i), in, {&dpart, 1},
                                 PartCache(layout, i, cache), {&none, 1});
    }
  }

 private:
  // Workspace: one part's output, then what the part needs.
  struct Layout {
    std::vector<Plan> plan;
    std::vector<std::int64_t> columns;  // features of each part
    std::vector<std::size_t> cache_at;
    std::int64_t features = 0;
    std::size_t cache_bytes = 0, wide = 0, part_workspace = 0;
  };
  // Every part gets the whole input, so only the caches differ in their places.
  Result<Layout> MakeLayout(std::span<const TensorSpec> in) const {
    TROOP_RETURN_IF_ERROR(CheckInput(in, 0, "concatenation"));
    Layout layout;
    for (const SequentialPart& part : parts_) {
      auto plan = part.module->MakePlan(in);
      if (!plan.ok()) return plan.status().WithContext(part.name);
      const TensorSpec& out = plan->out.at(0);
      layout.columns.push_back(out.shape.DropFirst().elements());
      layout.features += layout.columns.back();
      layout.cache_at.push_back(layout.cache_bytes);
      layout.cache_bytes += AlignBytes(plan->cache_bytes);
      layout.wide = std::max(layout.wide, AlignBytes(out.bytes()));
      layout.part_workspace = std::max(layout.part_workspace, AlignBytes(plan->workspace_bytes));
      layout.plan.push_back(*std::move(plan));
    }
    return layout;
  }
  // The layout of an input that passed MakePlan, which is always planned as f32.
  Layout LayoutFor(const ConstTensor& in) const {
    const TensorSpec spec{in.dtype() == DType::kBF16 ? DType::kF32 : in.dtype(), in.shape()};
    const Result<Layout> layout = MakeLayout({&spec, 1});
    TROOP_CHECK(layout.ok(), "{}", layout.status().ToString());
    return *layout;
  }

  // The output of part i, or its gradient, in the precision of the caller's tensor.
  static Tensor PartOutput(const Layout& layout, std::size_t i, DType dtype,
                           const StepContext& context) {
    const TensorSpec spec{dtype, layout.plan[i].out[0].shape};
    return Tensor::View(nullptr, context.workspace.first(spec.bytes()), spec);
  }
  static Cache PartCache(const Layout& layout, std::size_t i, Cache cache) {
    return cache.subspan(layout.cache_at[i], layout.plan[i].cache_bytes);
  }
  // Restricts a context to part i. Only the sequence around the whole network has a watch.
  StepContext PartContext(const StepContext& context, const Layout& layout, std::size_t i) const {
    const auto first = std::size_t(base_[i]), count = std::size_t(end_[i] - base_[i]);
    StepContext part = context;
    part.watch = nullptr;
    part.value = context.value.subspan(first, count);
    part.packed = static_cast<const ConcatenationPacked*>(context.packed)->parts[i].get();
    if (!context.gradient.empty()) part.gradient = context.gradient.subspan(first, count);
    part.workspace = context.workspace.subspan(layout.wide);
    return part;
  }

  // The columns of part i, from column `first` of the rows on.
  struct Columns {
    Columns(const Layout& layout, std::size_t i, std::int64_t first, DType dtype)
        : width(std::size_t(layout.columns[i]) * DTypeSize(dtype)),
          all(std::size_t(layout.features) * DTypeSize(dtype)),
          at(std::size_t(first) * DTypeSize(dtype)) {}
    std::size_t rows(const Tensor& part) const { return part.bytes().size() / width; }
    std::span<std::byte> OfPart(std::span<std::byte> part, std::size_t row) const {
      return part.subspan(row * width, width);
    }
    template <class Byte>
    std::span<Byte> OfAll(std::span<Byte> rows, std::size_t row) const {
      return rows.subspan(row * all + at, width);
    }
    // Bytes of the part's columns, of a row, and before the part's columns.
    std::size_t width, all, at;
  };

  const std::vector<SequentialPart> parts_;
  std::vector<ParamSpec> params_;
  std::vector<std::int64_t> base_, end_;  // range of each part's parameters
  std::int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Module> MakeConcatenation(std::vector<SequentialPart> parts) {
  return std::make_unique<Concatenation>(std::move(parts));
}

}  // namespace troop
