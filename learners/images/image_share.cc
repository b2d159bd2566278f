// Implements a learner's part of the batches of images.

#include "learners/images/image_share.h"

#include <algorithm>
#include <utility>

#include "learners/supervised/class_weights.h"

namespace troop {

// Class weights are those of the training images, without the validation and test sets.
ImageShare::ImageShare(const TrainingConfig& config, std::shared_ptr<const ImageData> data)
    : config_(config),
      data_(std::move(data)),
      lengths_(std::size_t(data_->train.size()), 1),
      order_(config, lengths_) {
  if (config.learner.class_weights == ClassWeights::kBalanced)
    class_weights_ = BalancedClassWeights(data_->train.labels);
}

// A job of several updates has one progress value; this is exact.
double ImageShare::Progress(std::uint64_t updates) const {
  if (progress_) return progress_->progress;
  return double(updates) / double(std::max<std::int64_t>(1, config_.run.max_updates));
}

// Unequal shares apply only while all learners are present, as for texts.
ImageShare::Part ImageShare::PartOf(std::uint64_t batch_number) {
  const BatchSchedule::Batch batch = order_.BatchOf(batch_number);
  const std::vector<double>& given = config_.mesh.batch_shares;
  const auto shares =
      given.size() == std::size_t(ranks_) ? given : std::vector<double>(std::size_t(ranks_), 1.0);
  std::vector<std::vector<std::int32_t>> parts = SplitBatch(batch.samples, lengths_, shares);
  Part part{.epoch = batch.epoch,
            .whole = config_.model.sync_batch_norm &&
                     std::ranges::any_of(parts, [](const auto& p) { return p.empty(); })};
  part.scale = float((part.whole ? 1.0 : ranks_) / double(batch.samples.size()));
  if (part.whole) {
    part.samples.assign(batch.samples.begin(), batch.samples.end());
  } else {
    part.samples = std::move(parts[std::size_t(rank_)]);
  }
  for (const std::int32_t i : batch.samples)
    part.batch_labels.push_back(data_->train.labels[std::size_t(i)]);
  return part;
}

// The mean weight is that of the whole batch, so that parts add up.
std::vector<float> ImageShare::WeightsOf(const Part& part,
                                         std::span<const std::int32_t> labels) const {
  return RowWeights(class_weights_, part.batch_labels, labels);
}

}  // namespace troop
