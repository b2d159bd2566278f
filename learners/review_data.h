#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config.h"
#include "text/token_set.h"
#include "text/tokenizer.h"

namespace troop {

// What a supervised run learns and is judged by. Immutable: any thread. A sample's index in `train`
// is what its random numbers are keyed by, whoever computes it.
struct ReviewData {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenSet train;                     // without those held out; masked_lm: the unlabelled, too
  std::vector<std::int32_t> lengths;  // of train
  TokenSet holdout;                   // judged by while training; where there is none: `test`
  TokenSet test;                      // judged by in the end; where there is none: `holdout`
};

// Reads what config.data names, from its cache where that holds it. Blocks on the disk. Errors:
// those of MakeTokenizer and ReadReviews; kInvalidArgument where nothing is left to learn.
Result<std::shared_ptr<const ReviewData>> LoadReviewData(const Config& config);

// What a supervised config leaves to its data and its mesh, before the run begins: absolute paths,
// model.vocabulary, learner.total_steps (reviews) and max_updates, fleet.learners. Also fills the
// cache, so that no role has to. Errors: those of LoadReviewData; kInvalidArgument: a vocabulary of
// another size than model.vocabulary. Of other configs nothing is changed.
Status ResolveSupervised(Config* config);

// Updates of one pass over `samples`. Where each learner's gradient is applied by itself, more are
// made of as many reviews.
std::int64_t UpdatesOfEpoch(const Config& config, std::int64_t samples);
// Updates that share a batch: the learners' own, one after the other, or 1.
std::int64_t UpdatesOfBatch(const Config& config);

}  // namespace troop
