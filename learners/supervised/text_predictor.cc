// Implements loading of trained text models, and prediction for single texts.

#include "learners/supervised/text_predictor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "core/base/log.h"
#include "core/storage/storage.h"
#include "learners/checkpoint.h"
#include "learners/supervised/dataset.h"
#include "learners/supervised/supervised.h"
#include "learners/supervised/tokenizer_settings.h"
#include "nn/io/hugging_face.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Limits for reading, and the number of tokens predicted per mask.
constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;  // positions in a text are 32 bits wide
constexpr std::size_t kConfigBytesMax = std::size_t{1} << 24;
constexpr std::size_t kBestWords = 5;
constexpr const char* kVocabularies[] = {"vocab.txt", "spiece.model", "vocab.json",
                                         "tokenizer.json"};

// In double precision, with the largest logit subtracted against overflow.
std::vector<double> Softmax(std::span<const float> logits) {
  const float largest = std::ranges::max(logits);
  std::vector<double> p;
  for (const float x : logits) p.push_back(std::exp(double(x) - double(largest)));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

// exp gets no argument above 0, so nothing overflows.
double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Path of the vocabulary file in a folder, the first one in the order above; empty: none. A
// vocab.json needs its merges.txt.
std::string VocabularyIn(const fs::path& folder) {
  for (const std::string_view name : kVocabularies) {
    if (!IsFile(folder / name)) continue;
    if (name != "vocab.json" || IsFile(folder / "merges.txt")) return (folder / name).string();
  }
  return "";
}

// Class names of a model; missing, unprintable or repeated ones become LABEL_i, as in transformers.
// labels: by id.
std::vector<std::string> NamesOfClasses(const std::vector<std::string>& labels,
                                        std::int64_t classes) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (std::int64_t i = 0; i < classes; ++i) {
    const std::string plain = fmt::format("LABEL_{}", i);
    const std::string label = std::size_t(i) < labels.size() ? labels[std::size_t(i)] : "";
    const bool printable = !label.empty() && std::ranges::none_of(label, [](char c) {
      return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    });
    std::string name = printable ? label : plain;
    if (!different.insert(name).second) different.insert(name = plain);
    names.push_back(std::move(name));
  }
  return names;
}

// Adds the folder's name to an error message.
Status In(const std::string& folder, const Status& status) { return status.WithContext(folder); }

}  // namespace

std::vector<std::string> NamesOfClasses(const ModelConfig& model) {
  if (model.problem_type == ProblemType::kRegression) return {};
  // Runs of earlier versions learned sentiments alone, and stored no names.
  const std::int64_t classes = OutputsOf(model);
  if (model.labels.empty() && classes == 2) return {"negative", "positive"};
  return NamesOfClasses(model.labels, classes);
}

const Likely& TextAnswer::best() const {
  return *std::ranges::max_element(classes, {}, &Likely::probability);
}

std::vector<std::string> TextAnswer::labels() const {
  std::vector<std::string> labels;
  for (const Likely& one : classes) {
    if (one.probability > 0.5) labels.push_back(one.name);
  }
  return labels;
}

// Contents of a folder, before the predictor is made from them.
struct TextPredictor::Parts {
  std::unique_ptr<Module> module;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const LinearTexts> linear{};
  std::vector<float> value;
  std::vector<std::string> names, text_columns;
  std::string delimiter{};
  Precision precision = Precision::kF32;
  std::optional<bool> pairs{};
  bool masked = false;
  ProblemType problem = ProblemType::kSingleLabel;
  std::int64_t rows = 0;   // of the word embedding table
  std::int64_t types = 0;  // token types
  std::int64_t max_length = 0;
  TruncationSide side = TruncationSide::kRight;

  // Loads all parameters of the module from `file`.
  Status Read(const TensorFile& file, const char* name);
  Status ReadVocabulary(const std::string& path, bool cased);
};

// Extra tensors are a warning; missing ones are an error.
Status TextPredictor::Parts::Read(const TensorFile& file, const char* name) {
  std::int64_t bytes = 0;
  for (const auto& [unused, tensor] : file.tensors) bytes += std::int64_t(tensor.bytes().size());
  if (ElementCount(*module) > bytes) {  // by more than any missing heads
    return InvalidArgument("the model has {} parameters, but {} has only {} bytes",
                           ElementCount(*module), name, bytes);
  }
  value.resize(std::size_t(ParameterCount(*module)));
  Result<LoadedWeights> loaded = LoadWeights(*module, file, value);
  if (!loaded.ok()) return loaded.status().WithContext(name);
  if (const std::string unused = DescribeUnused(*loaded); !unused.empty()) {
    LogWarning("{}: {}", name, unused);
  }
  // With random values in the head, predictions would be meaningless.
  if (!loaded->fresh.empty()) {
    return InvalidArgument(
        "{} has no {}: the model was not trained for this task; see model.pretrained", name,
        loaded->fresh.front());
  }
  return Status::Ok();
}

