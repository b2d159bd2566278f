#include "learners/text_predictor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "core/config.h"
#include "core/json.h"
#include "core/log.h"
#include "core/storage.h"
#include "learners/checkpoint.h"
#include "learners/review_data.h"
#include "learners/supervised.h"
#include "learners/tokenizer_settings.h"
#include "nn/hugging_face.h"
#include "nn/model.h"
#include "nn/text_model.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kJsonBytesMax = std::size_t{1} << 20;
constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;  // positions in a text are 32 bits wide
constexpr std::size_t kBestWords = 5;
constexpr std::string_view kMask = "[MASK]";
constexpr const char* kVocabularies[] = {"vocab.txt", "spiece.model"};

std::vector<double> Softmax(std::span<const float> logits) {
  const float largest = std::ranges::max(logits);
  std::vector<double> p;
  for (const float x : logits) p.push_back(std::exp(double(x) - double(largest)));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  return p;
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The vocabulary's file in a folder; empty: there is none.
std::string VocabularyIn(const fs::path& folder) {
  for (const char* const name : kVocabularies) {
    if (IsFile(folder / name)) return (folder / name).string();
  }
  return "";
}

TruncationSide SideOf(std::string_view name) {
  return name == "left" ? TruncationSide::kLeft : TruncationSide::kRight;
}

// What transformers calls LABEL_0 and LABEL_1 where nobody gave names are the sentiments.
std::vector<std::string> NamesOfClasses(const JsonValue* labels, std::int64_t classes) {
  std::vector<std::string> names;
  std::set<std::string> different;
  for (std::int64_t i = 0; i < classes; ++i) {
    const JsonValue* const label = labels == nullptr ? nullptr : labels->Find(std::to_string(i));
    const std::string plain = fmt::format("LABEL_{}", i);
    const bool printable = label != nullptr && !label->string.empty() &&
                           std::ranges::none_of(label->string, [](char c) {
                             return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
                           });
    std::string name = printable ? label->string : plain;
    if (name == plain && classes == 2) name = i == 0 ? "negative" : "positive";
    if (!different.insert(name).second) different.insert(name = plain);
    names.push_back(std::move(name));
  }
  return names;
}

// A folder's message names the folder, too.
Status In(const std::string& folder, const Status& status) { return status.WithContext(folder); }

}  // namespace

const Likely& TextAnswer::best() const {
  return *std::ranges::max_element(classes, {}, &Likely::probability);
}

struct TextPredictor::Parts {
  std::unique_ptr<Module> module;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<float> value;
  std::vector<std::string> names;
  bool masked = false;
  std::int64_t rows = 0;  // of the word embedding
  std::int64_t tokens_max = 0;
  TruncationSide side = TruncationSide::kRight;

  // Every parameter of the module out of `file`.
  Status Read(const TensorFile& file, const char* name);
  Status ReadVocabulary(const std::string& path, bool cased);
};

Status TextPredictor::Parts::Read(const TensorFile& file, const char* name) {
  std::int64_t bytes = 0;
  for (const auto& [unused, tensor] : file.tensors) bytes += std::int64_t(tensor.bytes().size());
  if (ElementCount(*module) > bytes) {  // more than any heads that it lacks
    return InvalidArgument("the model has {} numbers, but {} has {} bytes", ElementCount(*module),
                           name, bytes);
  }
  value.resize(std::size_t(ParameterCount(*module)));
  Result<LoadedWeights> loaded = LoadWeights(*module, file, value);
  if (!loaded.ok()) return loaded.status().WithContext(name);
  if (const std::string unused = DescribeUnused(*loaded); !unused.empty()) {
    LogWarning("{}: {}", name, unused);
  }
  if (!loaded->fresh.empty()) {
    return InvalidArgument("{} has no {}: it was not trained for this; see model.pretrained", name,
                           loaded->fresh.front());
  }
  return Status::Ok();
}

