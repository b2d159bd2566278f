#include "text/token_set.h"

namespace troop {
namespace {

TokenSet Tokenize(const std::vector<Review>& reviews, const Tokenizer& tokenizer,
                  std::int32_t tokens_max, TruncationSide side) {
  TokenSet set;
  set.begins.reserve(reviews.size() + 1);
  set.sentiments.reserve(reviews.size());
  for (const Review& review : reviews) {
    set.Add(EncodeWithEnds(tokenizer, review.text, std::size_t(tokens_max), side),
            review.sentiment);
  }
  return set;
}

}  // namespace

void TokenSet::Add(std::span<const TokenId> tokens, Sentiment sentiment) {
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  begins.push_back(std::int64_t(ids.size()));
  sentiments.push_back(sentiment);
}

TokenizedReviews TokenizeReviews(const Reviews& reviews, const Tokenizer& tokenizer,
                                 std::int32_t tokens_max, TruncationSide side) {
  return {.train = Tokenize(reviews.train, tokenizer, tokens_max, side),
          .test = Tokenize(reviews.test, tokenizer, tokens_max, side),
          .unlabelled = Tokenize(reviews.unlabelled, tokenizer, tokens_max, side)};
}

}  // namespace troop