// Checks that the vocabulary can belong to the model: not larger, not truncated.
Status TextPredictor::Parts::ReadVocabulary(const std::string& path, bool cased) {
  const bool keep = cased && HasCaseOption(VocabularyKindOf(path));
  TROOP_ASSIGN_OR_RETURN(tokenizer, OpenVocabulary(path, keep));
  if (tokenizer->size() > rows) {
    return InvalidArgument("{} has {} pieces, but the model has {}: it belongs to another model",
                           path, tokenizer->size(), rows);
  }
  TROOP_RETURN_IF_ERROR(CheckVocabularyWhole(path, tokenizer->size(), rows));
  // Rows beyond the pieces are padding, usually to a multiple of a power of two.
  if (tokenizer->size() < rows / 2) {
    LogWarning("{} has {} pieces, but the model has {}: it may belong to another model", path,
               tokenizer->size(), rows);
  }
  if (max_length >= 3) return Status::Ok();
  return InvalidArgument(
      "the model's limit is {} tokens, must be at least 3 (one token and two special ones)",
      max_length);
}

// All parts are those of the linear model, whose texts have no limit of tokens.
TextPredictor::Parts TextPredictor::FromLinear(std::shared_ptr<const LinearTexts> linear) {
  Parts parts{.pairs = false,
              .problem = linear->model().problem,
              .max_length = std::int64_t(kTextBytesMax)};
  if (parts.problem != ProblemType::kRegression) {
    const std::vector<std::string>& labels = linear->model().labels;
    parts.names = NamesOfClasses(labels, std::ssize(labels));
  }
  parts.linear = std::move(linear);
  return parts;
}

// The n-grams are those in the run's model/; the weights are the checkpoint's.
Result<TextPredictor::Parts> TextPredictor::FromLinearCheckpoint(const std::string& run,
                                                                 const FoundCheckpoint& found,
                                                                 const TrainingConfig& config) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(run));
  if (!storage->Exists(std::string(kModelFolder) + "/config.json")) {
    return InvalidArgument(
        "{}: the n-grams of a linear model are in the run's {}/, which it writes when it ends; end "
        "it with troop resume, or use troop eval",
        found.path, kModelFolder);
  }
  TROOP_ASSIGN_OR_RETURN(LinearModelParts model, ReadLinearModel(kModelFolder, storage.get()));
  Parts parts;
  TROOP_ASSIGN_OR_RETURN(parts.module, MakeTextModel(ModelSetupOf(config)));
  const std::string weights = found.path + "/weights.safetensors";
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(weights));
  TROOP_ASSIGN_OR_RETURN(const TensorFile file, DecodeSafetensors(bytes));
  TROOP_RETURN_IF_ERROR(parts.Read(file, weights.c_str()));
  // The padding behind the weights is left out.
  if (model.form.features != config.model.num_features || parts.value.size() < model.weights.size())
    return DataLoss("{}/ has {} features, but the run has {}", kModelFolder, model.form.features,
                    config.model.num_features);
  std::copy_n(parts.value.begin(), model.weights.size(), model.weights.begin());
  TROOP_ASSIGN_OR_RETURN(auto linear, LinearTexts::Make(std::move(model)));
  parts = FromLinear(std::move(linear));
  parts.text_columns = config.data.text_columns;
  parts.delimiter = config.data.delimiter;
  return parts;
}

