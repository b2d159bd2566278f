#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "datasets/text/imdb_reviews.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Tokenized samples, laid end to end without padding. A plain value; immutable once built.
struct TokenizedDataset {
  std::vector<std::int64_t> begins = {0};  // [N + 1]: sample i is ids begins[i] to begins[i + 1]
  std::vector<TokenId> ids;
  std::vector<Sentiment> sentiments;  // [N]

  std::int64_t size() const { return std::int64_t(sentiments.size()); }
  std::int32_t length(std::int64_t i) const { return std::int32_t(begins[i + 1] - begins[i]); }
  std::span<const TokenId> tokens(std::int64_t i) const {
    return std::span(ids).subspan(std::size_t(begins[i]), std::size_t(length(i)));
  }
  // Appends a sample.
  void Add(std::span<const TokenId> tokens, Sentiment sentiment);
  bool operator==(const TokenizedDataset&) const = default;
};

// The three sets of the data set as tokens.
struct TokenizedReviews {
  TokenizedDataset train, test, unlabeled;
  bool operator==(const TokenizedReviews&) const = default;
};

// Tokenizes each review as [CLS] text [SEP] with at most `max_length` tokens. REQUIRES: max_length
// >= 2.
TokenizedReviews TokenizeReviews(const Reviews& reviews, const Tokenizer& tokenizer,
                                 std::int32_t max_length,
                                 TruncationSide side = TruncationSide::kRight);

}  // namespace troop
