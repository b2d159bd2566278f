// Implements the transformer as a module: parameter order, memory layout, both passes, and the
// checks of its options and inputs.
#include "nn/transformer/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/transformer/embedding_and_head.h"
#include "nn/transformer/encoder_layer.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

using Family = TransformerConfig::Family;

constexpr const char* kName = "a transformer";

// Every rank needs at least one head, one intermediate unit and one token of the vocabulary.
Status CheckPlace(const TransformerOptions& options) {
  const auto [rank, ranks] = options.tensor;
  const TransformerConfig& c = options.config;
  if (ranks < 1) return InvalidArgument("{} tensor-parallel ranks: needs at least 1", ranks);
  if (rank < 0 || rank >= ranks)
    return InvalidArgument("tensor-parallel rank {} of {}: needs 0 to {}", rank, ranks, ranks - 1);
  const std::pair<const char*, std::int64_t> shared[] = {{"heads", c.heads},
                                                         {"intermediate units", c.intermediate},
                                                         {"vocabulary entries", c.vocabulary}};
  for (const auto& [what, count] : shared) {
    if (count < ranks)
      return InvalidArgument(
          "{} tensor-parallel ranks share a transformer's {} {}: needs at most {}", ranks, count,
          what, count);
  }
  return Status::Ok();
}