// Order: head and problem type, vocabulary, tokenizer settings, weights.
Result<TextPredictor::Parts> TextPredictor::FromHuggingFace(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder));
  TROOP_ASSIGN_OR_RETURN(const Pretrained there, ReadPretrained(storage.get(), ""));
  const TransformerOptions& options = there.options;
  const bool classifies = options.head == TransformerHead::kClassifier;
  const std::int64_t least = options.problem_type == ProblemType::kSingleLabel ? 2 : 1;
  if (options.head == TransformerHead::kPooled || (classifies && options.classes < least)) {
    return InvalidArgument(
        "config.json is neither for a classifier of 2 classes or more (architectures: "
        "…ForSequenceClassification) nor for a masked LM (…ForMaskedLM)");
  }
  // PyTorch's loss would broadcast several outputs against one number.
  if (classifies && options.problem_type == ProblemType::kRegression && options.classes != 1) {
    return InvalidArgument(
        "config.json: \"problem_type\" is \"regression\", but the model has {} outputs: only 1 is "
        "supported",
        options.classes);
  }
  const std::string vocabulary = VocabularyIn(folder);
  if (vocabulary.empty()) {
    return NotFound(
        "neither vocab.txt nor spiece.model exists, nor vocab.json with merges.txt, nor "
        "tokenizer.json; copy the model's into the folder");
  }
  TROOP_ASSIGN_OR_RETURN(const auto read,
                         ReadTokenizerSettings(folder, VocabularyKindOf(vocabulary)));
  const TokenizerSettings settings = read.value_or(TokenizerSettings());
  Parts parts{.masked = !classifies,
              .problem = options.problem_type,
              .rows = options.config.vocabulary,
              .types = options.config.token_types,
              .max_length = std::min(LengthMax(options.config), settings.max_length),
              .side = settings.side};
  TROOP_ASSIGN_OR_RETURN(parts.module, MakeTransformer(options));
  TROOP_RETURN_IF_ERROR(parts.Read(there.weights, "model.safetensors"));
  if (classifies && parts.problem != ProblemType::kRegression)
    parts.names = NamesOfClasses(options.labels, options.classes);
  parts.text_columns = settings.text_columns;
  if (classifies && !parts.text_columns.empty()) parts.pairs = parts.text_columns.size() == 2;
  TROOP_RETURN_IF_ERROR(parts.ReadVocabulary(vocabulary, settings.cased));
  return parts;
}

// The checkpoint's config describes model and tokenizer; its weights are read without the optimizer
// state.
Result<TextPredictor::Parts> TextPredictor::FromCheckpoint(const std::string& run,
                                                           const FoundCheckpoint& found,
                                                           const SavedConfigParser& parse) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(run));
  const std::string& path = found.path;
  TROOP_ASSIGN_OR_RETURN(const TrainingConfig config,
                         parse(found.checkpoint.config_toml, path + "/state.json"));
  if (!IsSupervised(config.learner)) {
    return InvalidArgument(
        "{} was trained with {} on {}: only classifier and masked_lm predict texts; try troop "
        "eval",
        path, EnumName(config.learner.algorithm), config.env_id);
  }
  // Its vocabulary would be empty, and its inputs are pixels.
  if (ClassifiesImages(config)) {
    return InvalidArgument(
        "{} classifies images ({}), not texts; give image files to troop predict", path,
        EnumName(config.model.architecture));
  }
  if (IsLinearModel(config)) return FromLinearCheckpoint(run, found, config);
  Parts parts{.masked = config.learner.algorithm == AlgorithmKind::kMaskedLm,
              .problem = config.model.problem_type,
              .rows = config.model.vocab_size,
              .types = HasSegments(config.model.architecture) ? 2 : 1,
              .max_length = std::min(TokensMax(config.model), config.data.max_length),
              .side = config.data.truncation_side};
  TROOP_ASSIGN_OR_RETURN(parts.module, MakeTextModel(ModelSetupOf(config)));
  const std::string weights = path + "/weights.safetensors";
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(weights));
  TROOP_ASSIGN_OR_RETURN(const TensorFile file, DecodeSafetensors(bytes));
  TROOP_RETURN_IF_ERROR(parts.Read(file, weights.c_str()));
  if (!parts.masked) parts.names = NamesOfClasses(config.model);
  parts.text_columns = config.data.text_columns;
  parts.delimiter = config.data.delimiter;
  // TextEvaluator does the same, so that predictions are those that the scores of the run are of.
  if (config.network.precision == NetworkPrecision::kBf16) parts.precision = Precision::kBF16;
  if (!parts.masked) parts.pairs = HasPairs(config.data);
  // The run's own copy is preferred: the data folder may have changed since.
  std::string vocabulary = VocabularyIn(fs::path(run) / kModelFolder);
  if (vocabulary.empty()) vocabulary = config.data.vocabulary;
  TROOP_RETURN_IF_ERROR(parts.ReadVocabulary(vocabulary, config.data.cased));
  return parts;
}

