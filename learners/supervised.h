#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/storage.h"
#include "core/time.h"
#include "learners/algorithm.h"
#include "learners/model_part.h"
#include "learners/review_data.h"
#include "learners/text_step.h"
#include "learners/trained_network.h"
#include "text/length_batches.h"

namespace troop {

// Which samples a batch has: it follows from the config, the data and the batch's number, so that
// any number of learners sees the same epochs, and a run goes on exactly where it was.
class UpdateOrder {
 public:
  UpdateOrder(const Config& config, std::shared_ptr<const ReviewData> data);
  struct Batch {
    std::int64_t epoch = 0;
    std::uint64_t number = 0;  // of the batch, since the run's beginning: what dropout is keyed by
    std::span<const std::int32_t> samples;  // of data.train, until the next call
  };
  // number: from 0.
  Batch BatchOf(std::uint64_t number);

 private:
  const Config config_;
  const std::shared_ptr<const ReviewData> data_;
  std::optional<EpochOrder> order_;
  std::int64_t epoch_ = -1;  // of order_
};

// Makes what a model takes of samples: with classes as labels, or with words masked.
class TextBatches {
 public:
  TextBatches(const Config& config, std::shared_ptr<const Tokenizer> tokenizer);
  // What training sees. set: data.train.
  TextBatch ForTraining(const TokenSet& set, std::span<const std::int32_t> samples,
                        const UpdateOrder::Batch& batch) const;
  // Nothing is dropped, and the same words are masked each time.
  TextBatch ForJudging(const TokenSet& set, std::span<const std::int32_t> samples) const;
  // Labels that training asks for of these samples.
  std::int64_t LabelsOf(const TokenSet& set, std::span<const std::int32_t> samples,
                        const UpdateOrder::Batch& batch) const;
  std::int64_t words() const { return masked_ ? words_ : 0; }  // as TextStep has it

 private:
  TextBatch Make(PackedBatch packed, std::int64_t epoch) const;

  const bool masked_;
  const double word_dropout_;
  const std::int64_t words_;
  const std::uint64_t seed_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
};

// What a learner takes of the updates that all learners make: its part of each batch (SplitBatch),
// and of its part learner.micro_batch reviews at a time. One owner thread.
class LearnerShare {
 public:
  LearnerShare(const Config& config, std::shared_ptr<const ReviewData> data);
  void SetPlace(int rank, int ranks);
  void SetCourse(const Algorithm::Course& course) { course_ = course; }
  // Before the update after `updates`.
  double Progress(std::uint64_t updates) const;
  const TextBatches& batches() const { return batches_; }
  // scale: of its losses' gradient, so that the mean over the learners is that of the batch's mean
  // loss. last: nothing comes behind it.
  using Use = std::function<Status(const TextBatch& text, float scale, bool last)>;
  // Calls `use` with what is to be computed for the update behind `updates`, but for pieces without
  // a label; to *data_s are added the seconds that making them takes. Errors: those of `use`.
  Status ForEach(std::uint64_t updates, double* data_s, const Use& use);
  // Makes what ForEach will ask for behind that, while a device is at work.
  void MakeAhead(std::uint64_t updates);

 private:
  const Config config_;
  const std::shared_ptr<const ReviewData> data_;
  const SystemClock clock_;  // of what the report says: nothing else follows from it
  // What a learner computes of an update, one piece after the other.
  struct Pieces {
    int rank = 0, ranks = 0;
    UpdateOrder::Batch batch;
    std::vector<std::int32_t> samples;
    float scale = 1;
    std::vector<TextBatch> ahead;  // those that are made already
  };
  std::uint64_t BatchBehind(std::uint64_t updates) const {
    return course_ ? course_->batches : updates;
  }
  Pieces Begin(std::uint64_t number);
  TextBatch Make(const Pieces& pieces, std::size_t first) const;
  std::size_t micro(const Pieces& pieces) const;

  UpdateOrder order_;
  const TextBatches batches_;
  int rank_ = 0, ranks_ = 1;
  std::optional<Algorithm::Course> course_;  // none: an update is a batch
  std::optional<Pieces> ahead_;
};

// The groups of a text model's parameters as config.optimizer trains them.
Result<std::unique_ptr<TrainedNetwork>> MakeTrainedText(const Config& config, const Module* module);

// What a run begins with: weights drawn by the seed, over them those of model.pretrained, where the
// config has it. Errors: those that MakeSupervised has of it.
Status FirstWeights(const Config& config, const Module& whole, std::span<float> value);
// The same errors, before a run: reads model.pretrained whole. REQUIRES: ResolveSupervised.
Status CheckFirstWeights(const Config& config);
// The part of it that does not depend on the sizes of the model: the files are there and readable.
Status CheckPretrainedFiles(const Config& config);
// Weights of model.pretrained, where the config has it: the part's. Errors: the same.
Status BeginPretrained(const Config& config, const ModelPart& model, TrainedNetwork* trained);

// Learns reviews: their sentiment, or words that are masked in them. An update is of one batch of
// learner.batch_size reviews, whose mean loss all learners share: each takes its part (SplitBatch),
// and of its part learner.micro_batch at a time. Which batch it is follows from updates() alone:
// the SampleBatch that comes with it only says that an update may be made, and so does its one
// priority nothing. The learning rate follows updates() / learner.max_updates. Deterministic: the
// same updates at the same places give the same bytes.
//
// tensor: it trains that part of the model, and computes with those who have the others
// (SetTensorGroup): value(), gradient() and State() are the part's. SetState takes the state of a
// part, or of the whole. Errors: those of ResolveSupervised's data
// and MakeTextModel; of model.pretrained, those of ReadPretrained and LoadWeights, and
// kInvalidArgument where its sizes are others.
Result<std::unique_ptr<Algorithm>> MakeSupervised(const Config& config,
                                                  const TensorPlace& tensor = {}, int learner = 0);
// The same of data that is there already, and on the CPU.
Result<std::unique_ptr<Algorithm>> MakeSupervised(const Config& config,
                                                  std::shared_ptr<const ReviewData> data,
                                                  const TensorPlace& tensor = {});

// What is made of a transformer's last layer for the tokens alone that the head reads: all but keys
// and values, as on the CPU (nn/transformer.h); or what lies behind the attention, as on a GPU,
// where one product makes queries, keys and values (nn/cuda/transformer.h).
enum class LastLayer : std::uint8_t { kFromQueriesOn, kBehindAttention };
// FLOP of a training step's products, of the whole model, forward and backward; not what is
// computed again (model.recompute).
double TrainingFlops(const Config& config, const TextBatch& batch, LastLayer last_layer);

// The trained model as other programs read it, and `troop predict`: model/ of the run's folder,
// with config.json, model.safetensors, the vocabulary under the name that transformers has for it
// (vocab.txt, spiece.model) and tokenizer_config.json; of an LSTM, none. Blocks on the disk.
Status WriteModel(const Config& config, Storage* run, const Module& module,
                  std::span<const float> value);
inline constexpr char kModelFolder[] = "model";

}  // namespace troop
