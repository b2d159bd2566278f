// Implements the translation of text models to operators of ONNX. Troop's modules compute
// packed sequences; here sequences are padded, and masked where they meet.
#include "nn/export/onnx_text_model.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/transformer/layer_norm_gelu.h"
#include "nn/export/onnx_graph.h"
#include "nn/models/lstm_classifier.h"
#include "nn/models/text_model.h"
#include "nn/transformer/family.h"

namespace troop {
namespace {

using Strings = std::vector<std::string>;

// Added to the score of padding: its exponential is 0, while sums stay finite.
constexpr float kForbidden = -1e9f;

// The inputs and outputs, and operators that both architectures use.
class TextTranslator {
 public:
  // setup: of a classifier or a masked LM.
  TextTranslator(const ModelSetup& setup, const TensorFile& file)
      : file_(file),
        graph_(setup.algorithm == AlgorithmKind::kMaskedLm ? "masked_lm" : "text_classifier"),
        problem_(setup.model.problem_type),
        outputs_(OutputsOf(setup.model)) {
    graph_.Input({"input_ids", OnnxType::kInt64, {"batch", "tokens"}, {}});
    graph_.Input({"attention_mask", OnnxType::kInt64, {"batch", "tokens"}, {}});
  }

  // Ends the graph of a classifier. pooled: [batch, width], the input of the linear layer `name`.
  Result<Buffer> EndClassifier(const std::string& pooled, const char* name, std::int64_t width) {
    const std::string logits = Linear(pooled, name, outputs_, width);
    graph_.Add("Identity", {logits}, {}, "logits");
    graph_.Output({"logits", OnnxType::kFloat, {"batch"}, {outputs_}});
    // A number has no probability.
    if (problem_ == ProblemType::kRegression) return End();
    if (problem_ == ProblemType::kMultiLabel) {
      graph_.Add("Sigmoid", {"logits"}, {}, "probabilities");
    } else {
      graph_.Add("Softmax", {"logits"}, {OnnxInt("axis", 1)}, "probabilities");
    }
    graph_.Output({"probabilities", OnnxType::kFloat, {"batch"}, {outputs_}});
    return End();
  }
  // Ends the graph, which has its outputs.
  Result<Buffer> End() {
    if (!error_.ok()) return error_;
    return graph_.Encode(file_.metadata);
  }

  OnnxGraph& graph() { return graph_; }

  // The values of a parameter; records an error if there is none of that size.
  std::vector<float> Values(const std::string& name, std::int64_t elements) {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end() || found->second.elements() != elements) {
      if (error_.ok())
        error_ = InvalidArgument("the model has no parameter {} of {} values", name, elements);
      return std::vector<float>(std::size_t(elements));
    }
    const auto values = found->second.as<float>();
    return {values.begin(), values.end()};
  }
  std::string Vector(const std::string& name, std::int64_t size) {
    return graph_.Floats({size}, Values(name, size));
  }
  std::string Table(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return graph_.Floats({rows, columns}, Values(name, rows * columns));
  }

  // A linear layer with its parameters in the graph: [in, out] and [out].
  struct Map {
    std::string weight, bias;
  };
  Map MapOf(const std::string& name, std::int64_t out, std::int64_t in) {
    return {Transposed(name + ".weight", out, in), Vector(name + ".bias", out)};
  }
  // [out, in] becomes [in, out], because MatMul transposes neither operand.
  std::string Transposed(const std::string& name, std::int64_t out, std::int64_t in) {
    const std::vector<float> from = Values(name, out * in);
    std::vector<float> to(from.size());
    for (std::int64_t o = 0; o < out; ++o) {
      for (std::int64_t i = 0; i < in; ++i)
        to[std::size_t(i * out + o)] = from[std::size_t(o * in + i)];
    }
    return graph_.Floats({in, out}, to);
  }
  std::string Apply(const Map& map, const std::string& x) {
    return graph_.Add("Add", {graph_.Add("MatMul", {x, map.weight}), map.bias});
  }
  std::string Linear(const std::string& x, const std::string& name, std::int64_t out,
                     std::int64_t in) {
    return Apply(MapOf(name, out, in), x);
  }
  std::string Transpose(const std::string& x, const std::vector<std::int64_t>& order) {
    return graph_.Add("Transpose", {x}, {OnnxInts("perm", order)});
  }
  // A dimension of 0 keeps that of the input.
  std::string Reshape(const std::string& x, const std::vector<std::int64_t>& shape) {
    return graph_.Add("Reshape", {x, graph_.Integers(shape)});
  }
  // [batch, tokens] f32: 0 for a token, kForbidden for padding.
  std::string Padding() {
    const std::string mask = graph_.Add("Cast", {"attention_mask"}, {OnnxCastTo(OnnxType::kFloat)});
    return graph_.Add("Mul",
                      {graph_.Add("Sub", {graph_.Scalar(1), mask}), graph_.Scalar(kForbidden)});
  }