// Layers are applied `layers` times; ALBERT has only one. An application is called a use.
class Transformer final : public Module {
 public:
  // ALBERT's shared layer appears once in the layout.
  explicit Transformer(const TransformerOptions& options) : options_(options) {
    const TransformerConfig& config = options_.config;
    ParamLayout layout(config.deviation);
    embedding_ = EmbeddingPart(options_, layout);
    const FamilyForm& form = FormOf(config.family);
    const std::string prefix = fmt::format("{}.{}", form.name, form.layers);
    for (std::int64_t i = 0; i < (form.shared ? 1 : config.layers); ++i) {
      begins_.push_back(layout.end());
      layers_.emplace_back(options_, form.shared ? prefix : fmt::format("{}{}.", prefix, i),
                           layout);
    }
    head_begin_ = layout.end();
    head_ = HeadPart(options_, embedding_.words(), layout);
    params_ = std::move(layout).Take();
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Memory is measured by taking it from an arena without storage.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_ASSIGN_OR_RETURN(const TokenSizes sizes,
                           CheckTokenInputs(in, options_.head == TransformerHead::kMaskedLm));
    Plan plan;
    plan.out = {{DType::kF32, {head_.rows(sizes.sequences, sizes.places), head_.outputs()}}};
    if (plan.out[0].shape[0] > sizes.tokens)
      return InvalidArgument("{} places of {} tokens", sizes.places, sizes.tokens);
    plan.cache_bytes = BytesTaken([&](Arena& arena) { TakeKept(arena, sizes, Kind(true)); });
    plan.workspace_bytes = BytesTaken([&](Arena& arena) {
      TakeScratch(arena, sizes);
      TakeKept(arena, sizes, Kind(false));
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
    // Without a cache, activations are in the workspace.
    const Kept kept = TakeKept(keeper, SizesOf(batch), Kind(!cache.empty()));
    const Params params = StepParams(context);
    // Embeddings, layers, head. A layer's output is the next one's input.
    embedding_.Forward({params, batch, kept.embedding, scratch.layer.drop});
    const float* x = kept.embedding.out;
    for (std::int64_t use = 0; use < options_.config.layers; ++use) {
      const EncoderLayer::Kept& mine = KeptOf(kept, use);
      LayerOf(use).Forward({params, batch, use, AskedOf(batch, use), x, mine, scratch.layer});
      x = mine.out;
    }
    head_.Forward({params, batch, x, kept.head, scratch.layer.drop}, out[0].data<float>());
  }

  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    TROOP_CHECK(std::ranges::all_of(din, &Tensor::empty), "tokens have no gradient");
    const TokenBatch batch = BatchOf(in);
    Arena workspace(context.workspace), keeper(cache);
    const Scratch scratch = TakeScratch(workspace, SizesOf(batch));
    const Kept kept = TakeKept(keeper, SizesOf(batch), Kind(true));
    const Params params = StepParams(context);
    if (!context.accumulate && params.gradient != nullptr) ClearGradient(params_, context.gradient);
    const std::int64_t last = options_.config.layers - 1;
    float* dy = scratch.dasked;
    // The head gives the gradient of the requested rows only.
    head_.Backward({params, batch, KeptOf(kept, last).out, kept.head, scratch.layer.drop},
                   dout[0].data<float>(), dy, scratch.head);
    TellReady(context, head_begin_);
    // A shared layer's gradient is complete only after its first use.
    for (std::int64_t use = last; use >= 0; --use) {
      // Input of this use; with recomputation its activations are computed again first.
      const float* const x = use == 0 ? kept.embedding.out : KeptOf(kept, use - 1).out;
      if (options_.recompute && use < last)
        LayerOf(use).Forward({params, batch, use, {}, x, KeptOf(kept, use), scratch.layer});
      LayerOf(use).Backward(
          {params, batch, use, AskedOf(batch, use), x, KeptOf(kept, use), scratch.layer}, dy,
          scratch.dy);
      dy = scratch.dy;
      if (layers_.size() > 1 || use == 0) TellReady(context, begins_[std::size_t(LayerIndex(use))]);
    }
    // The embeddings come last: they are at the beginning of the buffer.
    embedding_.Backward({params, batch, kept.embedding, scratch.layer.drop}, scratch.dy,
                        scratch.layer.context);
  }

 private:
  // Activations of a forward pass.
  struct Kept {
    EmbeddingPart::Kept embedding;
    std::vector<EncoderLayer::Kept> layers;  // of each use; may share memory
    HeadPart::Kept head;
  };
  // Temporary memory of a pass. dasked: gradient of the requested rows.
  struct Scratch {
    EncoderLayer::Scratch layer;
    float *dy = nullptr, *dasked = nullptr, *head = nullptr;
  };

  TokenBatch BatchOf(std::span<const ConstTensor> in) const {
    const TransformerConfig& config = options_.config;
    return TokenBatchOf(in, BoundsOf(config));
  }

  // Outputs of the last layer that the head reads; all outputs of other layers.
  AskedTokens AskedOf(const TokenBatch& batch, std::int64_t use) const {
    if (use + 1 < options_.config.layers) return {};
    return head_.Asked(batch);
  }

  // The group of a step must match the module's place.
  Params StepParams(const StepContext& context) const {
    const TensorParallelRank place =
        context.tensor == nullptr ? TensorParallelRank() : context.tensor->place();
    TROOP_CHECK(place == options_.tensor, "rank {} of {} steps a module of rank {} of {}",
                place.rank, place.ranks, options_.tensor.rank, options_.tensor.ranks);
    return ParamsOf(context);
  }

  // Activations that a forward keeps: everything; only outputs, and the rest of the last use
  // (recomputation); or the last two outputs (inference).
  enum class Keep : std::uint8_t { kAll, kOutputs, kLast };
  Keep Kind(bool trains) const {
    if (!trains) return Keep::kLast;
    return options_.recompute ? Keep::kOutputs : Keep::kAll;
  }
  // Shared memory is expressed by copies of the first use's pointers.
  Kept TakeKept(Arena& arena, const TokenSizes& sizes, Keep keep) const {
    Kept kept;
    kept.embedding = embedding_.TakeKept(arena, sizes.tokens);
    const std::int64_t uses = options_.config.layers, hidden = options_.config.hidden;
    const std::int64_t rows = head_.rows(sizes.sequences, sizes.places);
    for (std::int64_t use = 0; use < (keep == Keep::kLast ? std::min<std::int64_t>(2, uses) : uses);
         ++use) {
      // The last use computes only the requested rows.
      if (use == 0 || keep == Keep::kAll) {
        kept.layers.push_back(
            layers_[0].TakeKept(arena, sizes.tokens, use + 1 < uses ? sizes.tokens : rows));
        continue;
      }
      kept.layers.push_back(kept.layers[0]);
      kept.layers.back().out = TakeFloats(arena, sizes.tokens * hidden);
    }
    kept.layers[std::size_t(uses - 1) % kept.layers.size()].asked =
        TakeFloats(arena, rows * hidden);
    kept.head = head_.TakeKept(arena, rows);
    return kept;
  }
  static const EncoderLayer::Kept& KeptOf(const Kept& kept, std::int64_t use) {
    return kept.layers[std::size_t(use) % kept.layers.size()];
  }
  Scratch TakeScratch(Arena& arena, const TokenSizes& sizes) const {
    // Attention scratch depends on the longest possible sequence.
    const std::int64_t longest = std::min(sizes.tokens, options_.config.positions);
    Scratch scratch;
    scratch.layer = layers_[0].TakeScratch(arena, sizes.tokens, longest);
    const std::int64_t rows = head_.rows(sizes.sequences, sizes.places);
    scratch.dy = TakeFloats(arena, sizes.tokens * options_.config.hidden);
    scratch.dasked = TakeFloats(arena, rows * options_.config.hidden);
    scratch.head = TakeFloats(arena, head_.scratch(rows));
    return scratch;
  }

  std::int64_t LayerIndex(std::int64_t use) const { return layers_.size() == 1 ? 0 : use; }
  const EncoderLayer& LayerOf(std::int64_t use) const {
    return layers_[std::size_t(LayerIndex(use))];
  }

  const TransformerOptions options_;
  EmbeddingPart embedding_;
  std::vector<EncoderLayer> layers_;  // one if shared
  std::vector<std::int64_t> begins_;  // first parameter of each layer
  std::int64_t head_begin_ = 0;
  HeadPart head_;
  std::vector<ParamSpec> params_;
};

}  // namespace

