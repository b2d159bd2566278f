#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/config.h"
#include "core/status.h"
#include "learners/algorithm.h"
#include "nn/trunk.h"
#include "replay/cuda/device_table.h"
#include "replay/mirror.h"

namespace troop {

// A learner's copy of the replay in GPU memory (replay.placement = "gpu"): takes in what a
// ReplayMirror brings, and says whose slots a draw has chosen. Owner: the algorithm.
class DeviceReplay {
 public:
  // env: of single frames. pictures: how they are stacked for the network's first layer. batch: B.
  // The device outlives it.
  DeviceReplay(cuda::Device* device, const Config& config, const EnvSpec& env,
               std::optional<PictureStack> pictures, std::int64_t batch);

  // The table; nullptr before any experience came.
  cuda::DeviceTable* table() const { return table_.get(); }
  // How many there have been: what was recorded of one is of no use with the next.
  int tables() const { return tables_; }
  bool can_draw() const { return table_ != nullptr && table_->items() > 0; }
  // Whether what was drawn from until now is of no use behind this.
  static bool Anew(const SampleBatch& batch);
  // updates: made so far, which draws are numbered by: so those of a run that was resumed are those
  // of one that was not. Copies what the batch brings, beside what `stream` does by then; whatever
  // comes behind it there draws from all of it. Errors: kDataLoss: it does not fit; kUnavailable:
  // the device, with its words. After an error the copy is of no use.
  Status Take(const SampleBatch& batch, std::uint64_t updates, cuda::Stream& stream);
  // Items that Take has put in others' places are told apart from these until the next call.
  void BeginUpdate() { replaced_.clear(); }
  // Of slots that were drawn since BeginUpdate.
  void DrawnItems(std::span<const std::int32_t> slots,
                  std::vector<Algorithm::DrawnItem>* out) const;

 private:
  struct Held {
    std::uint32_t generation = 0;
    std::uint64_t policy_version = 0;
  };
  struct Arrival {
    std::uint64_t number = 0;
    std::int32_t slot = 0;
  };
  Status TakeOne(const Experience& experience, std::uint64_t updates, cuda::Stream& stream);
  Status MakeTable(const FeedSizes& sizes, std::uint64_t updates);
  void Forget(std::uint64_t oldest);
  Status Append(const Experience& experience, cuda::Stream& stream);

  cuda::Device* const device_;
  cuda::DeviceTableOptions options_;
  const std::int64_t batch_;
  const std::uint64_t slots_max_;  // of a replay with this config, and more
  cuda::Stream copies_;
  std::unique_ptr<cuda::DeviceTable> table_;
  int tables_ = 0;
  std::deque<Arrival> arrived_;  // the oldest first
  std::vector<Held> held_;       // by slot
  std::unordered_map<std::int32_t, Held> replaced_;
  // Scratch.
  std::vector<std::int32_t> left_;
  std::vector<cuda::DeviceFrame> frames_;
  std::vector<cuda::DeviceItem> items_;
};

}  // namespace troop
