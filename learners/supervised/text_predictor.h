#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/problem_type.h"
#include "datasets/tokenizers/tokenizer.h"
#include "learners/checkpoint.h"
#include "learners/linear/model/linear_texts.h"
#include "learners/supervised/text_step.h"
#include "learners/training_config.h"

namespace troop {

// A token or a class with its probability.
struct Likely {
  std::string name;
  double probability = 0;
};

// A text to predict, or a pair of texts. Views, valid for one call.
struct TextInput {
  std::string_view text;
  std::optional<std::string_view> pair = {};
};

// Prediction for one text.
struct TextAnswer {
  // Input tokens, including both special tokens; of a linear model: the text's features.
  std::int64_t tokens = 0;
  std::int64_t unknown = 0;     // of them, not in the vocabulary
  std::int64_t cut = 0;         // tokens truncated at the model's limit
  bool empty = false;           // only special tokens or spaces: no prediction
  std::int64_t rows = 0;        // predictions: 1 of a classifier, one per [MASK]
  std::vector<Likely> classes;  // classifier: all classes in the model's order; their
                                // probabilities have the sum 1, or with kMultiLabel any sum
  std::optional<double> value;  // regression
  std::vector<std::vector<Likely>> masks;  // masked LM: the best tokens for each [MASK]
  // The most likely class. REQUIRES: `classes` is not empty.
  const Likely& best() const;
  // Names of the classes whose probability exceeds 1/2: the answer of kMultiLabel.
  std::vector<std::string> labels() const;
};

// Names of a run's classes by id: model.labels. A run of an earlier version has none, and its two
// classes are sentiments. Unprintable or repeated ones become LABEL_i. Empty for a regression.
std::vector<std::string> NamesOfClasses(const ModelConfig& model);

// Parses the config of a run, as its checkpoints have it (CheckpointState). file_name: of the text,
// for messages. Errors: those of a damaged or unknown config.
using SavedConfigParser = std::function<Result<TrainingConfig>(std::string_view config_toml,
                                                               const std::string& file_name)>;

// A trained text model with its vocabulary. Computes in f32, or in bf16 if the checkpoint's run did
// (network.precision), as its evaluations. One owner thread; Encode and PredictEncoded with
// different TextSteps may run at the same time.
class TextPredictor {
 public:
  // Loads a model from a folder that contains one of:
  //   config.json, model.safetensors, and the first of vocab.txt, spiece.model, vocab.json with
  //                    merges.txt, tokenizer.json: as transformers saves them (with do_lower_case,
  //                    add_prefix_space, model_max_length, truncation_side and
  //                    text_columns of tokenizer_config.json), or a run's model/
  //   config.json, model.safetensors, terms.txt: a linear model, as its run's model/ has it
  //   manifest.json    a checkpoint of a supervised run (learners/checkpoint.h)
  //   checkpoints/     a supervised run, of which the newest complete checkpoint is used, or by
  //                    `choice` the best one; only here kBest is permitted
  // A checkpoint's vocabulary is that in the run's model/, or else data.vocabulary; a linear model
  // needs model/, which a run writes when it ends. Only reads, and blocks on the disk. parse: the
  // configs of checkpoints. Errors, with the path: kNotFound: the folder or a file in it is
  // missing; kDataLoss: damaged; kInvalidArgument: not a text model, or the vocabulary has more
  // tokens than the model; those of `parse`.
  static Result<std::unique_ptr<TextPredictor>> Load(
      const std::string& path, const SavedConfigParser& parse,
      CheckpointChoice choice = CheckpointChoice::kNewest);

  // Predicts classes, a number or masked tokens. A text of more than max_length() tokens is
  // truncated on the side that the model was trained with. For a masked LM each "[MASK]" in the
  // text (RoBERTa: "<mask>") is predicted. Errors: kInvalidArgument: more than a gigabyte;
  // kDataLoss: a logit is NaN or infinite.
  Result<TextAnswer> Predict(const TextInput& input);
  // Predicts several texts in one forward pass. Returns one answer for each, in their order. Memory
  // and time grow with the sum of their tokens. Errors: those of Predict, for any of them.
  Result<std::vector<TextAnswer>> PredictAll(std::span<const TextInput> texts);