 private:
  const TensorFile& file_;
  OnnxGraph graph_;
  const ProblemType problem_;
  const std::int64_t outputs_;  // of a classifier
  Status error_;
};

// Translates the encoders of nn/transformer/transformer.h, with the differences of
// nn/transformer/family.h.
class TransformerTranslator {
 public:
  TransformerTranslator(const TransformerOptions& options, const ModelSetup& setup,
                        const TensorFile& file)
      : config_(options.config),
        form_(FormOf(config_.family)),
        masked_(options.head == TransformerHead::kMaskedLm),
        text_(setup, file) {}

  Result<Buffer> Translate() {
    std::string x = Embed();
    const std::string padding =
        graph().Add("Unsqueeze", {text_.Padding(), graph().Integers({1, 2})});
    Layer layer;
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      // ALBERT applies one layer several times, whose parameters are in the file once.
      if (!form_.shared || i == 0) layer = LayerOf(i);
      x = Encode(layer, padding, x);
    }
    if (masked_) return PredictWords(x);
    // The first token represents the sequence.
    const std::string first = graph().Add("Gather", {x, graph().Index(0)}, {OnnxInt("axis", 1)});
    const std::string pooled = text_.Linear(first, form_.pooler, hidden(), hidden());
    return text_.EndClassifier(Activate(pooled), form_.classifier, hidden());
  }

 private:
  using Map = TextTranslator::Map;
  // The parameters of a layer in the graph.
  struct Layer {
    Map query, key, value, out, ffn, ffn_out;
    std::string norm1[2], norm2[2];
  };

  // Short names of what nearly every function uses.
  OnnxGraph& graph() { return text_.graph(); }
  std::int64_t hidden() const { return config_.hidden; }
  std::string family() const { return NameOf(config_.family); }

  // Over the last dimension; opset 17 is the first with this operator.
  std::string Norm(const std::string& x, const std::string& scale, const std::string& bias) {
    return graph().Add("LayerNormalization", {x, scale, bias},
                       {OnnxInt("axis", -1), OnnxFloat("epsilon", config_.epsilon)});
  }

  // Sum of the tables, norm, and the map to `hidden`. Too many tokens are an error of the runtime.
  std::string Embed() {
    const std::string prefix = family() + ".embeddings.";
    const std::int64_t width = config_.embedding;
    words_ = text_.Table(prefix + "word_embeddings.weight", config_.vocabulary, width);
    std::string x = graph().Add("Gather", {words_, "input_ids"});
    if (form_.types) x = graph().Add("Add", {x, Segments(prefix)});
    x = graph().Add("Add", {x, Positions(prefix)});
    x = Norm(x, text_.Vector(prefix + "LayerNorm.weight", width),
             text_.Vector(prefix + "LayerNorm.bias", width));
    if (!HasMap(config_)) return x;
    return text_.Linear(x, family() + "." + form_.map, hidden(), width);
  }

  // [batch or 1, tokens or 1, width] of the segments. A table of one row needs no input. The
  // input's default, one 0, is added to all tokens.
  std::string Segments(const std::string& prefix) {
    const std::int64_t types = config_.token_types;
    const std::string table =
        text_.Table(prefix + "token_type_embeddings.weight", types, config_.embedding);
    if (types == 1) return table;
    graph().OptionalInput({"token_type_ids", OnnxType::kInt64, {"batch", "tokens"}, {}});
    return graph().Add("Gather", {table, "token_type_ids"});
  }