Status TextPredictor::Parts::ReadVocabulary(const std::string& path, bool cased) {
  TROOP_ASSIGN_OR_RETURN(tokenizer, MakeTokenizer(path, {.cased = cased}));
  if (tokenizer->size() > rows) {
    return InvalidArgument("{} has {} pieces, but the model knows {}: it is another model's", path,
                           tokenizer->size(), rows);
  }
  TROOP_RETURN_IF_ERROR(CheckVocabularyWhole(path, tokenizer->size(), rows));
  // Rows beyond the pieces are padding, to a multiple of some power of two as a rule.
  if (tokenizer->size() < rows / 2) {
    LogWarning("{} has {} pieces, and the model knows {}: it may be another model's", path,
               tokenizer->size(), rows);
  }
  if (tokens_max >= 3) return Status::Ok();
  return InvalidArgument("the model takes {} tokens: a text and its ends need 3", tokens_max);
}

Result<TextPredictor::Parts> TextPredictor::FromHuggingFace(const std::string& folder) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(folder));
  TROOP_ASSIGN_OR_RETURN(const Pretrained there, ReadPretrained(storage.get(), ""));
  const TransformerOptions& options = there.options;
  const bool classifies = options.head == TransformerHead::kClassifier;
  if (options.head == TransformerHead::kPooled || (classifies && options.classes < 2)) {
    return InvalidArgument(
        "config.json is neither that of a classifier of 2 classes or more (architectures: "
        "…ForSequenceClassification) nor that of a masked LM (…ForMaskedLM)");
  }
  TROOP_ASSIGN_OR_RETURN(const Buffer config, storage->Read("config.json", kJsonBytesMax));
  TROOP_ASSIGN_OR_RETURN(const JsonValue json, ParseJson(config.text()));
  const JsonValue* const problem = json.Find("problem_type");
  if (classifies && problem != nullptr && problem->kind != JsonValue::Kind::kNull &&
      problem->string != "single_label_classification") {
    return InvalidArgument(
        "config.json: \"problem_type\" is \"{}\": only single_label_classification, one class of "
        "several, is supported",
        problem->string);
  }
  const std::string vocabulary = VocabularyIn(folder);
  if (vocabulary.empty()) {
    return NotFound("neither vocab.txt nor spiece.model is there: copy the model's to it");
  }
  TROOP_ASSIGN_OR_RETURN(const auto read, ReadTokenizerSettings(folder));
  const TokenizerSettings settings = read.value_or(TokenizerSettings());
  Parts parts{.masked = !classifies,
              .rows = options.config.vocabulary,
              .tokens_max = std::min(options.config.positions, settings.tokens_max),
              .side = settings.side};
  TROOP_ASSIGN_OR_RETURN(parts.module, MakeTransformer(options));
  TROOP_RETURN_IF_ERROR(parts.Read(there.weights, "model.safetensors"));
  if (classifies) parts.names = NamesOfClasses(json.Find("id2label"), options.classes);
  TROOP_RETURN_IF_ERROR(parts.ReadVocabulary(vocabulary, settings.cased));
  return parts;
}

Result<TextPredictor::Parts> TextPredictor::FromCheckpoint(const std::string& run,
                                                           const std::string& name) {
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(run));
  std::string path = name;
  if (path.empty()) {
    TROOP_ASSIGN_OR_RETURN(path, NewestCheckpoint(storage.get()));
  }
  TROOP_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpoint(storage.get(), path));
  TROOP_ASSIGN_OR_RETURN(const Config config,
                         ParseConfig(state.config_toml, path + "/state.json", {}));
  if (!IsSupervised(config)) {
    return InvalidArgument(
        "{} learned with {} and plays {}: only classifier and masked_lm answer texts; try troop "
        "eval",
        path, config.learner.algorithm, config.env.id);
  }
  Parts parts{.masked = config.learner.algorithm == "masked_lm",
              .rows = config.model.vocabulary,
              .tokens_max = std::min(config.model.positions, config.data.tokens_max),
              .side = SideOf(config.data.truncation_side)};
  TROOP_ASSIGN_OR_RETURN(parts.module, MakeTextModel(config));
  const std::string weights = path + "/weights.safetensors";
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, storage->Map(weights));
  TROOP_ASSIGN_OR_RETURN(const TensorFile file, DecodeSafetensors(bytes));
  TROOP_RETURN_IF_ERROR(parts.Read(file, weights.c_str()));
  if (!parts.masked) parts.names = NamesOfClasses(nullptr, 2);
  std::string vocabulary = VocabularyIn(fs::path(run) / kModelFolder);
  if (vocabulary.empty()) vocabulary = config.data.vocabulary;
  TROOP_RETURN_IF_ERROR(parts.ReadVocabulary(vocabulary, config.data.cased));
  return parts;
}

