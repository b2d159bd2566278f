#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"
#include "learners/checkpoint.h"
#include "learners/supervised/text_step.h"
#include "learners/training_config.h"

namespace troop {

// A token or a class with its probability.
struct Likely {
  std::string name;
  double probability = 0;
};

// Prediction for one text.
struct TextAnswer {
  std::int64_t tokens = 0;                 // input tokens, including both special tokens
  std::int64_t unknown = 0;                // of them, not in the vocabulary
  std::int64_t cut = 0;                    // tokens truncated at the model's limit
  bool empty = false;                      // only special tokens: no prediction
  std::int64_t rows = 0;                   // predictions: 1 of a classifier, one per [MASK]
  std::vector<Likely> classes;             // classifier: all classes in the model's order
  std::vector<std::vector<Likely>> masks;  // masked LM: the best tokens for each [MASK]
  // The most likely class. REQUIRES: `classes` is not empty.
  const Likely& best() const;
};

// Parses the config of a run, as its checkpoints have it (CheckpointState). file_name: of the text,
// for messages. Errors: those of a damaged or unknown config.
using SavedConfigParser = std::function<Result<TrainingConfig>(std::string_view config_toml,
                                                               const std::string& file_name)>;

// A trained text model with its vocabulary. One owner thread.
class TextPredictor {
 public:
  // Loads a model from a folder that contains one of:
  //   config.json, model.safetensors, and the first of vocab.txt, spiece.model, vocab.json with
  //                    merges.txt, tokenizer.json: as transformers saves them (with do_lower_case,
  //                    add_prefix_space, model_max_length and truncation_side of
  //                    tokenizer_config.json), or a run's model/
  //   manifest.json    a checkpoint of a supervised run (learners/checkpoint.h)
  //   checkpoints/     a supervised run, of which the newest complete checkpoint is used, or by
  //                    `choice` the best one; only here kBest is permitted
  // A checkpoint's vocabulary is that in the run's model/, or else data.vocabulary. Only reads, and
  // blocks on the disk. parse: the configs of checkpoints. Errors, with the path: kNotFound: the
  // folder or a file in it is missing; kDataLoss: damaged; kInvalidArgument: not a text model, or
  // the vocabulary has more tokens than the model; those of `parse`.
  static Result<std::unique_ptr<TextPredictor>> Load(
      const std::string& path, const SavedConfigParser& parse,
      CheckpointChoice choice = CheckpointChoice::kNewest);

  // Predicts classes or masked tokens. A text of more than max_length() tokens is truncated on the
  // side that the model was trained with. For a masked LM each "[MASK]" in the text (RoBERTa:
  // "<mask>") is predicted. Errors: kInvalidArgument: more than a gigabyte; kDataLoss: a logit is
  // NaN or infinite.
  Result<TextAnswer> Predict(std::string_view text);
  // Predicts several texts in one forward pass. Returns one answer for each, in their order. Memory
  // and time grow with the sum of their tokens. Errors: those of Predict, for any of them.
  Result<std::vector<TextAnswer>> PredictAll(std::span<const std::string_view> texts);
  const std::vector<std::string>& class_names() const { return names_; }
  bool masked() const { return masked_; }
  std::int64_t max_length() const { return tokens_max_; }

 private:
  struct Parts;
  explicit TextPredictor(Parts parts);
  static Result<Parts> FromHuggingFace(const std::string& folder);
  static Result<Parts> FromCheckpoint(const std::string& run, const FoundCheckpoint& found,
                                      const SavedConfigParser& parse);
  std::vector<TokenId> Encode(std::string_view text) const;
  Result<TextAnswer> Append(std::string_view text, TextBatch* batch) const;
  Status TakeLogits(std::span<const float> logits, std::size_t rows, TextAnswer* answer) const;
  std::vector<Likely> BestWords(std::span<const float> logits) const;

  const std::unique_ptr<Module> module_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<float> value_;  // [P]
  const std::unique_ptr<Packed> packed_;
  const std::vector<std::string> names_;  // of the classes
  const bool masked_;
  const std::int64_t tokens_max_;
  const TruncationSide side_;
  TextStep step_;
};

}  // namespace troop