  // [tokens, width] of the positions 0, 1, ..; in RoBERTa [batch, tokens, width] of the places
  // among the tokens that are not the padding id, which has a position of its table.
  std::string Positions(const std::string& prefix) {
    const std::string table =
        text_.Table(prefix + "position_embeddings.weight", config_.positions, config_.embedding);
    if (form_.padding < 0) {
      const std::string tokens =
          graph().Add("Gather", {graph().Add("Shape", {"input_ids"}), graph().Integers({1})});
      // Beyond the table the sum's shapes differ.
      return graph().Add("Slice", {table, graph().Integers({0}), tokens, graph().Integers({0})});
    }
    const std::string padding = graph().Index(form_.padding);
    const std::string counts =
        graph().Add("Cast", {graph().Add("Not", {graph().Add("Equal", {"input_ids", padding})})},
                    {OnnxCastTo(OnnxType::kInt64)});
    const std::string places = graph().Add("CumSum", {counts, graph().Index(1)});
    // Beyond the table Gather fails.
    return graph().Add(
        "Gather", {table, graph().Add("Add", {graph().Add("Mul", {places, counts}), padding})});
  }

  // Activation of the pooled head; its GELU is exact.
  std::string Activate(const std::string& x) {
    if (form_.activation == FamilyForm::Head::kGelu) return Gelu(x, GeluForm::kErf);
    return graph().Add(form_.activation == FamilyForm::Head::kRelu ? "Relu" : "Tanh", {x});
  }

  // The masked-LM head at all positions: transform, GELU, norm, then the decoder, whose weight is
  // that of the word embeddings; the graph transposes it, so that the file has it once.
  Result<Buffer> PredictWords(const std::string& x) {
    const std::int64_t width = config_.embedding;
    const std::string norm = form_.transform_norm;
    const std::string inner =
        Gelu(text_.Linear(x, form_.transform, width, hidden()), WordGelu(config_));
    const std::string top =
        Norm(inner, text_.Vector(norm + ".weight", width), text_.Vector(norm + ".bias", width));
    const std::string scores = graph().Add("MatMul", {top, text_.Transpose(words_, {1, 0})});
    graph().Add("Add", {scores, text_.Vector(form_.word_bias, config_.vocabulary)}, {}, "logits");
    graph().Output({"logits", OnnxType::kFloat, {"batch", "tokens"}, {config_.vocabulary}});
    return text_.End();
  }

  // Adds the parameters of a layer to the graph, once for all its uses.
  Layer LayerOf(std::int64_t index) {
    const std::string prefix = fmt::format("{}.{}{}", family(), form_.layers,
                                           form_.shared ? "" : fmt::format("{}.", index));
    const LayerNames& names = form_.layer;
    const std::int64_t wide = config_.intermediate;
    const auto map = [&](const char* name, std::int64_t out, std::int64_t in) {
      return text_.MapOf(prefix + name, out, in);
    };
    const auto vector = [&](const char* name, const char* end) {
      return text_.Vector(prefix + name + end, hidden());
    };
    return {.query = map(names.query, hidden(), hidden()),
            .key = map(names.key, hidden(), hidden()),
            .value = map(names.value, hidden(), hidden()),
            .out = map(names.attention_out, hidden(), hidden()),
            .ffn = map(names.ffn, wide, hidden()),
            .ffn_out = map(names.ffn_out, hidden(), wide),
            .norm1 = {vector(names.norm1, ".weight"), vector(names.norm1, ".bias")},
            .norm2 = {vector(names.norm2, ".weight"), vector(names.norm2, ".bias")}};
  }

