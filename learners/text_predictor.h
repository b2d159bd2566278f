#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "learners/text_step.h"
#include "text/tokenizer.h"

namespace troop {

// A word, or a class, and how likely it is.
struct Likely {
  std::string name;
  double probability = 0;
};

// What a model says of a text.
struct TextAnswer {
  std::int64_t tokens = 0;                 // that the model saw, with both ends
  std::int64_t unknown = 0;                // of them, not in the vocabulary
  std::int64_t cut = 0;                    // that it did not see: there were more than it takes
  bool empty = false;                      // no token beside the ends: nothing is said
  std::vector<Likely> classes;             // a classifier's, all of them in the model's order
  std::vector<std::vector<Likely>> masks;  // a masked LM's: of each [MASK] the best words
  // Of `classes`. REQUIRES: there are some.
  const Likely& best() const;
};

// A trained text model with its vocabulary. One owner thread.
class TextPredictor {
 public:
  // Of what is in a folder:
  //   config.json, model.safetensors, and vocab.txt or spiece.model   as transformers saves them
  //                                   (with do_lower_case, model_max_length and truncation_side
  //                                   of tokenizer_config.json), or a run's model/
  //   manifest.json    a checkpoint of a supervised run (learners/checkpoint.h)
  //   checkpoints/     such a run: its newest whole one
  // A checkpoint's vocabulary is that in the run's model/, or where there is none data.vocabulary.
  // Blocks on the disk; changes nothing there. Errors, with the path: kNotFound: no such folder, or
  // a file is missing in it; kDataLoss: damaged; kInvalidArgument: a model that answers no text, or
  // a vocabulary with more words than the model has.
  static Result<std::unique_ptr<TextPredictor>> Load(const std::string& path);

  // Of a text of more than tokens_max() tokens the end is left out, or the beginning, as the model
  // was trained. Of a masked LM each "[MASK]" in it is a word that
  // is asked for. Errors: kInvalidArgument: more than a gigabyte; kDataLoss: a logit is NaN or
  // infinite.
  Result<TextAnswer> Predict(std::string_view text);
  bool masked() const { return masked_; }
  std::int64_t tokens_max() const { return tokens_max_; }

 private:
  struct Parts;
  explicit TextPredictor(Parts parts);
  static Result<Parts> FromHuggingFace(const std::string& folder);
  static Result<Parts> FromCheckpoint(const std::string& run, const std::string& name);
  std::vector<TokenId> Encode(std::string_view text) const;
  std::vector<Likely> BestWords(std::span<const float> logits) const;

  const std::unique_ptr<Module> module_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::vector<float> value_;  // [P]
  const std::unique_ptr<Packed> packed_;
  const std::vector<std::string> names_;  // of classes
  const bool masked_;
  const std::int64_t tokens_max_;
  const TruncationSide side_;
  TextStep step_;
};

}  // namespace troop
