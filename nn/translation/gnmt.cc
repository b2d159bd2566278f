// Implements the translation model: encoder, attention, decoder and classifier.

#include "nn/translation/gnmt.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace troop {
namespace {

constexpr const char* kName = "a translation model";
constexpr std::int64_t kLayersMax = 16;
// Initial weights are U(±0.1), as those of SequenceAttention.
constexpr std::int64_t kFanIn = 100;
// Dropout sites of the encoder begin at 0.
constexpr std::uint32_t kDecoderSite = 1u << 16;

// Rows of the ids' embeddings, in the order of time steps.
void Embed(const TokenBatch& batch, const TimeSteps& steps, std::span<const float> table,
           std::int64_t width, float* x) {
  for (std::size_t i = 0; i < batch.ids.size(); ++i)
    std::copy_n(table.data() + batch.ids[i] * width, width, x + steps.row[i] * width);
}

// Product of a token batch's longest sequence with all tokens of the other side: no less than the
// number of pairs, which only the data have.
std::int64_t PairsMax(std::int64_t source, std::int64_t target, std::int64_t sequences) {
  return (source - sequences + 1) * target;
}

}  // namespace

// Bounds keep every product of sizes far from overflow.
Status CheckGnmt(const GnmtConfig& c) {
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "vocabulary", c.vocabulary));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "embedding size", c.embedding));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "hidden size", c.hidden));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "attention size", c.attention));
  for (const auto& [name, layers] : {std::pair("number of encoder layers", c.encoder_layers),
                                     std::pair("number of decoder layers", c.decoder_layers)}) {
    if (layers < 2 || layers > kLayersMax)
      return InvalidArgument("{}'s {} = {}: needs 2 to {}", kName, name, layers, kLayersMax);
  }
  return CheckRate(kName, "dropout", c.dropout);
}

Result<std::unique_ptr<Gnmt>> Gnmt::Make(const GnmtConfig& config) {
  TROOP_RETURN_IF_ERROR(CheckGnmt(config));
  return std::unique_ptr<Gnmt>(new Gnmt(config));
}

// The order of parameters is that of their use, so that gradients become final from the end.
Gnmt::Gnmt(const GnmtConfig& c) : config_(c) {
  ParamLayout layout(0);
  const Shape table{c.vocabulary, c.embedding};
  source_table_ = layout.Uniform(
      c.shared_embedding ? "embedding.weight" : "encoder.embedding.weight", table, kFanIn);
  encoder_ = LstmStack(
      {.in = c.embedding, .hidden = c.hidden, .layers = c.encoder_layers, .bidirectional = true},
      "encoder.lstm.", 0, c.dropout, layout);
  encoder_.AddUpperLayers("encoder.lstm.", layout);
  decoder_begin_ = layout.end();
  target_table_ = c.shared_embedding ? source_table_
                                     : layout.Uniform("decoder.embedding.weight", table, kFanIn);
  decoder_ = LstmStack(
      {.in = c.embedding, .hidden = c.hidden, .layers = c.decoder_layers, .context = c.hidden},
      "decoder.lstm.", kDecoderSite, c.dropout, layout);
  attention_begin_ = layout.end();
  attention_ = SequenceAttention(c.hidden, c.attention, layout);
  upper_begin_ = layout.end();
  decoder_.AddUpperLayers("decoder.lstm.", layout);
  classifier_begin_ = layout.end();
  classifier_.in = c.hidden;
  classifier_.out = c.vocabulary;
  classifier_.weight = layout.Uniform("classifier.weight", {c.vocabulary, c.hidden}, kFanIn);
  classifier_.bias = layout.Bias("classifier.bias", c.vocabulary);
  params_ = std::move(layout).Take();
}

// The lengths of single sequences are in the data alone, so the memory of attention is planned for
// the longest possible ones.
Result<Plan> Gnmt::MakePlan(std::span<const TensorSpec> in) const {
  if (in.size() != 4) return InvalidArgument("a batch of pairs has 4 inputs, not {}", in.size());
  for (std::size_t i = 0; i < 4; ++i) {
    if (in[i].dtype != DType::kI32 || in[i].shape.rank() != 1)
      return InvalidArgument("input {} of a batch of pairs must be i32[n], is {}", i,
                             in[i].ToString());
  }
  const std::int64_t source = in[0].shape[0], target = in[2].shape[0],
                     sequences = in[1].shape[0] - 1;
  if (sequences < 1 || in[3].shape[0] != sequences + 1 || source < sequences ||
      target < sequences || std::max(source, target) > kTokensMax)
    return InvalidArgument("invalid batch of {} pairs with {} and {} tokens in total", sequences,
                           source, target);
  const SequenceAttention::Sizes sizes{source, target, PairsMax(source, target, sequences)};
  Plan plan;
  plan.out = {{DType::kF32, {target, config_.vocabulary}}};
  plan.cache_bytes = BytesTaken([&](Arena& arena) { TakeKept(arena, sizes, sequences); });
  plan.workspace_bytes = plan.cache_bytes + BytesTaken([&](Arena& arena) {
                           TakeScratch(arena, sizes, sequences, source - sequences + 1);
                         });
  return plan;
}

