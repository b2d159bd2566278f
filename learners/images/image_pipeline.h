#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "learners/pipeline/schedule_generators.h"
#include "learners/training_config.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace troop {

// A chunk of an image classifier: consecutive blocks, which one stage of the pipeline holds.
struct PipelineChunk {
  std::unique_ptr<Module> module;
  Shape input;                        // without the rows
  std::int64_t offset = 0;            // first parameter in the buffer of the whole model
  std::int64_t size = 0;              // ParameterCount(module)
  std::uint64_t first_parameter = 0;  // its index in the whole model
};

// An image classifier cut into chunks, as [pipeline] says. No weights.
struct ImagePipeline {
  ScheduleOptions schedule;           // for micro_batches of full batches
  std::int64_t micro_batch_rows = 0;  // images of a micro-batch
  std::int64_t parameters = 0;        // ParameterCount of the whole model
  std::vector<PipelineChunk> chunks;  // in the order of the forward pass
};

// Cuts the classifier of the config. Without pipeline.stages the slowest chunk is as fast as
// possible, by the operations of its blocks and the traffic of their weights (PartitionStages).
// Errors: kInvalidArgument: more chunks than blocks, a block that does not exist or has no place
// between its neighbors, or micro-batches that do not divide the batch; those of CheckImageModel.
Result<ImagePipeline> MakeImagePipeline(const TrainingConfig& config);

// The parameters of one stage: those of its chunks, one after the other.
class StageParameters {
 public:
  // pipeline: must outlive this.
  StageParameters(const ImagePipeline* pipeline, std::int64_t stage);
  // Indices of the stage's chunks, ascending.
  std::span<const std::int64_t> chunks() const { return chunks_; }
  std::int64_t size() const { return size_; }
  // The chunk's part of a buffer of the stage, [size()].
  template <class T>
  std::span<T> Of(std::int64_t chunk, std::span<T> all) const {
    return all.subspan(std::size_t(offsets_[std::size_t(chunk)]),
                       std::size_t(pipeline_->chunks[std::size_t(chunk)].size));
  }
  // Copies the stage's part of a buffer of the whole model, or back.
  void Take(std::span<const float> whole, std::span<float> stage) const;
  void Put(std::span<const float> stage, std::span<float> whole) const;
  // Cuts the tensors of a state that have the size of the whole model; the others are copied.
  TensorFile Cut(const TensorFile& state) const;
  // The layout of the stage's parameters, with UpdateStatistics, for a TrainState. It has neither
  // passes nor a packed form: those are of the chunks.
  std::unique_ptr<Module> MakeLayout() const;

 private:
  const ImagePipeline* const pipeline_;
  std::vector<std::int64_t> chunks_;
  std::vector<std::int64_t> offsets_;  // [chunk of the pipeline]; -1: on another stage
  std::int64_t size_ = 0;
};

}  // namespace troop