  // The two parts of PredictAll. A text as model input, with the counts of its answer.
  struct EncodedText {
    std::vector<TokenId> ids;   // with the special tokens; of a linear model: columns
    std::vector<float> values;  // of a linear model: of the columns; else empty
    std::int32_t second = 0;    // index of the first token of the second text of a pair; 0: none
    TextAnswer answer;
  };
  // Tokenizes a text, or a pair as [CLS] text [SEP] pair [SEP], of which the longer text is
  // truncated first. Errors: those of Predict and CheckForm.
  Result<EncodedText> Encode(const TextInput& input) const;
  // Predicts encoded texts in one forward pass, and completes their answers. step: of MakeStep, one
  // per thread. Errors: kDataLoss: a logit is NaN or infinite.
  Status PredictEncoded(std::span<EncodedText* const> texts, TextStep* step) const;
  std::unique_ptr<TextStep> MakeStep() const;

  // True for a linear model, whose inputs are features instead of tokens.
  bool linear() const { return linear_ != nullptr; }
  const std::vector<std::string>& class_names() const { return names_; }
  bool masked() const { return masked_; }
  // The text that stands for a token to predict: "[MASK]", or RoBERTa's "<mask>".
  std::string_view mask() const { return tokenizer_->piece(tokenizer_->special().mask); }
  // Kind of the predictions. REQUIRES: not masked().
  ProblemType problem() const { return problem_; }
  std::int64_t max_length() const { return tokens_max_; }
  // Rejects a pair of texts for a model of single texts or for a masked LM, and a single text for a
  // model of pairs. A model that does not state its form takes both. Errors: kInvalidArgument.
  Status CheckForm(bool pair) const;
  // True if the model was trained on pairs of texts; nullopt: not stated.
  std::optional<bool> pairs() const { return pairs_; }
  // data.text_columns of the run; empty: not set, or another model.
  const std::vector<std::string>& text_columns() const { return text_columns_; }
  // data.delimiter of the run; empty: not set, or another model.
  const std::string& delimiter() const { return delimiter_; }

 private:
  struct Parts;
  explicit TextPredictor(Parts parts);
  static Result<Parts> FromHuggingFace(const std::string& folder);
  static Result<Parts> FromCheckpoint(const std::string& run, const FoundCheckpoint& found,
                                      const SavedConfigParser& parse);
  static Parts FromLinear(std::shared_ptr<const LinearTexts> linear);
  static Result<Parts> FromLinearCheckpoint(const std::string& run, const FoundCheckpoint& found,
                                            const TrainingConfig& config);
  EncodedText EncodeFeatures(std::string_view text) const;
  std::vector<TokenId> Tokenize(std::string_view text) const;
  void Assemble(std::vector<TokenId> first, std::optional<std::vector<TokenId>> second,
                EncodedText* text) const;
  void Append(const EncodedText& text, TextBatch* batch) const;
  Status TakeLogits(std::span<const float> logits, std::size_t rows, TextAnswer* answer) const;
  std::vector<Likely> BestWords(std::span<const float> logits) const;

  const std::unique_ptr<Module> module_;              // nullptr: a linear model
  const std::shared_ptr<const Tokenizer> tokenizer_;  // nullptr: a linear model
  const std::shared_ptr<const LinearTexts> linear_;   // nullptr: another model
  const std::vector<std::string> text_columns_;
  const std::string delimiter_;
  const std::optional<bool> pairs_;
  const std::vector<float> value_;  // [P]
  const std::unique_ptr<Packed> packed_;
  const std::vector<std::string> names_;  // of the classes
  const bool masked_;
  const ProblemType problem_;
  const std::int64_t rows_;   // of the word embedding table
  const std::int64_t types_;  // token types
  const std::int64_t tokens_max_;
  const TruncationSide side_;
  const std::unique_ptr<TextStep> step_;
};

}  // namespace troop