std::unique_ptr<Packed> Gnmt::MakePacked(Precision precision) const {
  return std::make_unique<ComputePacked>(ActivationDType(precision));
}

// Checks both sides, and measures what attention needs.
Gnmt::Pairs Gnmt::PairsOf(const StepContext& context, std::span<const ConstTensor> in) const {
  TROOP_CHECK(in.size() == 4, "{} inputs", in.size());
  const auto side = [&](std::size_t ids) {
    TokenBatch batch{.ids = in[ids].as<std::int32_t>(),
                     .starts = in[ids + 1].as<std::int32_t>(),
                     .dropout = context.dropout};
    // Types are ignored and sequences have no maximum length.
    constexpr std::int64_t kAny = std::numeric_limits<std::int32_t>::max();
    const Status status = CheckTokens(TokenBounds{config_.vocabulary, kAny, kTokensMax}, batch);
    TROOP_CHECK(status.ok(), "{}", status.ToString());
    return batch;
  };
  Pairs pairs{.source = side(0), .target = side(2)};
  TROOP_CHECK(pairs.source.starts.size() == pairs.target.starts.size(), "{} sources, {} targets",
              pairs.source.sequences(), pairs.target.sequences());
  const auto &from = pairs.source.starts, &to = pairs.target.starts;
  for (std::size_t s = 0; s + 1 < from.size(); ++s) {
    const std::int64_t length = from[s + 1] - from[s];
    pairs.pairs += length * (to[s + 1] - to[s]);
    pairs.longest = std::max(pairs.longest, length);
  }
  return pairs;
}

// Forward and Backward take the same pieces, so that the cache needs no directory.
Gnmt::Kept Gnmt::TakeKept(Arena& arena, const SequenceAttention::Sizes& sizes,
                          std::int64_t pairs) const {
  Kept kept;
  kept.source_steps = TakeTimeSteps(arena, sizes.source, pairs);
  kept.target_steps = TakeTimeSteps(arena, sizes.target, pairs);
  kept.encoder = encoder_.TakeKept(arena, sizes.source);
  kept.decoder = decoder_.TakeKept(arena, sizes.target);
  kept.attention = attention_.TakeKept(arena, sizes);
  kept.context = TakeFloats(arena, sizes.target * config_.hidden);
  kept.top = TakeFloats(arena, sizes.target * config_.hidden);
  return kept;
}

Gnmt::Scratch Gnmt::TakeScratch(Arena& arena, const SequenceAttention::Sizes& sizes,
                                std::int64_t sequences, std::int64_t longest) const {
  // Gradients of the embeddings and of the outputs of all layers.
  const std::int64_t widest = std::max(config_.embedding, 2 * config_.hidden);
  Scratch scratch;
  scratch.encoder = encoder_.TakeScratch(arena, {.tokens = sizes.source, .sequences = sequences});
  scratch.decoder = decoder_.TakeScratch(arena, {.tokens = sizes.target, .sequences = sequences});
  scratch.attention = attention_.TakeScratch(arena, sizes, longest);
  scratch.source = TakeFloats(arena, sizes.source * widest);
  scratch.target = TakeFloats(arena, sizes.target * widest);
  scratch.dsource = TakeFloats(arena, sizes.source * widest);
  scratch.dtarget = TakeFloats(arena, sizes.target * widest);
  scratch.dcontext = TakeFloats(arena, sizes.target * config_.hidden);
  return scratch;
}

// Steps: 1. the encoder; 2. the bottom layer of the decoder; 3. attention; 4. the layers above and
// the classifier.
void Gnmt::Forward(const StepContext& context, std::span<const ConstTensor> in,
                   std::span<const Tensor> out, Cache cache) const {
  const Pairs batch = PairsOf(context, in);
  const SequenceAttention::Sizes sizes{batch.source.tokens(), batch.target.tokens(), batch.pairs};
  Arena workspace(context.workspace);
  const Scratch scratch = TakeScratch(workspace, sizes, batch.source.sequences(), batch.longest);
  Arena keeper(cache.empty() ? workspace.rest() : cache);
  Kept kept = TakeKept(keeper, sizes, batch.source.sequences());
  const Params params = ParamsOf(context);
  FillTimeSteps(batch.source.starts, &kept.source_steps);
  FillTimeSteps(batch.target.starts, &kept.target_steps);
  const auto table = [&](std::int64_t offset) {
    return context.value.subspan(std::size_t(offset));
  };
  // Step 1: the source, in the order of time steps.
  Embed(batch.source, kept.source_steps, table(source_table_), config_.embedding,
        kept.encoder.x[0]);
  const LstmStack::Use encoder{params, batch.source, kept.source_steps, kept.encoder,
                               scratch.encoder};
  encoder_.ForwardFirst(encoder);
  encoder_.ForwardUpper(encoder);
  // Step 2: the bottom layer needs no context.
  Embed(batch.target, kept.target_steps, table(target_table_), config_.embedding,
        kept.decoder.x[0]);
  LstmStack::Use decoder{params, batch.target, kept.target_steps, kept.decoder, scratch.decoder};
  decoder_.ForwardFirst(decoder);
  // Step 3: attention works on the order of the batch, since the time steps of both sides differ.
  ToBatchOrder(kept.source_steps, config_.hidden, kept.encoder.out.back(), kept.attention.keys);
  ToBatchOrder(kept.target_steps, config_.hidden, kept.decoder.out[0], kept.attention.queries);
  attention_.Forward(
      {params, batch.source.starts, batch.target.starts, kept.attention, scratch.attention},
      scratch.target);
  ToTimeSteps(kept.target_steps, config_.hidden, scratch.target, kept.context);
  // Step 4: the layers above, then logits in the order of the batch.
  decoder.context = kept.context;
  decoder_.ForwardUpper(decoder);
  ToBatchOrder(kept.target_steps, config_.hidden, kept.decoder.out.back(), kept.top);
  classifier_.Forward(params, batch.target.tokens(), kept.top, out[0].data<float>());
}

