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

  // For people and for comparison: how much there is of what, and a checksum of all tokens and
  // labels in their order and of the tokenizer. Equal where learners may share batches. O(tokens).
  std::string Identity() const;
};

// Reads what config.data names, from its cache where that holds it. Blocks on the disk. Errors:
// those of MakeTokenizer and ReadReviews; kInvalidArgument where nothing is left to learn, or where
// the data are not those of config.data_identity.
Result<std::shared_ptr<const ReviewData>> LoadReviewData(const Config& config);

// What a supervised config leaves to its data and its mesh, before the run begins: absolute paths,
// model.vocabulary, learner.total_steps (reviews) and max_updates, fleet.learners, data_identity.
// Also fills the cache, so that no role has to. Errors: those of LoadReviewData; kInvalidArgument:
// a vocabulary of another size than model.vocabulary. Of other configs nothing is changed.
Status ResolveSupervised(Config* config);
// That the folder of model.pretrained is there, where one is named. Errors: kNotFound.
Status CheckPretrained(const Config& config);

// Refuses a vocabulary that has fewer pieces than a model has rows, as padded tables do, and whose
// file ends within a line: it is truncated. Errors: kInvalidArgument.
Status CheckVocabularyWhole(const std::string& path, std::int64_t pieces, std::int64_t rows);

// Batches of one pass over `samples`.
std::int64_t BatchesOfEpoch(const Config& config, std::int64_t samples);
// Batches, shared by all workers, whose gradients `updates` updates take, rounded down; and the
// least updates that take so many. One for one, but where parameter shards make an update of one
// push (async), of k, or of several batches' gradients each (paramserver.push_every).
std::uint64_t BatchesOfUpdates(const Config& config, std::uint64_t updates);
std::uint64_t UpdatesOfBatches(const Config& config, std::uint64_t batches);

}  // namespace troop
