#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "learners/algorithm.h"
#include "learners/training_config.h"
#include "nn/models/trunk.h"
#include "replay/replica/cuda/device_table.h"
#include "replay/replica/delta_sampler.h"

namespace troop {

// A learner's replica of the replay in GPU memory (replay.placement = "gpu"). It applies the deltas
// of a DeltaSampler, and maps sampled slots to items. Owner: the algorithm.
class GpuReplay {
 public:
  // env: with single-frame observations. pictures: how they are stacked for the network's first
  // layer. batch: B. The device must outlive this.
  GpuReplay(cuda::Device* device, const TrainingConfig& config, const EnvSpec& env,
            std::optional<PictureStack> pictures, std::int64_t batch);

  // The table; nullptr before the first experience.
  cuda::DeviceTable* table() const { return table_.get(); }
  // Number of tables created so far. Recorded CUDA graphs are invalid after it changes.
  int tables() const { return tables_; }
  bool can_draw() const { return table_ != nullptr && table_->items() > 0; }
  // True if this batch replaces the device table, so that a prepared sample is invalid.
  static bool Anew(const SampleBatch& batch);
  // Applies the batch's experience. updates: made so far; samples are numbered by it, so a resumed
  // run samples the same items as an uninterrupted one. The copy overlaps earlier work of `stream`;
  // later work there samples from the whole table. Errors: kDataLoss: the experience does not fit;
  // kUnavailable: a device error, with its message. After an error the replica is invalid.
  Status Take(const SampleBatch& batch, std::uint64_t updates, cuda::Stream& stream);
  // Starts an update: DrawnItems resolves slots that Take reassigns from here on to the items they
  // held.
  void BeginUpdate() { replaced_.clear(); }
  // Appends the items of slots sampled since BeginUpdate.
  void DrawnItems(std::span<const std::int32_t> slots,
                  std::vector<GpuReplayConsumer::SampledItem>* out) const;

 private:
  struct Held {
    std::uint32_t generation = 0;
    std::uint64_t policy_version = 0;
  };
  struct Arrival {
    std::uint64_t number = 0;
    std::int32_t slot = 0;
  };
  Status TakeOne(const DecodedDelta& experience, std::uint64_t updates, cuda::Stream& stream);
  Status MakeTable(const ReplicaSizes& sizes, std::uint64_t updates);
  void Forget(std::uint64_t oldest);
  Status Append(const DecodedDelta& experience, cuda::Stream& stream);

  cuda::Device* const device_;
  cuda::DeviceTableOptions options_;
  const std::int64_t batch_;
  const std::uint64_t slots_max_;  // upper bound for a replay with this config
  cuda::Stream copies_;
  std::unique_ptr<cuda::DeviceTable> table_;
  int tables_ = 0;
  std::deque<Arrival> arrived_;  // oldest first
  std::vector<Held> held_;       // indexed by slot
  std::unordered_map<std::int32_t, Held> replaced_;
  // Scratch buffers of TakeOne.
  std::vector<std::int32_t> left_;
  std::vector<cuda::DeviceFrame> frames_;
  std::vector<cuda::DeviceItem> items_;
};

}  // namespace troop