// The kind of folder follows from the files in it, in this order.
Result<std::unique_ptr<TextPredictor>> TextPredictor::Load(const std::string& path,
                                                           const SavedConfigParser& parse,
                                                           CheckpointChoice choice) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // for "run/"
  if (!fs::is_directory(folder, error)) {
    return NotFound("{}: {}", path,
                    fs::exists(folder, error) ? "a file; give its folder" : "no such folder");
  }
  const bool is_run = !IsFile(folder / "config.json") &&
                      (IsFile(folder / "checkpoints") || IsFile(folder / "config.toml"));
  if (choice == CheckpointChoice::kBest && !is_run) {
    return InvalidArgument("{}: not a run, of which --best chooses a checkpoint; omit --best",
                           path);
  }
  const auto load = [&]() -> Result<Parts> {
    if (IsFile(folder / "config.json")) {
      TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder.string()));
      const auto text = storage->Read("config.json", kConfigBytesMax);
      if (!text.ok() || !IsLinearModelConfig(text->text())) return FromHuggingFace(folder.string());
      TROOP_ASSIGN_OR_RETURN(auto linear, LinearTexts::Read(folder.string()));
      return FromLinear(std::move(linear));
    }
    if (is_run) {
      TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder.string()));
      TROOP_ASSIGN_OR_RETURN(const auto found, ReadChosenCheckpoint(storage.get(), choice));
      return FromCheckpoint(folder.string(), found, parse);
    }
    if (IsFile(folder / "manifest.json")) {
      // RUN/checkpoints/<updates>, or RUN/best.
      fs::path run = folder.parent_path();
      if (run.filename() == "checkpoints") run = run.parent_path();
      TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(run.string()));
      FoundCheckpoint found{.path = folder.lexically_relative(run).string()};
      TROOP_ASSIGN_OR_RETURN(found.checkpoint, ReadCheckpoint(storage.get(), found.path));
      return FromCheckpoint(run.string(), found, parse);
    }
    return NotFound(
        "neither a run (no checkpoints/), nor a checkpoint (no manifest.json), nor a Hugging "
        "Face model (no config.json)");
  };
  Result<Parts> parts = load();
  if (!parts.ok()) return In(path, parts.status());
  return std::unique_ptr<TextPredictor>(new TextPredictor(*std::move(parts)));
}

// The weights themselves are f32 in both precisions.
TextPredictor::TextPredictor(Parts parts)
    : module_(std::move(parts.module)),
      tokenizer_(std::move(parts.tokenizer)),
      linear_(std::move(parts.linear)),
      text_columns_(std::move(parts.text_columns)),
      delimiter_(std::move(parts.delimiter)),
      pairs_(parts.pairs),
      value_(std::move(parts.value)),
      packed_(module_ ? module_->MakePacked(parts.precision) : nullptr),
      names_(std::move(parts.names)),
      masked_(parts.masked),
      problem_(parts.problem),
      rows_(parts.rows),
      types_(parts.types),
      tokens_max_(parts.max_length),
      side_(parts.side),
      step_(MakeStep()) {
  if (module_) module_->Pack(value_, packed_.get());
}

std::unique_ptr<TextStep> TextPredictor::MakeStep() const {
  return std::make_unique<TextStep>(module_.get(), masked_ ? rows_ : 0, problem_);
}

// Token ids without the special tokens at both ends.
std::vector<TokenId> TextPredictor::Tokenize(std::string_view text) const {
  std::vector<TokenId> ids;
  // The tokenizer would split the text of the mask ("[MASK]", RoBERTa: "<mask>"), so it is replaced
  // here.
  const std::string_view name = tokenizer_->piece(tokenizer_->special().mask);
  for (std::size_t mask; masked_ && (mask = text.find(name)) != text.npos;) {
    std::string_view before = text.substr(0, mask);
    // The mask includes the space before it, as a masked word does in training. A tokenizer with
    // [MASK] (BERT, ALBERT) drops that space by itself.
    if (!name.starts_with('[')) before = before.substr(0, before.find_last_not_of(" \t\r\n") + 1);
    tokenizer_->Encode(before, &ids);
    ids.push_back(tokenizer_->special().mask);
    text.remove_prefix(mask + name.size());
  }
  tokenizer_->Encode(text, &ids);
  return ids;
}