  // Attention, sum and norm; feed-forward layer, sum and norm.
  std::string Encode(const Layer& layer, const std::string& padding, const std::string& x) {
    const std::string attended = text_.Apply(layer.out, Attend(layer, padding, x));
    const std::string middle =
        Norm(graph().Add("Add", {attended, x}), layer.norm1[0], layer.norm1[1]);
    const std::string wide = Gelu(text_.Apply(layer.ffn, middle), config_.gelu);
    return Norm(graph().Add("Add", {text_.Apply(layer.ffn_out, wide), middle}), layer.norm2[0],
                layer.norm2[1]);
  }

  // [batch, tokens, hidden] → [batch, heads, tokens, width] per head, softmax over the tokens that
  // are no padding, and back.
  std::string Attend(const Layer& layer, const std::string& padding, const std::string& x) {
    const std::int64_t width = hidden() / config_.heads;
    const auto heads = [&](const Map& map, const std::vector<std::int64_t>& order) {
      const std::string all = text_.Reshape(text_.Apply(map, x), {0, 0, config_.heads, width});
      return text_.Transpose(all, order);
    };
    // Keys are transposed, so that one product gives the scores of all pairs of tokens.
    const std::string query = heads(layer.query, {0, 2, 1, 3});
    const std::string key = heads(layer.key, {0, 2, 3, 1});
    const std::string scale = graph().Scalar(1 / std::sqrt(float(width)));
    const std::string scores = graph().Add("Mul", {graph().Add("MatMul", {query, key}), scale});
    const std::string shares =
        graph().Add("Softmax", {graph().Add("Add", {scores, padding})}, {OnnxInt("axis", -1)});
    const std::string sums = graph().Add("MatMul", {shares, heads(layer.value, {0, 2, 1, 3})});
    return text_.Reshape(text_.Transpose(sums, {0, 2, 1, 3}), {0, 0, hidden()});
  }

  // x/2 · (1 + erf(x/√2)), or its approximation by tanh (kernels/transformer/layer_norm_gelu.h).
  std::string Gelu(const std::string& x, GeluForm form) {
    std::string inner;
    if (form == GeluForm::kErf) {
      inner = graph().Add("Erf", {graph().Add("Mul", {x, graph().Scalar(0.70710678f)})});
    } else {
      const std::string square = graph().Add("Mul", {x, x});
      const std::string cube =
          graph().Add("Mul", {graph().Add("Mul", {square, x}), graph().Scalar(0.044715f)});
      const std::string sum = graph().Add("Add", {x, cube});
      inner = graph().Add("Tanh", {graph().Add("Mul", {sum, graph().Scalar(0.797884561f)})});
    }
    const std::string factor = graph().Add("Add", {inner, graph().Scalar(1)});
    const std::string half = graph().Add("Mul", {x, graph().Scalar(0.5f)});
    return graph().Add("Mul", {half, factor});
  }

  const TransformerConfig config_;
  const FamilyForm& form_;
  const bool masked_;
  std::string words_;  // the table of word embeddings in the graph
  TextTranslator text_;
};

// Translates the LSTM classifier: nn/models/lstm_classifier.h.
class LstmTranslator {
 public:
  LstmTranslator(const LstmConfig& config, const ModelSetup& setup, const TensorFile& file)
      : config_(config), text_(setup, file) {}