TransformerConfig BertBase() { return {}; }

// albert-base-v2, which was trained without dropout.
TransformerConfig AlbertBase() {
  return {.family = Family::kAlbert,
          .vocabulary = 30000,
          .embedding = 128,
          .gelu = GeluForm::kTanh,
          .hidden_dropout = 0,
          .attention_dropout = 0};
}

// Bounds keep every product of sizes far from overflow.
Status CheckTransformer(const TransformerConfig& c) {
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "vocabulary", c.vocabulary));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "hidden size", c.hidden));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "embedding size", c.embedding));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "intermediate size", c.intermediate));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of layers", c.layers, 1024));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of heads", c.heads));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of positions", c.positions));
  TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of token types", c.token_types));
  if (c.hidden % c.heads != 0 || c.hidden % kParamAlignment != 0)
    return InvalidArgument(
        "a transformer's hidden size = {}: needs a multiple of {} and of its {} "
        "heads",
        c.hidden, kParamAlignment, c.heads);
  const FamilyForm& form = FormOf(c.family);
  if (form.map[0] == '\0' && c.embedding != c.hidden)
    return InvalidArgument("{}'s embedding size = {}: needs its hidden size, {}", form.package,
                           c.embedding, c.hidden);
  if (LengthMax(c) < 1)
    return InvalidArgument("{}'s number of positions = {}: needs at least {}", form.package,
                           c.positions, form.padding + 2);
  if (!form.types && c.token_types != 1)
    return InvalidArgument("{}'s number of token types = {}: needs 1, it has no embeddings of them",
                           form.package, c.token_types);
  if (form.fixed_epsilon > 0 && c.epsilon != form.fixed_epsilon)
    return InvalidArgument("{}'s layer norms have epsilon {}, not {}", form.package,
                           form.fixed_epsilon, c.epsilon);
  if (!(c.epsilon > 0 && std::isfinite(c.epsilon)))
    return InvalidArgument("a layer norm's epsilon is {}, must be finite and above 0", c.epsilon);
  if (!(c.deviation >= 0 && std::isfinite(c.deviation)))
    return InvalidArgument("the deviation of initial weights is {}, must be finite and at least 0",
                           c.deviation);
  TROOP_RETURN_IF_ERROR(CheckRate(kName, "hidden_dropout", c.hidden_dropout));
  TROOP_RETURN_IF_ERROR(CheckRate(kName, "attention_dropout", c.attention_dropout));
  return CheckRate(kName, "classifier_dropout", c.classifier_dropout);
}