// The tokens of highest probability, in descending order.
std::vector<Likely> TextPredictor::BestWords(std::span<const float> logits) const {
  // Rows beyond the pieces are padding, not tokens.
  const std::vector<double> p = Softmax(logits.first(std::size_t(tokenizer_->size())));
  std::vector<TokenId> order(p.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t count = std::min(kBestWords, order.size());
  std::ranges::partial_sort(order, order.begin() + std::ptrdiff_t(count), std::greater<>(),
                            [&](TokenId id) { return p[std::size_t(id)]; });
  std::vector<Likely> best;
  for (const TokenId id : std::span(order).first(count)) {
    best.push_back({std::string(tokenizer_->piece(id)), p[std::size_t(id)]});
  }
  return best;
}

// Adds the special tokens after truncation.
void TextPredictor::Assemble(std::vector<TokenId> first, std::optional<std::vector<TokenId>> second,
                             EncodedText* text) const {
  if (second) {
    EncodedPair pair = JoinPair(*tokenizer_, {std::move(first), *std::move(second)},
                                std::size_t(tokens_max_), side_);
    text->ids = std::move(pair.ids);
    text->answer.cut = std::int64_t(pair.truncated);
    if (types_ > 1) text->second = pair.second;
    return;
  }
  const std::size_t kept = std::min(first.size(), std::size_t(tokens_max_) - 2);
  text->answer.cut = std::int64_t(first.size() - kept);
  const auto begin =
      side_ == TruncationSide::kLeft ? first.end() - std::ptrdiff_t(kept) : first.begin();
  text->ids.push_back(tokenizer_->special().begin);
  text->ids.insert(text->ids.end(), begin, begin + std::ptrdiff_t(kept));
  text->ids.push_back(tokenizer_->special().end);
}

// The remedies are those of the command line, of files and of requests.
Status TextPredictor::CheckForm(bool pair) const {
  if (pair && masked_)
    return InvalidArgument("the model is a masked LM, so it does not predict pairs of texts");
  if (!pairs_ || *pairs_ == pair) return Status::Ok();
  if (pair) {
    return InvalidArgument(
        "the model was trained on single texts, but this is a pair of texts; omit the second text");
  }
  return InvalidArgument(
      "the model was trained on pairs of texts, but this is a single text; give both (--text-pair, "
      "two --text-column, or \"text_pair\" of a request)");
}

// The counts of the answer are complete, its predictions are not.
Result<TextPredictor::EncodedText> TextPredictor::Encode(const TextInput& input) const {
  for (const std::string_view part : {input.text, input.pair.value_or("")}) {
    if (part.size() > kTextBytesMax) {
      return InvalidArgument("the text has {} bytes, must be at most {}", part.size(),
                             kTextBytesMax);
    }
  }
  TROOP_RETURN_IF_ERROR(CheckForm(input.pair.has_value()));
  if (linear_) return EncodeFeatures(input.text);
  const std::int64_t specials = 2 + tokenizer_->pair_format().separators;
  if (input.pair && tokens_max_ <= specials) {
    return InvalidArgument(
        "the model's limit is {} tokens, but a pair of texts has {} special ones", tokens_max_,
        specials);
  }
  EncodedText text;
  std::vector<TokenId> first = Tokenize(input.text);
  std::optional<std::vector<TokenId>> second;
  if (input.pair) second = Tokenize(*input.pair);
  TextAnswer& answer = text.answer;
  answer.empty = first.empty() && (!second || second->empty());
  Assemble(std::move(first), std::move(second), &text);
  const SpecialTokens& special = tokenizer_->special();
  answer.tokens = std::int64_t(text.ids.size());
  answer.unknown = std::ranges::count(text.ids, special.unknown);
  const auto masks = std::int64_t{masked_ ? std::ranges::count(text.ids, special.mask) : 1};
  answer.rows = answer.empty ? 0 : masks;
  return text;
}

// Unknown n-grams have no column, so that a text without known ones is predicted by the bias.
TextPredictor::EncodedText TextPredictor::EncodeFeatures(std::string_view text) const {
  LinearTexts::Features features = linear_->Encode(text);
  EncodedText encoded{.ids = std::move(features.columns), .values = std::move(features.values)};
  encoded.answer.tokens = std::ssize(encoded.ids);
  encoded.answer.empty = text.find_first_not_of(" \t\r\n") == text.npos;
  encoded.answer.rows = encoded.answer.empty ? 0 : 1;
  return encoded;
}

// Labels and targets are arbitrary, because the loss is not used.
void TextPredictor::Append(const EncodedText& text, TextBatch* batch) const {
  const auto begin = std::int32_t(batch->ids.size());
  const auto rows = std::size_t(text.answer.rows);
  for (std::size_t i = 0; masked_ && i < text.ids.size(); ++i) {
    if (text.ids[i] == tokenizer_->special().mask) batch->places.push_back(begin + std::int32_t(i));
  }
  batch->ids.insert(batch->ids.end(), text.ids.begin(), text.ids.end());
  batch->starts.push_back(std::int32_t(batch->ids.size()));
  if (text.second > 0) {
    batch->types.resize(std::size_t(begin + text.second), 0);
    batch->types.resize(batch->ids.size(), 1);
  } else if (!batch->types.empty()) {
    batch->types.resize(batch->ids.size(), 0);
  }
  if (problem_ == ProblemType::kSingleLabel) {
    batch->labels.resize(batch->labels.size() + rows, 0);
  } else {
    batch->targets.resize(batch->targets.size() + rows * std::max<std::size_t>(1, names_.size()));
  }
}

// logits: [rows, columns] of one text: a row per mask, or a single row of a classifier.
Status TextPredictor::TakeLogits(std::span<const float> logits, std::size_t rows,
                                 TextAnswer* answer) const {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
    return DataLoss(
        "the model gives non-finite values for this text: its weights are damaged, or "
        "training diverged; use an earlier checkpoint");
  }
  const std::size_t columns = logits.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto one = logits.subspan(row * columns, columns);
    if (masked_) {
      answer->masks.push_back(BestWords(one));
      continue;
    }
    if (problem_ == ProblemType::kRegression) {
      answer->value = double(one[0]);
      continue;
    }
    std::vector<double> p;
    if (problem_ == ProblemType::kSingleLabel) p = Softmax(one);
    for (std::size_t i = 0; i < columns; ++i) {
      answer->classes.push_back({names_[i], p.empty() ? Sigmoid(double(one[i])) : p[i]});
    }
  }
  return Status::Ok();
}

