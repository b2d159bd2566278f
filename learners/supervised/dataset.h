#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "datasets/text/tokenized_dataset.h"
#include "datasets/tokenizers/tokenizer.h"
#include "learners/training_config.h"

namespace troop {

// Training and evaluation data of a supervised run. Immutable, so usable from any thread. A
// sample's random numbers are keyed by its index in `train`, independent of the learner that
// computes it.
struct ReviewData {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenizedDataset train;  // without the validation_split; masked_lm: includes unlabeled texts
  std::vector<std::int32_t> lengths;  // of the sequences in train
  TokenizedDataset validation_split;  // evaluated during training; if empty: `test`
  TokenizedDataset test;              // evaluated at the end; if empty: `validation_split`
  std::vector<std::string> names;     // classes by id; regression, masked_lm of tables: none

  // True if the examples are pairs of texts.
  bool pairs() const;
  // Human-readable fingerprint: the sizes, and a checksum of all tokens and labels in order and of
  // the tokenizer. Learners may share batches if it is equal. O(tokens).
  std::string Identity() const;
};

// Reads the data set named by config.data, from its cache if possible. The classes are those of
// config.model.labels, or learned from the training examples. Blocks on the disk. Errors: as
// MakeTokenizer and TokenizeSources; kInvalidArgument: no training examples are left, or the data
// do not match config.data_identity.
Result<std::shared_ptr<const ReviewData>> LoadReviewData(const TrainingConfig& config);

// The sets that are split off from the training examples; the numbers belong to random streams.
enum class HeldPart : std::uint64_t { kValidation = 0, kTest = 1 };
// Selects a random share `held` of the samples, stratified by class, keyed by the run's seed.
// labels: of all samples; those without class, -1, are one stratum. O(samples).
std::vector<bool> HeldOut(std::span<const std::int32_t> labels, double held, std::uint64_t seed,
                          HeldPart part);

// Settings of a supervised run that depend on its data. Members have the names of their keys.
struct DataSettings {
  std::string data_identity;              // ReviewData::Identity
  std::int64_t vocab_size = 0;            // model.vocab_size
  std::vector<std::string> labels;        // model.labels; masked_lm: unchanged
  double output_bias = 0;                 // model.output_bias
  std::vector<std::string> text_columns;  // data.text_columns; masked_lm: unchanged
  // model.image_*; 0 for texts
  std::int64_t image_height = 0, image_width = 0, image_channels = 0;
  std::int64_t num_features = 0;                // model.num_features; 0 for other models
  std::int64_t push_every = 1, pull_every = 1;  // paramserver.*; 0 becomes one epoch
  std::int64_t max_updates = 0;                 // run.max_updates, within run.epochs
  double total_steps = 0;                       // run.total_steps, in examples
};
// Sets the members of *settings that follow from the number of training examples: push_every,
// pull_every, max_updates and total_steps.
void SetRunLength(const TrainingConfig& config, std::int64_t samples, DataSettings* settings);
// Finds data.text_columns in the tables among the sources, if they are not set; empty: no tables.
// Errors: kInvalidArgument: tables have different columns.
Result<std::vector<std::string>> ResolvedTextColumns(const TrainingConfig& config);
// Derives them from the data, before the run starts; config.data_identity is ignored. Also fills
// the cache, so that no role has to. REQUIRES: a supervised config, with the number of learners of
// its mesh. Errors: as CheckPretrained and LoadReviewData; kInvalidArgument: the vocabulary's size
// differs from model.vocab_size, or tables have different text columns.
Result<DataSettings> DeriveDataSettings(const TrainingConfig& config);
// Checks that the folder model.pretrained exists, if it is set. Errors: kNotFound.
Status CheckPretrained(const ModelConfig& model);

// Rejects a truncated vocabulary: one with fewer pieces than the model has rows (padded tables have
// fewer, too) whose file also ends within a line. Errors: kInvalidArgument.
Status CheckVocabularyWhole(const std::string& path, std::int64_t pieces, std::int64_t rows);

// Number of batches in one pass over `samples`.
std::int64_t BatchesOfEpoch(const TrainingConfig& config, std::int64_t samples);
// Converts between updates and batches, which all workers share. BatchesOfUpdates rounds down;
// UpdatesOfBatches returns the smallest number of updates that use that many. The ratio is 1,
// unless parameter shards apply each push (async), k pushes, or pushes of several batches'
// gradients (paramserver.push_every).
std::uint64_t BatchesOfUpdates(const TrainingConfig& config, std::uint64_t updates);
std::uint64_t UpdatesOfBatches(const TrainingConfig& config, std::uint64_t batches);

}  // namespace troop
