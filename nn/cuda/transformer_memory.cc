// Memory of the transformer's steps on a GPU: what each batch needs, and its growth.
#include "nn/cuda/transformer_memory.h"

#include <algorithm>

#include "kernels/cuda/ops/attention.h"
#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/ops/layer_norm.h"

namespace troop::cuda {
namespace {

// True if attention dropout is stored as a mask: bf16 only.
bool DrawsScores(const TransformerSpec& spec, Precision precision) {
  return precision == Precision::kBF16 && spec.attention_dropout > 0;
}
// Upper bound for any division of the tokens into sequences.
std::int64_t ScoresWords(const TransformerSpec& spec, std::int64_t tokens) {
  return KeptScoresWords(tokens, tokens, spec.positions, spec.head_share().count);
}

}  // namespace

TransformerMemory::TransformerMemory(Device& device, const TransformerSpec& spec,
                                     Precision precision)
    : device_(device), spec_(spec), precision_(precision) {
  const std::int64_t widest = std::max(spec.hidden, spec.embedding);
  norm_workspace = Floats(device, LayerNormWorkspace(widest), "partial sums of norms' gradients");
}

TransformerMemory::Bytes TransformerMemory::Elements(std::int64_t n, const char* what) {
  return Bytes(device_, n * ElementBytes(ElementType(precision_)), what);
}
// Input, mean and 1 / deviation of a layer norm.
TransformerMemory::KeptNorm TransformerMemory::MakeKeptNorm(std::int64_t rows, std::int64_t n) {
  return {Elements(rows * n, "activations"), Floats(device_, rows, "rows' means"),
          Floats(device_, rows, "rows' deviations")};
}
// The dropout mask is stored only for training in bf16.
TransformerMemory::KeptAttention TransformerMemory::MakeKeptAttention(std::int64_t tokens) {
  const char* const what = "activations";
  const std::int64_t heads = tokens * spec_.heads_wide();
  KeptAttention kept = {Elements(3 * heads, what),
                        Elements(heads, what),
                        Floats(device_, tokens * spec_.head_share().count, "softmaxes' sums"),
                        {}};
  if (trains_ && DrawsScores(spec_, precision_)) {
    kept.scores =
        DeviceArray<std::uint32_t>(device_, ScoresWords(spec_, tokens), "which scores are kept");
  }
  return kept;
}
// Activations after the attention.
TransformerMemory::KeptRows TransformerMemory::MakeKeptRows(std::int64_t rows) {
  const char* const what = "activations";
  const std::int64_t narrow = rows * spec_.hidden, wide = rows * spec_.wide_share().count;
  KeptRows kept;
  kept.hidden = Elements(narrow, what);
  kept.z = Elements(wide, what);
  kept.g = Elements(wide, what);
  kept.out = Elements(narrow, what);
  kept.sum1 = MakeKeptNorm(rows, spec_.hidden);
  kept.sum2 = MakeKeptNorm(rows, spec_.hidden);
  return kept;
}

// Activations of all tokens, and with `keep` their gradients.
void TransformerMemory::ReserveTokens(std::int64_t tokens, bool keep) {
  tokens_ = std::max(tokens_, tokens + tokens / 8);
  trains_ = trains_ || keep;
  device_.Synchronize();
  // Free the old memory first: both together may not fit.
  attention_.clear();
  between_.clear();
  outs_.clear();
  embedding_sum = {};
  for (Bytes* bytes : {&embedded, &mapped, &dy, &dsum, &dwide, &dcontext}) *bytes = {};
  delta = {};
  embedding_sum = MakeKeptNorm(tokens_, spec_.embedding);
  embedded = Elements(tokens_ * spec_.embedding, "activations");
  if (spec_.has_map) mapped = Elements(tokens_ * spec_.hidden, "activations");
  // Inference needs only the input and output of a layer: two alternating sets.
  const std::int64_t most = recomputes() ? 1 : trains_ ? spec_.layers : 2;
  for (std::int64_t i = 0; i < std::min(spec_.layers, most); ++i)
    attention_.push_back(MakeKeptAttention(tokens_));
  for (std::int64_t i = 0; i < std::min(spec_.layers - 1, most); ++i)
    between_.push_back(MakeKeptRows(tokens_));
  for (std::int64_t i = 0; recomputes() && i < spec_.layers - 1; ++i)
    outs_.push_back(Elements(tokens_ * spec_.hidden, "activations"));
  if (!trains_) return;
  // Gradients of activations.
  const char* const what = "gradients of activations";
  const std::int64_t widest = std::max(spec_.hidden, spec_.embedding);
  dy = Elements(tokens_ * widest, what);
  dsum = Elements(tokens_ * widest, what);
  dwide = Elements(tokens_ * std::max(3 * spec_.heads_wide(), spec_.wide_share().count), what);
  dcontext = Elements(tokens_ * spec_.heads_wide(), what);
  delta = Floats(device_, tokens_ * spec_.head_share().count, "softmaxes' sums");
}

// Memory of the last layer's rows and of the head.
void TransformerMemory::ReserveRows(std::int64_t rows) {
  device_.Synchronize();
  rows_ = rows + rows / 8;
  const std::int64_t widest = std::max(spec_.hidden, spec_.embedding);
  last = MakeKeptRows(rows_);
  for (Bytes* bytes : {&asked_x, &asked_context, &head_mid, &head_top, &dhead[0], &dhead[1]})
    *bytes = Elements(rows_ * widest, "a head's activations");
  if (spec_.masked()) {
    head_sum = MakeKeptNorm(rows_, spec_.embedding);
  } else {
    dout = Elements(rows_ * spec_.classes, "gradients of logits");
    if (spec_.drops_first) head_in = Elements(rows_ * spec_.hidden, "a head's activations");
  }
}

// Grows by 1/8 more than needed, so that slightly larger batches do not reallocate. Waits for the
// device before freeing memory in use.
void TransformerMemory::Reserve(std::int64_t tokens, std::int64_t rows, bool keep) {
  if (tokens > tokens_ || (keep && !trains_)) ReserveTokens(tokens, keep);
  if (rows > rows_) ReserveRows(rows);
  const std::int64_t widest = std::max({3 * spec_.hidden, spec_.intermediate, spec_.embedding});
  // Workspace of the bias gradients.
  const std::int64_t sums = std::max(SumRowsWorkspace(tokens_, widest),
                                     SumRowsWorkspace(rows_, std::max(widest, spec_.vocabulary)));
  if (trains_ && sums > sum_workspace.size()) {
    device_.Synchronize();
    sum_workspace = {};
    sum_workspace = Floats(device_, sums, "partial sums of biases' gradients");
  }
}

// Must match the allocations of Reserve.
std::int64_t TransformerMemory::StepBytes(const TransformerSpec& spec, Precision precision,
                                          std::int64_t tokens, std::int64_t rows) {
  const std::int64_t element = ElementBytes(ElementType(precision));
  const std::int64_t hidden = spec.hidden, widest = std::max(hidden, spec.embedding);
  const std::int64_t heads = spec.heads_wide(), lse = 4 * spec.head_share().count;
  const std::int64_t wide = spec.wide_share().count, norm = 2 * 4;  // mean and deviation
  // Bytes per token: attention, the rest of a layer, then everything that is held per token and per
  // row.
  const std::int64_t attention = 4 * heads * element + lse;
  const std::int64_t behind = (4 * hidden + 2 * wide) * element + 2 * norm;
  const std::int64_t uses = spec.recompute ? 1 : spec.layers;
  std::int64_t token = 2 * spec.embedding * element + norm + uses * attention;
  if (spec.has_map) token += hidden * element;
  token += std::min(spec.layers - 1, uses) * behind;
  if (spec.recompute) token += (spec.layers - 1) * hidden * element;
  token += (2 * widest + std::max(3 * heads, wide) + heads) * element + lse;
  std::int64_t row = behind + 6 * widest * element;
  row += spec.masked() ? spec.embedding * element + norm : spec.classes * element;
  if (!spec.masked() && spec.drops_first) row += hidden * element;
  tokens += tokens / 8, rows += rows / 8;
  const std::int64_t sums =
      std::max(SumRowsWorkspace(tokens, std::max({3 * hidden, spec.intermediate, spec.embedding})),
               SumRowsWorkspace(rows, std::max({3 * hidden, spec.intermediate, spec.vocabulary})));
  const std::int64_t scores =
      DrawsScores(spec, precision) ? uses * 4 * ScoresWords(spec, tokens) : 0;
  return tokens * token + rows * row + 4 * sums + 4 * LayerNormWorkspace(widest) + scores;
}

}  // namespace troop::cuda