// Rows of logits follow each other in the order of the texts; empty ones have none.
Status TextPredictor::PredictEncoded(std::span<EncodedText* const> texts, TextStep* step) const {
  // Features need no batch.
  for (EncodedText* const text : texts) {
    if (!linear_ || text->answer.rows == 0) continue;
    std::vector<float> logits;
    linear_->AppendLogits(text->ids, text->values, &logits);
    TROOP_RETURN_IF_ERROR(TakeLogits(logits, 1, &text->answer));
  }
  if (linear_) return Status::Ok();
  TextBatch batch{.starts = {0}};
  for (const EncodedText* const text : texts) {
    if (text->answer.rows > 0) Append(*text, &batch);
  }
  const auto rows_of_all = std::size_t(batch.rows());
  if (rows_of_all == 0) return Status::Ok();
  TROOP_RETURN_IF_ERROR(step->Forward({value_, packed_.get()}, batch).status());
  const std::span<const float> logits = step->logits();
  const std::size_t columns = logits.size() / rows_of_all;
  std::size_t row = 0;
  for (EncodedText* const text : texts) {
    const auto rows = std::size_t(text->answer.rows);
    if (rows == 0) continue;
    TROOP_RETURN_IF_ERROR(
        TakeLogits(logits.subspan(row * columns, rows * columns), rows, &text->answer));
    row += rows;
  }
  return Status::Ok();
}

// Steps: tokenize all texts, one forward pass over those with something to predict.
Result<std::vector<TextAnswer>> TextPredictor::PredictAll(std::span<const TextInput> texts) {
  std::vector<EncodedText> encoded;
  for (const TextInput& text : texts) {
    TROOP_ASSIGN_OR_RETURN(EncodedText one, Encode(text));
    encoded.push_back(std::move(one));
  }
  std::vector<EncodedText*> pointers;
  for (EncodedText& one : encoded) pointers.push_back(&one);
  TROOP_RETURN_IF_ERROR(PredictEncoded(pointers, step_.get()));
  std::vector<TextAnswer> answers;
  for (EncodedText& one : encoded) answers.push_back(std::move(one.answer));
  return answers;
}

Result<TextAnswer> TextPredictor::Predict(const TextInput& input) {
  TROOP_ASSIGN_OR_RETURN(EncodedText encoded, Encode(input));
  EncodedText* const one = &encoded;
  TROOP_RETURN_IF_ERROR(PredictEncoded({&one, 1}, step_.get()));
  return std::move(encoded.answer);
}

}  // namespace troop