// Every value is checked because it becomes a memory offset.
Status CheckTokens(const TokenBounds& bounds, const TokenBatch& batch) {
  if (batch.starts.size() < 2 || batch.starts.front() != 0 || batch.starts.back() != batch.tokens())
    return InvalidArgument("{} sequence starts must go from 0 to {}, the number of tokens",
                           batch.starts.size(), batch.tokens());
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int64_t length = std::int64_t(batch.starts[s + 1]) - batch.starts[s];
    if (length < 1 || length > bounds.length)
      return InvalidArgument("sequence {} has {} tokens: needs 1 to {}", s, length, bounds.length);
  }
  const auto check = [](const char* what, std::span<const std::int32_t> numbers,
                        std::int64_t end) -> Status {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0 || numbers[i] >= end)
        return InvalidArgument("{} {} is {}: needs 0 to {}", what, i, numbers[i], end - 1);
    }
    return Status::Ok();
  };
  TROOP_RETURN_IF_ERROR(check("token", batch.ids, bounds.vocabulary));
  TROOP_RETURN_IF_ERROR(check("type", batch.types, bounds.token_types));
  TROOP_RETURN_IF_ERROR(check("place", batch.places, batch.tokens()));
  // Equal places are an error, too.
  const auto fall = std::ranges::adjacent_find(batch.places, std::greater_equal<>());
  if (fall != batch.places.end())
    return InvalidArgument("place {} comes before place {}, must increase", fall[0], fall[1]);
  if (!batch.types.empty() && batch.types.size() != batch.ids.size())
    return InvalidArgument("{} types of {} tokens", batch.types.size(), batch.ids.size());
  if (!batch.dropout.empty() && std::int64_t(batch.dropout.size()) != batch.sequences())
    return InvalidArgument("{} dropout keys of {} sequences", batch.dropout.size(),
                           batch.sequences());
  return Status::Ok();
}

// Counts the all-reduces in the order of a step.
TensorTraffic StepTraffic(const TransformerOptions& options, std::int64_t tokens,
                          std::int64_t asked) {
  const TransformerConfig& c = options.config;
  TensorTraffic traffic;
  // One rank exchanges nothing.
  if (options.tensor.ranks == 1) return traffic;
  const auto count = [&](std::int64_t times, std::int64_t numbers) {
    if (numbers == 0) return;
    traffic.operations += std::uint64_t(times);
    traffic.bytes += std::uint64_t(times * numbers) * sizeof(float);
  };
  // The sum of the word embeddings over the ranks.
  count(1, tokens * c.embedding);
  count(4 * c.layers - 3 + (options.recompute ? 2 * (c.layers - 1) : 0), tokens * c.hidden);
  count(3, asked * c.hidden);  // the last layer's, except its input's gradient
  if (options.head != TransformerHead::kMaskedLm) return traffic;
  count(1, asked * c.embedding);
  count(1, asked);      // maxima
  count(1, 2 * asked);  // sums, and the labels' logits
  return traffic;
}

Result<std::unique_ptr<Module>> MakeTransformer(const TransformerOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckTransformer(options.config));
  if (options.head == TransformerHead::kClassifier)
    TROOP_RETURN_IF_ERROR(CheckSize(kName, "number of classes", options.classes));
  if (options.head == TransformerHead::kPooled && !FormOf(options.config.family).pools)
    return InvalidArgument("{} has no pooler: needs a classifier or a masked-LM head",
                           FormOf(options.config.family).package);
  TROOP_RETURN_IF_ERROR(CheckPlace(options));
  return std::unique_ptr<Module>(std::make_unique<Transformer>(options));
}

}  // namespace troop
