// Tokenizes the review sets, with one progress line for all of them.

#include "datasets/text/tokenized_dataset.h"

#include "core/base/phase_progress.h"

namespace troop {
namespace {

// Tokenizes one set. done: reviews of all sets so far, for the shared progress line.
TokenizedDataset Tokenize(const std::vector<Review>& reviews, const Tokenizer& tokenizer,
                          std::int32_t max_length, TruncationSide side, PhaseProgress* progress,
                          std::int64_t* done) {
  TokenizedDataset set;
  set.begins.reserve(reviews.size() + 1);
  set.sentiments.reserve(reviews.size());
  for (const Review& review : reviews) {
    set.Add(EncodeWithSpecialTokens(tokenizer, review.text, std::size_t(max_length), side),
            review.sentiment);
    progress->Show(++*done);
  }
  return set;
}

}  // namespace

// Samples are contiguous in `ids`; begins[i + 1] is the end of sample i.
void TokenizedDataset::Add(std::span<const TokenId> tokens, Sentiment sentiment) {
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  begins.push_back(std::int64_t(ids.size()));
  sentiments.push_back(sentiment);
}

TokenizedReviews TokenizeReviews(const Reviews& reviews, const Tokenizer& tokenizer,
                                 std::int32_t max_length, TruncationSide side) {
  const std::size_t total = reviews.train.size() + reviews.test.size() + reviews.unlabeled.size();
  PhaseProgress progress("tokenizing", "reviews", std::int64_t(total));
  std::int64_t done = 0;
  const auto tokenize = [&](const std::vector<Review>& set) {
    return Tokenize(set, tokenizer, max_length, side, &progress, &done);
  };
  // One counter for all sets: the progress line shows the share of all reviews.
  return {.train = tokenize(reviews.train),
          .test = tokenize(reviews.test),
          .unlabeled = tokenize(reviews.unlabeled)};
}

}  // namespace troop
