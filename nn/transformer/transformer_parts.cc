// Implements the parts that token models share: input checks, parameter layout, linear layers,
// norms and dropout.
#include "nn/transformer/transformer_parts.h"

#include <algorithm>
#include <cstring>

namespace troop {
namespace {

const TransformerKernels& Kernels() {
  static const TransformerKernels& kernels = TransformerKernelsFor(BestCpuLevel());
  return kernels;
}

// The tensor's values, or nothing if it is empty.
std::span<const std::int32_t> Numbers(const ConstTensor& tensor) {
  return tensor.empty() ? std::span<const std::int32_t>() : tensor.as<std::int32_t>();
}

}  // namespace

Status CheckSize(const char* model, const char* name, std::int64_t value, std::int64_t most) {
  if (value >= 1 && value <= most) return Status::Ok();
  return InvalidArgument("{}'s {} = {}: needs 1 to {}", model, name, value, most);
}

Status CheckRate(const char* model, const char* name, float value) {
  if (value >= 0 && value < 1) return Status::Ok();
  return InvalidArgument("{}'s {} = {}: needs 0 <= {} < 1", model, name, value, name);
}

// Types and dropout keys may be empty, so only the integer inputs are checked here.
Result<TokenSizes> CheckTokenInputs(std::span<const TensorSpec> in, bool places) {
  if (in.size() != (places ? 5 : 4))
    return InvalidArgument("a token batch has {} inputs, not {}", places ? 5 : 4, in.size());
  for (const std::size_t i : {0, 1, 4}) {
    if (i < in.size() && (in[i].dtype != DType::kI32 || in[i].shape.rank() != 1))
      return InvalidArgument("input {} of a token batch must be i32[n], is {}", i,
                             in[i].ToString());
  }
  const TokenSizes sizes{in[0].shape[0], in[1].shape[0] - 1, places ? in[4].shape[0] : 0};
  if (sizes.sequences < 1 || sizes.tokens < sizes.sequences || sizes.tokens > kTokensMax)
    return InvalidArgument("invalid batch of {} sequences with {} tokens in total", sizes.sequences,
                           sizes.tokens);
  return sizes;
}

TokenSizes SizesOf(const TokenBatch& batch) {
  return {batch.tokens(), batch.sequences(), std::int64_t(batch.places.size())};
}

// Keys are 4 words each, so the array is reinterpreted in place.
TokenBatch TokenBatchOf(std::span<const ConstTensor> in, const TokenBounds& bounds) {
  TROOP_CHECK(in.size() >= 4, "{} inputs", in.size());
  TokenBatch batch{.ids = Numbers(in[0]), .starts = Numbers(in[1]), .types = Numbers(in[2])};
  if (!in[3].empty()) {
    const auto words = in[3].as<std::uint32_t>();
    static_assert(sizeof(DropoutKey) == 4 * sizeof(std::uint32_t));
    batch.dropout = {reinterpret_cast<const DropoutKey*>(words.data()), words.size() / 4};
  }
  if (in.size() > 4) batch.places = Numbers(in[4]);
  const Status status = CheckTokens(bounds, batch);
  TROOP_CHECK(status.ok(), "{}", status.ToString());
  return batch;
}

// Padding between parameters is not part of the gradient.
void ClearGradient(std::span<const ParamSpec> params, std::span<float> gradient) {
  for (const ParamSpec& spec : params)
    std::ranges::fill(
        gradient.subspan(std::size_t(spec.offset), std::size_t(spec.shape.elements())), 0.0f);
}

// Without Packed, products are computed in f32.
Params ParamsOf(const StepContext& context) {
  const auto* const packed = static_cast<const ComputePacked*>(context.packed);
  return {context.value.data(), context.gradient.empty() ? nullptr : context.gradient.data(),
          packed == nullptr ? DType::kF32 : packed->compute, context.tensor};
}

void TellReady(const StepContext& context, std::int64_t from) {
  if (context.watch != nullptr) context.watch->GradientReady(from);
}

// Matrices and embeddings have weight decay; biases and norms do not.
std::int64_t ParamLayout::Add(const std::string& name, const Shape& shape, ParamSpec::Init init,
                              const Slice& slice) {
  const std::int64_t offset = end_;
  specs_.push_back(
      {.name = name,
       .shape = shape,
       .offset = offset,
       .init = init,
       .deviation = deviation_,
       .decays = init == ParamSpec::Init::kNormal || init == ParamSpec::Init::kSinusoids,
       .slice = slice});
  end_ = AlignParams(offset + shape.elements());
  return offset;
}

LinearPart::LinearPart(ParamLayout& layout, const std::string& name, const Extent& in_,
                       const Extent& out_)
    : in(in_.count()),
      out(out_.count()),
      cut_in(in_.cut()),
      cut_out(out_.cut()),
      weight(layout.Weight(name + ".weight", {out, in}, cut_in ? in_.Along(1) : out_.Along(0))),
      bias(layout.Bias(name + ".bias", out, out_.Along(0))) {}

// Row parallel: the products are summed over the ranks before the bias, which is added once.
void LinearPart::Forward(const Params& params, std::int64_t rows, const float* x, float* y) const {
  params.MatMul({.m = rows, .n = out, .k = in, .transpose_b = true}, x, params.value + weight, 0,
                y);
  if (cut_in) params.Sum(rows * out, y);
  const std::int64_t n = out / biases;
  for (std::int64_t i = 0; i < biases; ++i)
    AddToRows(rows, n, params.value + bias + i * AlignParams(n), y + i * n, out);
}

// dw += dyᵀ · x, db += Σ dy.
void LinearPart::AddGradient(const Params& params, std::int64_t rows, const float* x,
                             const float* dy) const {
  if (params.gradient == nullptr || rows == 0) return;
  params.MatMul({.m = out, .n = in, .k = rows, .transpose_a = true}, dy, x, 1,
                params.gradient + weight);
  const std::int64_t n = out / biases;
  for (std::int64_t i = 0; i < biases; ++i)
    SumOfRows(rows, n, dy + i * n, params.gradient + bias + i * AlignParams(n), out);
}

void LinearPart::Backward(const Params& params, const BackwardArgs& args) const {
  const auto& [rows, x, dy, beta, dx] = args;
  AddGradient(params, rows, x, dy);
  if (dx == nullptr) return;
  // dx is equal on all ranks, so only one adds it to their sum.
  const float keep = cut_out && !params.first_rank() ? 0 : beta;
  params.MatMul({.m = rows, .n = in, .k = out}, dy, params.value + weight, keep, dx);
  if (cut_out) params.Sum(rows * in, dx);
}

NormPart::NormPart(ParamLayout& layout, const std::string& name, std::int64_t n_, float epsilon_)
    : n(n_),
      gamma(layout.Gamma(name + ".weight", n_)),
      beta(layout.Bias(name + ".bias", n_)),
      epsilon(epsilon_) {}

// The input is kept, and its mean and 1 / deviation per row.
NormPart::Kept NormPart::TakeKept(Arena& arena, std::int64_t rows) const {
  Kept kept;
  kept.x = TakeFloats(arena, rows * n);
  kept.mean = TakeFloats(arena, rows);
  kept.rstd = TakeFloats(arena, rows);
  return kept;
}

void NormPart::Forward(const Params& params, std::int64_t rows, const Kept& kept, float* y) const {
  Kernels().layer_norm({rows, n, epsilon}, kept.x, params.value + gamma, params.value + beta, y,
                       kept.mean, kept.rstd);
}

// The kernel always accumulates gradients; unwanted ones go to scratch.
void NormPart::Backward(const Params& params, const Kept& kept, const BackwardArgs& args) const {
  const auto& [rows, dy, dx, scratch] = args;
  const bool wanted = params.gradient != nullptr;
  if (!wanted) std::fill_n(scratch, 2 * n, 0.0f);
  Kernels().layer_norm_backward({rows, n, epsilon}, kept.x, params.value + gamma, kept.mean,
                                kept.rstd, dy, dx, wanted ? params.gradient + gamma : scratch,
                                wanted ? params.gradient + beta : scratch + n);
}

// Factors are generated in blocks, from the site's counter-based random numbers.
void Drop(const DropArgs& args) {
  const auto& [site, rate, first, n, x, scratch] = args;
  for (std::int64_t i = 0; i < n; i += kDropScratch) {
    const std::int64_t count = std::min(kDropScratch, n - i);
    DropoutFactors(site, rate, first + i, count, scratch);
    Kernels().multiply(count, x + i, scratch, x + i);
  }
}

// Site and element number determine the factor, not the position in the batch.
void DropTokens(const TokenBatch& batch, const AskedTokens& asked, const DropRowsArgs& args) {
  const auto& [site, rate, width, x, scratch] = args;
  if (batch.dropout.empty() || rate == 0) return;
  std::size_t next = 0;  // index into `asked`
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int32_t first = batch.starts[s], end = batch.starts[s + 1];
    const DropoutSite here{batch.dropout[s], site};
    if (!asked) {
      Drop({.site = here,
            .rate = rate,
            .n = (end - first) * width,
            .x = x + first * width,
            .scratch = scratch});
    }
    // The counter covers all tokens, so requested rows get the same factors.
    for (; asked && next < asked->size() && (*asked)[next] < end; ++next) {
      Drop({.site = here,
            .rate = rate,
            .first = ((*asked)[next] - first) * width,
            .n = width,
            .x = x + std::int64_t(next) * width,
            .scratch = scratch});
    }
  }
}

void DropSequences(const TokenBatch& batch, const DropRowsArgs& args) {
  const auto& [site, rate, width, x, scratch] = args;
  if (batch.dropout.empty() || rate == 0) return;
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    Drop({.site = {batch.dropout[s], site},
          .rate = rate,
          .n = width,
          .x = x + std::int64_t(s) * width,
          .scratch = scratch});
  }
}

}  // namespace troop
