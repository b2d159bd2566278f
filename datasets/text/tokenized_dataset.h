#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "datasets/text/labeled_texts.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Tokenized samples with their labels, laid end to end without padding. A plain value; immutable
// once built.
struct TokenizedDataset {
  std::vector<std::int64_t> begins = {0};  // [N + 1]: sample i is ids begins[i] to begins[i + 1]
  std::vector<TokenId> ids;
  std::vector<std::int32_t> labels;  // [N] class; -1: none, as in multi-label and regression
  std::vector<std::int32_t> second;  // [N] first token of the second segment; 0: there is none
  std::int64_t width = 0;            // targets of a sample: classes (multi-label), 1 or 0
  std::vector<float> targets;        // [N, width]: 0 or 1 (multi-label), or a number (regression)

  // The label of a sample; members as above.
  struct Label {
    std::int32_t label = -1, second = 0;
    std::span<const float> targets{};
  };
  std::int64_t size() const { return std::int64_t(labels.size()); }
  std::int32_t length(std::int64_t i) const { return std::int32_t(begins[i + 1] - begins[i]); }
  std::span<const TokenId> tokens(std::int64_t i) const {
    return std::span(ids).subspan(std::size_t(begins[i]), std::size_t(length(i)));
  }
  Label label(std::int64_t i) const {
    return {labels[i], second[i], std::span(targets).subspan(std::size_t(i * width), width)};
  }
  // Appends a sample. REQUIRES: label.targets has `width` values.
  void Add(std::span<const TokenId> tokens, const Label& label);
  // Appends a sample of a class, or without a label (-1).
  void Add(std::span<const TokenId> tokens, std::int32_t label) { Add(tokens, Label{label}); }
  // Appends sample i of another set. REQUIRES: equal widths.
  void AddFrom(const TokenizedDataset& from, std::int64_t i) { Add(from.tokens(i), from.label(i)); }
  bool operator==(const TokenizedDataset&) const = default;
};

// The sets of a data set as tokens.
struct TokenizedTexts {
  TokenizedDataset train, validation, test, unlabeled;
  std::vector<std::string> names;  // classes by id; regression and unlabeled data: none
  bool operator==(const TokenizedTexts&) const = default;
};

// How examples become tokens.
struct TokenizationOptions {
  std::int32_t max_length = 256;
  TruncationSide side = TruncationSide::kRight;
  ProblemType problem_type = ProblemType::kSingleLabel;
  bool labeled = true;  // false: labels do not matter, and examples without one are kept
};

// Tokenizes texts as [CLS] text [SEP], and pairs as EncodePair does, with at most `max_length`
// tokens. names: the classes; empty: all examples become samples without label.
// Otherwise examples without label are left out of the labeled sets. Errors: kInvalidArgument with
// the line: a label that is not in `names`, or is not a number. REQUIRES: max_length >= 3.
Result<TokenizedTexts> TokenizeTexts(const LabeledTexts& texts,
                                     const std::vector<std::string>& names,
                                     const Tokenizer& tokenizer,
                                     const TokenizationOptions& options);

}  // namespace troop
