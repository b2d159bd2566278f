#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "datasets/images/image.h"
#include "learners/batch_partition.h"
#include "learners/supervised/supervised.h"
#include "learners/training_config.h"

namespace troop {

// One learner's images of each update: its part of a batch (SplitBatch). Every learner computes the
// order of all images, so that any mesh sees the same batches. One owner thread.
class ImageShare {
 public:
  ImageShare(const TrainingConfig& config, std::shared_ptr<const ImageData> data);
  // Returns false if this is the rank already.
  bool SetRank(int rank, int ranks) {
    const bool changed = rank != rank_ || ranks != ranks_;
    rank_ = rank, ranks_ = ranks;
    return changed;
  }
  void SetTrainingProgress(const TrainingProgress& progress) { progress_ = progress; }
  // Progress of the run before the next update, after `updates` updates.
  double Progress(std::uint64_t updates) const;

  struct Part {
    std::vector<std::int32_t> samples;  // indices into the training images; may be empty
    std::int64_t epoch = 0;             // key of the random changes
    bool whole = false;                 // every learner has the whole batch
    // Factor of each image's loss: the mean over learners of the scaled sums is the mean over all
    // images of the batch.
    float scale = 1;
    std::vector<std::int32_t> batch_labels;  // all of the batch, for the mean weight
  };
  // Number of the batch of the update after `updates`, and its images. With model.sync_batch_norm a
  // learner without images could not take part in the exchange of statistics, so that all learners
  // compute the whole of a batch that leaves one of them none.
  std::uint64_t BatchNumber(std::uint64_t updates) const {
    return progress_ ? progress_->batches : updates;
  }
  Part PartOf(std::uint64_t batch_number);
  // Factors of the losses of images with these labels; empty: all 1 (learner.class_weights).
  std::vector<float> WeightsOf(const Part& part, std::span<const std::int32_t> labels) const;

 private:
  const TrainingConfig config_;
  const std::shared_ptr<const ImageData> data_;
  const std::vector<std::int32_t> lengths_;  // all 1: any order of the images is as good
  BatchSchedule order_;
  std::vector<float> class_weights_;  // empty: none
  int rank_ = 0, ranks_ = 1;
  std::optional<TrainingProgress> progress_;  // nullopt: update n uses batch n
};

}  // namespace troop