// Mirrors Forward, from the classifier down.
void Gnmt::Backward(const StepContext& context, std::span<const ConstTensor> in,
                    std::span<const ConstTensor> dout, Cache cache,
                    std::span<const Tensor> din) const {
  TROOP_CHECK(std::ranges::all_of(din, &Tensor::empty), "tokens have no gradient");
  const Pairs batch = PairsOf(context, in);
  const SequenceAttention::Sizes sizes{batch.source.tokens(), batch.target.tokens(), batch.pairs};
  Arena workspace(context.workspace), keeper(cache);
  const Scratch scratch = TakeScratch(workspace, sizes, batch.source.sequences(), batch.longest);
  Kept kept = TakeKept(keeper, sizes, batch.source.sequences());
  kept.source_steps.steps = LongestSequence(batch.source.starts);  // the arrays are in the cache
  kept.target_steps.steps = LongestSequence(batch.target.starts);
  const Params params = ParamsOf(context);
  if (params.gradient == nullptr) return;  // ids have no gradient
  if (!context.accumulate) ClearGradient(params_, context.gradient);
  classifier_.Backward(params, {.rows = batch.target.tokens(),
                                .x = kept.top,
                                .dy = dout[0].data<float>(),
                                .dx = scratch.target});
  TellReady(context, classifier_begin_);
  BackwardDecoder(context, batch, kept, scratch);
  // The gradient of the keys is that of the encoder's output.
  // Both directions of the bottom layer add to the gradient of the embeddings.
  const LstmStack::Use encoder{params, batch.source, kept.source_steps, kept.encoder,
                               scratch.encoder};
  ToTimeSteps(kept.source_steps, config_.hidden, scratch.source, scratch.dsource);
  encoder_.BackwardUpper(encoder, scratch.dsource, nullptr);
  encoder_.BackwardFirst(encoder, scratch.dsource, scratch.source);
  ToBatchOrder(kept.source_steps, config_.embedding, scratch.source, scratch.dsource);
  ScatterAddRows(batch.source.ids, config_.embedding, scratch.dsource,
                 params.gradient + source_table_);
}

// in: scratch.target, the gradient of the decoder's output in batch order. out: scratch.source,
// that of the keys.
void Gnmt::BackwardDecoder(const StepContext& context, const Pairs& batch, const Kept& kept,
                           const Scratch& scratch) const {
  const Params params = ParamsOf(context);
  const std::int64_t hidden = config_.hidden, tokens = batch.target.tokens();
  const LstmStack::Use decoder{params,       batch.target,    kept.target_steps,
                               kept.decoder, scratch.decoder, kept.context};
  ToTimeSteps(kept.target_steps, hidden, scratch.target, scratch.dtarget);
  decoder_.BackwardUpper(decoder, scratch.dtarget, scratch.dcontext);
  TellReady(context, upper_begin_);
  // Through attention, whose queries are the bottom layer's states.
  ToBatchOrder(kept.target_steps, hidden, scratch.dcontext, scratch.target);
  float* const dqueries = scratch.dcontext;
  attention_.Backward(
      {params, batch.source.starts, batch.target.starts, kept.attention, scratch.attention},
      scratch.target, scratch.source, dqueries);
  TellReady(context, attention_begin_);
  ToTimeSteps(kept.target_steps, hidden, dqueries, scratch.target);
  AddInto(tokens * hidden, scratch.target, scratch.dtarget);
  decoder_.BackwardFirst(decoder, scratch.dtarget, scratch.target);
  ToBatchOrder(kept.target_steps, config_.embedding, scratch.target, scratch.dtarget);
  ScatterAddRows(batch.target.ids, config_.embedding, scratch.dtarget,
                 params.gradient + target_table_);
  // A shared table also gets the gradients of the source.
  if (!config_.shared_embedding) TellReady(context, decoder_begin_);
}

}  // namespace troop
