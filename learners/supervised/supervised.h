#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/time.h"
#include "core/storage/storage.h"
#include "datasets/text/length_bucketing.h"
#include "learners/algorithm.h"
#include "learners/supervised/dataset.h"
#include "learners/supervised/model_shard.h"
#include "learners/supervised/text_step.h"
#include "learners/train_state.h"

namespace troop {

// Order of the samples. A batch's samples follow from the config, the data and the batch's number,
// so that any number of learners sees the same epochs, and a resumed run continues exactly.
class BatchSchedule {
 public:
  // lengths: of the samples, in any unit; those of a batch are similar. Equal lengths: a plain
  // shuffle.
  BatchSchedule(const TrainingConfig& config, std::vector<std::int32_t> lengths);
  struct Batch {
    std::int64_t epoch = 0;
    std::uint64_t number = 0;  // of the batch, since the start of the run; the key of dropout
    std::span<const std::int32_t> samples;  // indices into the lengths, valid until the next call
  };
  // The batch of that number, counted from 0.
  Batch BatchOf(std::uint64_t number);

 private:
  const TrainingConfig config_;
  const std::vector<std::int32_t> lengths_;
  std::optional<BucketBatchSampler> order_;
  std::int64_t epoch_ = -1;  // of order_
};

// Makes model inputs from samples: with class labels, or with masked tokens.
class TextCollator {
 public:
  TextCollator(const TrainingConfig& config, std::shared_ptr<const Tokenizer> tokenizer);
  // A batch for training. set: data.train.
  TextBatch ForTraining(const TokenizedDataset& set, std::span<const std::int32_t> samples,
                        const BatchSchedule::Batch& batch) const;
  // A batch for evaluation: no dropout, and the same tokens are masked each time.
  TextBatch ForJudging(const TokenizedDataset& set, std::span<const std::int32_t> samples) const;
  // Number of labels that ForTraining makes for these samples.
  std::int64_t LabelsOf(const TokenizedDataset& set, std::span<const std::int32_t> samples,
                        const BatchSchedule::Batch& batch) const;
  std::int64_t words() const { return masked_ ? words_ : 0; }  // as TextStep has it

 private:
  TextBatch Make(PackedBatch packed, std::int64_t epoch) const;

  const bool masked_;
  const double word_dropout_;
  const std::int64_t words_;
  const bool segments_;  // the model distinguishes the two texts of a pair
  const std::uint64_t seed_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
};

// One learner's share of the updates that all learners make: its part of each batch (SplitBatch),
// processed as micro-batches of learner.micro_batch_size reviews. One owner thread.
class DistributedSampler {
 public:
  DistributedSampler(const TrainingConfig& config, std::shared_ptr<const ReviewData> data);
  void SetRank(int rank, int ranks);
  void SetTrainingProgress(const TrainingProgress& training_progress) {
    training_progress_ = training_progress;
  }
  // Progress of the run before the next update, after `updates` updates.
  double Progress(std::uint64_t updates) const;
  const TextCollator& batches() const { return batches_; }
  // scale: factor of the gradient, so that the mean over the learners is the gradient of the
  // batch's mean loss. last: the last micro-batch.
  using Use = std::function<Status(const TextBatch& text, float scale, bool last)>;
  // Calls `use` for each micro-batch of the update after `updates`, except those without a label;
  // adds the seconds spent on making them to *data_s. Errors: those of `use`.
  Status ForEach(std::uint64_t updates, double* data_s, const Use& use);
  // Prepares the micro-batches of the following update while a device computes.
  void MakeAhead(std::uint64_t updates);

 private:
  const TrainingConfig config_;
  const std::shared_ptr<const ReviewData> data_;
  const SystemClock clock_;  // only for the report; results do not depend on it
  // This learner's samples of one update, cut into micro-batches.
  struct Pieces {
    int rank = 0, ranks = 0;
    BatchSchedule::Batch batch;
    std::vector<std::int32_t> samples;
    float scale = 1;
    std::vector<std::int32_t> labels;  // of the whole batch; only with class weights
    std::vector<TextBatch> ahead;      // micro-batches made ahead
  };
  std::uint64_t BatchBehind(std::uint64_t updates) const {
    return training_progress_ ? training_progress_->batches : updates;
  }
  Pieces Begin(std::uint64_t number);
  TextBatch Make(const Pieces& pieces, std::size_t first) const;
  std::size_t micro(const Pieces& pieces) const;