  // Time is the first axis, as the operator LSTM needs it.
  Result<Buffer> Translate() {
    const std::string words =
        text_.Table("embedding.weight", config_.vocabulary, config_.embedding);
    const std::string embedded = graph().Add("Gather", {words, "input_ids"});
    std::string x = text_.Transpose(embedded, {1, 0, 2});
    // The reverse direction begins at each sequence's last token, not in its padding.
    const std::string sum = graph().Add("ReduceSum", {"attention_mask", graph().Integers({1})},
                                        {OnnxInt("keepdims", 0)});
    const std::string lengths = graph().Add("Cast", {sum}, {OnnxCastTo(OnnxType::kInt32)});
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      x = Layer(i, i == 0 ? config_.embedding : width(), x, lengths);
    }
    return text_.EndClassifier(Pool(x), "classifier", width());
  }

 private:
  OnnxGraph& graph() { return text_.graph(); }
  std::int64_t width() const { return 2 * config_.hidden; }

  // Both directions of a parameter [4 hidden, columns], its gates i, f, g, o in ONNX's order i, o,
  // f, g.
  std::vector<float> Gates(const std::string& name, std::int64_t layer, std::int64_t columns) {
    std::vector<float> out;
    const std::int64_t block = config_.hidden * columns;
    for (const char* const direction : {"", "_reverse"}) {
      const std::vector<float> from =
          text_.Values(fmt::format("lstm.{}_l{}{}", name, layer, direction), 4 * block);
      for (const std::int64_t gate : {0, 3, 1, 2})
        out.insert(out.end(), from.begin() + gate * block, from.begin() + (gate + 1) * block);
    }
    return out;
  }
  // The operator has the two biases of a direction one after the other.
  std::vector<float> Biases(std::int64_t layer) {
    const std::vector<float> ih = Gates("bias_ih", layer, 1), hh = Gates("bias_hh", layer, 1);
    std::vector<float> out;
    for (const std::int64_t direction : {0, 1}) {
      const std::int64_t from = direction * 4 * config_.hidden, to = from + 4 * config_.hidden;
      out.insert(out.end(), ih.begin() + from, ih.begin() + to);
      out.insert(out.end(), hh.begin() + from, hh.begin() + to);
    }
    return out;
  }
  // [tokens, batch, in] → [tokens, batch, 2 hidden].
  std::string Layer(std::int64_t index, std::int64_t in, const std::string& x,
                    const std::string& lengths) {
    const std::int64_t h = config_.hidden;
    const std::string w = graph().Floats({2, 4 * h, in}, Gates("weight_ih", index, in));
    const std::string r = graph().Floats({2, 4 * h, h}, Gates("weight_hh", index, h));
    const std::string b = graph().Floats({2, 8 * h}, Biases(index));
    const std::string y =
        graph().Add("LSTM", {x, w, r, b, lengths},
                    {OnnxInt("hidden_size", h), OnnxText("direction", "bidirectional")});
    return text_.Reshape(text_.Transpose(y, {0, 2, 1, 3}), {0, 0, width()});
  }

  // Additive attention over the tokens: [tokens, batch, width] → [batch, width].
  std::string Pool(const std::string& x) {
    const std::int64_t units = config_.attention;
    // The score of a token is a product with one vector: [tokens, batch, 1].
    const std::string u = graph().Add("Tanh", {text_.Linear(x, "attention", units, width())});
    const std::string score = text_.Transposed("score.weight", 1, units);
    const std::string padding = text_.Transpose(text_.Padding(), {1, 0});
    const std::string scores =
        graph().Add("Add", {graph().Add("MatMul", {u, score}),
                            graph().Add("Unsqueeze", {padding, graph().Integers({2})})});
    const std::string shares = graph().Add("Softmax", {scores}, {OnnxInt("axis", 0)});
    return graph().Add("ReduceSum", {graph().Add("Mul", {x, shares}), graph().Integers({0})},
                       {OnnxInt("keepdims", 0)});
  }

  const LstmConfig config_;
  TextTranslator text_;
};

}  // namespace

// The options are those with which the module of the run is made.
Result<Buffer> EncodeOnnxTextModel(const ModelSetup& setup, const TensorFile& file) {
  const bool masked = setup.algorithm == AlgorithmKind::kMaskedLm;
  const bool lstm = setup.model.architecture == ModelArchitecture::kLstm;
  if ((!masked && setup.algorithm != AlgorithmKind::kClassifier) || (masked && lstm)) {
    return InvalidArgument(
        "learner.algorithm = \"{}\" with model.architecture = \"{}\": only a classifier, or a "
        "masked_lm of a transformer, is exported as text model",
        EnumName(setup.algorithm), EnumName(setup.model.architecture));
  }
  if (lstm) {
    TROOP_ASSIGN_OR_RETURN(const LstmConfig config, LstmModelOptions(setup));
    return LstmTranslator(config, setup, file).Translate();
  }
  TROOP_ASSIGN_OR_RETURN(const TransformerOptions options, TextModelOptions(setup));
  return TransformerTranslator(options, setup, file).Translate();
}

}  // namespace troop