Result<std::unique_ptr<TextPredictor>> TextPredictor::Load(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // of "run/"
  if (!fs::is_directory(folder, error)) {
    return NotFound("{}: {}", path,
                    fs::exists(folder, error) ? "a file; give its folder" : "no such folder");
  }
  const auto load = [&]() -> Result<Parts> {
    if (IsFile(folder / "config.json")) return FromHuggingFace(folder.string());
    if (IsFile(folder / "checkpoints") || IsFile(folder / "config.toml")) {
      return FromCheckpoint(folder.string(), "");
    }
    if (IsFile(folder / "manifest.json")) {
      const fs::path run = folder.parent_path().parent_path();
      return FromCheckpoint(run.string(), folder.lexically_relative(run).string());
    }
    return NotFound(
        "neither a run (no checkpoints/), nor a checkpoint (no manifest.json), nor a model of "
        "Hugging Face's (no config.json)");
  };
  Result<Parts> parts = load();
  if (!parts.ok()) return In(path, parts.status());
  return std::unique_ptr<TextPredictor>(new TextPredictor(*std::move(parts)));
}

TextPredictor::TextPredictor(Parts parts)
    : module_(std::move(parts.module)),
      tokenizer_(std::move(parts.tokenizer)),
      value_(std::move(parts.value)),
      packed_(module_->MakePacked(Precision::kF32)),
      names_(std::move(parts.names)),
      masked_(parts.masked),
      tokens_max_(parts.tokens_max),
      side_(parts.side),
      step_(module_.get(), masked_ ? parts.rows : 0) {
  module_->Pack(value_, packed_.get());
}

// Without its ends.
std::vector<TokenId> TextPredictor::Encode(std::string_view text) const {
  std::vector<TokenId> ids;
  for (std::size_t mask; masked_ && (mask = text.find(kMask)) != text.npos;) {
    tokenizer_->Encode(text.substr(0, mask), &ids);
    ids.push_back(tokenizer_->special().mask);
    text.remove_prefix(mask + kMask.size());
  }
  tokenizer_->Encode(text, &ids);
  return ids;
}

std::vector<Likely> TextPredictor::BestWords(std::span<const float> logits) const {
  // Rows without a piece are no words.
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

Result<TextAnswer> TextPredictor::Predict(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return InvalidArgument("a text of {} bytes: at most {} are answered at once", text.size(),
                           kTextBytesMax);
  }
  std::vector<TokenId> ids = Encode(text);
  const std::size_t kept = std::min(ids.size(), std::size_t(tokens_max_) - 2);
  TextAnswer answer{.cut = std::int64_t(ids.size() - kept), .empty = ids.empty()};
  if (side_ == TruncationSide::kLeft) ids.erase(ids.begin(), ids.end() - std::ptrdiff_t(kept));
  ids.resize(kept);
  const SpecialTokens& special = tokenizer_->special();
  ids.insert(ids.begin(), special.begin);
  ids.push_back(special.end);
  answer.tokens = std::int64_t(ids.size());
  answer.unknown = std::ranges::count(ids, special.unknown);
  TextBatch batch{.ids = std::move(ids), .starts = {0, std::int32_t(answer.tokens)}};
  for (std::size_t i = 0; masked_ && i < batch.ids.size(); ++i) {
    if (batch.ids[i] == special.mask) batch.places.push_back(std::int32_t(i));
  }
  const std::size_t rows = masked_ ? batch.places.size() : 1;
  if (answer.empty || rows == 0) return answer;
  batch.labels.assign(rows, 0);  // any: what the loss would be is not asked
  TROOP_RETURN_IF_ERROR(step_.Forward({value_, packed_.get()}, batch).status());
  const std::span<const float> logits = step_.logits();
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); })) {
    return DataLoss(
        "the model gives numbers that are not finite for this text: its weights are damaged, or "
        "training diverged; use an earlier checkpoint");
  }
  const std::size_t columns = logits.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto one = logits.subspan(row * columns, columns);
    if (masked_) {
      answer.masks.push_back(BestWords(one));
      continue;
    }
    const std::vector<double> p = Softmax(one);
    for (std::size_t i = 0; i < columns; ++i) answer.classes.push_back({names_[i], p[i]});
  }
  return answer;
}

}  // namespace troop