  BatchSchedule order_;
  const TextCollator batches_;
  std::vector<float> class_weights_;   // empty: none
  std::vector<std::int32_t> classes_;  // of the training examples; only with class weights
  int rank_ = 0, ranks_ = 1;
  std::optional<TrainingProgress> training_progress_;  // nullopt: update n uses batch n
  std::optional<Pieces> ahead_;
};

// A TrainState with a text model's parameter groups, as config.optimizer trains them.
Result<std::unique_ptr<TrainState>> MakeTextTrainState(const TrainingConfig& config,
                                                       const Module* module);

// Initial weights of a run: random by the seed, then overwritten by model.pretrained, if it is set.
// Errors: those of MakeSupervised about it.
Status FirstWeights(const TrainingConfig& config, const Module& whole, std::span<float> value);
// Reports the same errors before a run: reads model.pretrained completely. REQUIRES:
// ResolveSupervised.
Status CheckFirstWeights(const TrainingConfig& config);
// The checks among them that do not depend on the model's sizes: the files exist and are readable.
Status CheckPretrainedFiles(const TrainingConfig& config);
// Loads this part's weights of model.pretrained, if it is set. Errors: as FirstWeights.
Status BeginPretrained(const TrainingConfig& config, const ModelShard& model, TrainState* trained);

// Trains on reviews: their sentiment, or masked tokens. An update uses one batch of
// learner.batch_size reviews, whose mean loss all learners share: each takes its part (SplitBatch),
// and processes it in micro-batches of learner.micro_batch_size. The batch follows from updates()
// alone; the SampleBatch argument is only a permission to update, and its single priority has no
// meaning. The learning rate follows updates() / run.max_updates. Deterministic: the same updates
// at the same ranks give the same bytes.
//
// tensor: the part of the model to train, together with the ranks that hold the others
// (SetTensorGroup); value(), gradient() and State() are the part's. SetState accepts the state of a
// part, or of the whole. Errors: those of ResolveSupervised for the data, and of MakeTextModel; for
// model.pretrained those of ReadPretrained and LoadWeights, and kInvalidArgument if its sizes
// differ.
Result<std::unique_ptr<Algorithm>> MakeSupervised(const TrainingConfig& config,
                                                  const TensorParallelRank& tensor = {},
                                                  int learner = 0);
// MakeSupervised for data already in memory, on the CPU.
Result<std::unique_ptr<Algorithm>> MakeSupervised(const TrainingConfig& config,
                                                  std::shared_ptr<const ReviewData> data,
                                                  const TensorParallelRank& tensor = {});

// The part of a transformer's last layer that is computed only for the tokens that the head reads:
// everything except keys and values, as on the CPU (nn/transformer/transformer.h); or what follows
// the attention, as on a GPU, where one product computes queries, keys and values
// (nn/cuda/transformer.h).
enum class LastLayer : std::uint8_t { kFromQueriesOn, kBehindAttention };
// FLOP of a training step's matrix products, for the whole model, forward and backward, without
// recomputation (model.gradient_checkpointing).
double TrainingFlops(const TrainingConfig& config, const TextBatch& batch, LastLayer last_layer);

// Exports the trained model for other programs and `troop predict`: model/ in the run folder, with
// config.json, model.safetensors, the vocabulary under its transformers names and
// tokenizer_config.json (WriteTokenizer); of an image classifier the files of WriteImageModel. An
// LSTM is not exported. Blocks on the disk.
Status WriteModel(const TrainingConfig& config, Storage* run, const Module& module,
                  std::span<const float> value);
inline constexpr char kModelFolder[] = "model";

}  // namespace troop
