// Parameter layout of the transformer on a GPU.
#include "nn/cuda/transformer_spec.h"

#include "kernels/cuda/ops/optimizer_step.h"

namespace troop::cuda {
namespace {

// Assigns offsets in the order of nn/transformer/transformer_parts.h, and records the flags per
// block.
class Layout {
 public:
  explicit Layout(TransformerSpec* spec) : spec_(spec) {}
  // Adds n parameters; `cut`: each rank has different ones.
  std::int64_t Add(std::int64_t n, bool decays, bool cut) {
    const std::int64_t at = end_, blocks = (n + kParameterBlock - 1) / kParameterBlock;
    spec_->spared.insert(spec_->spared.end(), std::size_t(blocks), decays ? 0 : 1);
    spec_->whole.insert(spec_->whole.end(), std::size_t(blocks), cut ? 0 : 1);
    end_ += blocks * kParameterBlock;
    return at;
  }
  using Cut = TransformerSpec::Linear::Cut;
  void Linear(std::int64_t in, std::int64_t out, TransformerSpec::Linear* linear,
              Cut cut = Cut::kNone) {
    if (!spec_->cut()) cut = Cut::kNone;
    *linear = {.in = in,
               .out = out,
               .weight = Add(in * out, true, cut != Cut::kNone),
               .bias = Add(out, false, cut == Cut::kOut),
               .cut = cut};
  }
  void Norm(std::int64_t n, TransformerSpec::Norm* norm) {
    *norm = {.n = n, .gamma = Add(n, false, false), .beta = Add(n, false, false)};
  }
  std::int64_t end() const { return end_; }

 private:
  TransformerSpec* const spec_;
  std::int64_t end_ = 0;
};

}  // namespace

// Same order and padding as the CPU's ParamLayout: embeddings, layers, head.
void LayOut(TransformerSpec* spec) {
  spec->spared.clear();
  spec->whole.clear();
  spec->layer.clear();
  Layout layout(spec);
  using Cut = TransformerSpec::Linear::Cut;
  const std::int64_t hidden = spec->hidden, embedding = spec->embedding;
  const std::int64_t words = spec->word_share().count, wide = spec->wide_share().count;
  spec->word_table = layout.Add(words * embedding, true, spec->cut());
  spec->position_table = layout.Add(spec->positions * embedding, true, false);
  if (spec->token_types > 0)
    spec->type_table = layout.Add(spec->token_types * embedding, true, false);
  layout.Norm(embedding, &spec->embedding_norm);
  if (spec->has_map) layout.Linear(embedding, hidden, &spec->map);
  for (std::int64_t i = 0; i < (spec->shared ? 1 : spec->layers); ++i) {
    TransformerSpec::Layer layer;
    layer.begin = layout.end();
    // A multiple of 16 (CheckForm), so queries, keys and values are contiguous.
    layout.Linear(hidden, 3 * spec->heads_wide(), &layer.qkv, Cut::kOut);
    layout.Linear(spec->heads_wide(), hidden, &layer.attention_out, Cut::kIn);
    layout.Norm(hidden, &layer.norm1);
    layout.Linear(hidden, wide, &layer.ffn, Cut::kOut);
    layout.Linear(wide, hidden, &layer.ffn_out, Cut::kIn);
    layout.Norm(hidden, &layer.norm2);
    spec->layer.push_back(layer);
  }
  spec->head_begin = layout.end();
  layout.Linear(hidden, spec->masked() ? embedding : hidden, &spec->first);
  if (spec->masked()) {
    layout.Norm(embedding, &spec->head_norm);
    spec->word_bias = layout.Add(words, false, spec->cut());
  } else {
    layout.Linear(hidden, spec->classes, &spec->classifier);
  }
  spec->parameters = layout.end();
}

}  // namespace troop::cuda
