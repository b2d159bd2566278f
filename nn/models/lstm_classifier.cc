// Implements the LSTM text classifier on packed sequences in time-major order.
#include "nn/models/lstm_classifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "nn/layers/lstm_layer.h"

namespace troop {
namespace {

constexpr const char* kName = "an LSTM classifier";

// Numbers of dropout sites: 0 for the embeddings, then one after each layer except the last.
constexpr std::uint32_t kEmbeddingSite = 0;
constexpr std::uint32_t kClassifierSite = 1u << 31;
std::uint32_t SiteBehind(std::size_t layer) { return std::uint32_t(1 + layer); }

// Parameters are in order of use, so that gradients become ready from the end.
class LstmClassifier final : public Module {
 public:
  explicit LstmClassifier(const LstmConfig& config) : config_(config) {
    ParamLayout layout(config.deviation);
    words_ = layout.Weight("embedding.weight", {config.vocabulary, config.embedding});
    for (std::int64_t i = 0; i < config.layers; ++i) {
      begins_.push_back(layout.end());
      layers_.emplace_back(LstmLayer::Sizes{i == 0 ? config.embedding : width(), config.hidden},
                           "lstm.", i, layout);
    }
    head_begin_ = layout.end();
    pool_ = AttentionPool(width(), config.attention, layout);
    classifier_ = LinearPart(layout, "classifier", width(), config.classes);
    layout.StartWith(config.output_bias);
    params_ = std::move(layout).Take();
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Inference keeps its activations in the workspace, training in the cache.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const TokenSizes sizes, CheckTokenInputs(in, false));
    Plan plan;
    plan.out = {{DType::kF32, {sizes.sequences, config_.classes}}};
    plan.cache_bytes = BytesTaken([&](Arena& arena) { TakeKept(arena, sizes, true); });
    plan.workspace_bytes = BytesTaken([&](Arena& arena) {
      TakeScratch(arena, sizes);
      TakeKept(arena, sizes, false);
    });
    return plan;
  }

  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    return std::make_unique<ComputePacked>(ActivationDType(precision));
  }
  void Pack(std::span<const float>, Packed*) const override {}  // weights are used in place

  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    const TokenBatch batch = BatchOf(in);
    Arena workspace(context.workspace);
    const Scratch scratch = TakeScratch(workspace, SizesOf(batch));
    Arena keeper(cache.empty() ? workspace.rest() : cache);
    Kept kept = TakeKept(keeper, SizesOf(batch), !cache.empty());
    const Params params = ParamsOf(context);
    // 1. Order the tokens by time steps and look up their embeddings.
    FillTimeSteps(batch.starts, &kept.steps);
    for (std::size_t i = 0; i < batch.ids.size(); ++i)
      kept.ids[std::size_t(kept.steps.row[i])] = batch.ids[i];
    GatherRows(kept.ids, config_.embedding, params.value + words_, false, kept.embedded);
    DropTimeSteps(batch, kept.steps, EmbeddingDropout(kept.embedded, scratch));
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      layers_[layer].Forward({params, kept.steps, InputOf(batch, kept, layer, scratch),
                              kept.layers[layer], scratch.layer});
    }
    // 3. Attention over each sequence, then the classifier.
    pool_.Forward({params, batch, kept.steps, kept.layers.back().h, kept.pool}, kept.top);
    DropSequences(batch, ClassifierDropout(kept.top, scratch));
    classifier_.Forward(params, batch.sequences(), kept.top, out[0].data<float>());
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    // Token ids are not differentiable.
    TROOP_CHECK(std::ranges::all_of(din, &Tensor::empty), "tokens have no gradient");
    const TokenBatch batch = BatchOf(in);
    Arena workspace(context.workspace), keeper(cache);
    const Scratch scratch = TakeScratch(workspace, SizesOf(batch));
    Kept kept = TakeKept(keeper, SizesOf(batch), true);
    // Recompute the one value of TimeSteps that is not in the arrays.
    kept.steps.steps = LongestSequence(batch.starts);  // the arrays are in the cache
    const Params params = ParamsOf(context);
    if (params.gradient == nullptr) return;  // token ids have no gradient
    if (!context.accumulate) ClearGradient(params_, context.gradient);
    // Mirrors Forward, from the classifier down.
    classifier_.Backward(params, {.rows = batch.sequences(),
                                  .x = kept.top,
                                  .dy = dout[0].data<float>(),
                                  .dx = scratch.dtop});
    DropSequences(batch, ClassifierDropout(scratch.dtop, scratch));
    float *dh = scratch.dh, *dx = scratch.dx;
    // Gradients become ready from the head down to the embeddings.
    pool_.Backward({params, batch, kept.steps, kept.layers.back().h, kept.pool}, scratch.dtop,
                   scratch.pool, dh);
    // Parameters from head_begin_ on are final.
    TellReady(context, head_begin_);
    for (std::size_t layer = layers_.size(); layer-- > 0;) {
      layers_[layer].Backward({params, kept.steps, InputOf(batch, kept, layer, scratch),
                               kept.layers[layer], scratch.layer},
                              dh, dx);
      if (layer > 0) DropTimeSteps(batch, kept.steps, LayerDropout(layer - 1, dx, scratch));
      // The input gradient of a layer is the output gradient of the one below.
      std::swap(dh, dx);
      TellReady(context, begins_[layer]);
    }
    DropTimeSteps(batch, kept.steps, EmbeddingDropout(dh, scratch));
    ScatterAddRows(kept.ids, config_.embedding, dh, params.gradient + words_);
  }

 private:
  // Activations of a forward pass.
  struct Kept {
    TimeSteps steps;
    std::span<std::int32_t> ids;  // [T], rows as in steps, like all per-token data
    float* embedded = nullptr;    // [T, embedding], after dropout
    std::vector<LstmLayer::Kept> layers;
    AttentionPool::Kept pool;
    float* top = nullptr;  // [B, 2 hidden], after dropout
  };
  // Temporary memory of a pass.
  struct Scratch {
    LstmLayer::Scratch layer;
    AttentionPool::Scratch pool;
    float *drop = nullptr, *dropped = nullptr;  // `dropped`: [T, 2 hidden], for several layers
    float *dh = nullptr, *dx = nullptr;         // [T, max(embedding, 2 hidden)]
    float* dtop = nullptr;
  };

  std::int64_t width() const { return 2 * config_.hidden; }
  TokenBatch BatchOf(std::span<const ConstTensor> in) const {
    // Types are ignored and sequences have no maximum length.
    constexpr std::int64_t kAny = std::numeric_limits<std::int32_t>::max();
    return TokenBatchOf(in, {config_.vocabulary, kAny, kTokensMax});
  }

  // For inference, layers share their memory except for their output, which alternates between two
  // buffers.
  Kept TakeKept(Arena& arena, const TokenSizes& sizes, bool trains) const {
    Kept kept;
    kept.steps = TakeTimeSteps(arena, sizes.tokens, sizes.sequences);
    kept.ids = TakeInts(arena, sizes.tokens);
    kept.embedded = TakeFloats(arena, sizes.tokens * config_.embedding);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      // Training keeps the activations of every layer.
      if (trains || layer == 0) {
        kept.layers.push_back(layers_[layer].TakeKept(arena, sizes.tokens));
      } else {
        kept.layers.push_back(kept.layers[layer - 1]);
        kept.layers.back().h =
            layer == 1 ? TakeFloats(arena, sizes.tokens * width()) : kept.layers[layer - 2].h;
      }
    }
    kept.pool = pool_.TakeKept(arena, sizes.tokens);
    kept.top = TakeFloats(arena, sizes.sequences * width());
    return kept;
  }
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const {
    const std::int64_t widest = std::max(config_.embedding, width());
    Scratch scratch;
    scratch.layer = layers_[0].TakeScratch(arena, sizes);
    scratch.pool = pool_.TakeScratch(arena, sizes);
    scratch.drop = TakeFloats(arena, kDropScratch);
    scratch.dropped = TakeFloats(arena, layers_.size() > 1 ? sizes.tokens * width() : 0);
    scratch.dh = TakeFloats(arena, sizes.tokens * widest);
    scratch.dx = TakeFloats(arena, sizes.tokens * widest);
    scratch.dtop = TakeFloats(arena, sizes.sequences * width());
    return scratch;
  }

  // Dropout of x, or of its gradient: the embeddings, the output of a layer, the pooled vectors.
  DropRowsArgs EmbeddingDropout(float* x, const Scratch& scratch) const {
    return {.site = kEmbeddingSite,
            .rate = config_.embedding_dropout,
            .width = config_.embedding,
            .x = x,
            .scratch = scratch.drop};
  }
  DropRowsArgs LayerDropout(std::size_t layer, float* x, const Scratch& scratch) const {
    return {.site = SiteBehind(layer),
            .rate = config_.layer_dropout,
            .width = width(),
            .x = x,
            .scratch = scratch.drop};
  }
  DropRowsArgs ClassifierDropout(float* x, const Scratch& scratch) const {
    return {.site = kClassifierSite,
            .rate = config_.classifier_dropout,
            .width = width(),
            .x = x,
            .scratch = scratch.drop};
  }

  // Input of a layer: the output of the previous one after dropout, which backward recomputes.
  const float* InputOf(const TokenBatch& batch, const Kept& kept, std::size_t layer,
                       const Scratch& scratch) const {
    if (layer == 0) return kept.embedded;
    // Without dropout the output is used directly.
    const float* const h = kept.layers[layer - 1].h;
    if (batch.dropout.empty() || config_.layer_dropout == 0) return h;
    std::copy_n(h, batch.tokens() * width(), scratch.dropped);
    DropTimeSteps(batch, kept.steps, LayerDropout(layer - 1, scratch.dropped, scratch));
    return scratch.dropped;
  }

  const LstmConfig config_;
  std::int64_t words_ = 0;  // offset of [vocabulary, embedding]
  std::vector<LstmLayer> layers_;
  std::vector<std::int64_t> begins_;  // first parameter of each layer
  std::int64_t head_begin_ = 0;
  AttentionPool pool_;
  LinearPart classifier_;
  std::vector<ParamSpec> params_;
};

}  // namespace

// Bounds keep every product of sizes far from overflow.
Status CheckLstmClassifier(const LstmConfig& c) {
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "vocabulary", c.vocabulary));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "embedding size", c.embedding));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "hidden size", c.hidden));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of layers", c.layers, 64));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "attention size", c.attention));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of classes", c.classes));
  if (!(c.deviation >= 0 && std::isfinite(c.deviation)))
    return InvalidArgument("the deviation of initial weights is {}, must be finite and at least 0",
                           c.deviation);
  TROOP_RETURN_IF_ERROR(CheckRate(kName, "embedding_dropout", c.embedding_dropout));
  TROOP_RETURN_IF_ERROR(CheckRate(kName, "layer_dropout", c.layer_dropout));
  return CheckRate(kName, "classifier_dropout", c.classifier_dropout);
}

Result<std::unique_ptr<Module>> MakeLstmClassifier(const LstmConfig& config) {
  TROOP_RETURN_IF_ERROR(CheckLstmClassifier(config));
  return std::unique_ptr<Module>(std::make_unique<LstmClassifier>(config));
}

}  // namespace troop
