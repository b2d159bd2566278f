#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Profile of a layer, for one micro-batch.
struct LayerProfile {
  double compute_s = 0;     // forward and backward, on a device of speed 1
  double output_bytes = 0;  // activations that the next layer reads
  double held_bytes = 0;    // activations that backward needs
  double weight_bytes = 0;
};
// A device of the pipeline.
struct DeviceProfile {
  double speed = 1;         // divides compute_s
  double memory_bytes = 0;  // 0: unlimited
};

struct PartitionOptions {
  std::vector<LayerProfile> layers;    // in order of the forward pass
  std::vector<DeviceProfile> devices;  // in order: stages take consecutive devices, the first ones
                                       // the first layers
  double bytes_per_s = 0;              // bandwidth of each device's link; 0: transfers cost nothing
  bool replicate = false;        // stages may have several devices, which divide the micro-batches
  bool use_all_devices = false;  // no device may stay idle
  // Copies of the weights that the gradient and the optimizer take, next to the versions; Adam: 3.
  double weight_copies = 0;
  bool stash_weights = false;  // a weight version per micro-batch in flight (PipeDream); else one
};

// A stage of the plan: layers [first_layer, end_layer) on devices [first_device, end_device).
struct PlannedStage {
  std::int64_t first_layer = 0, end_layer = 0;
  std::int64_t first_device = 0, end_device = 0;
  double seconds = 0;       // per micro-batch: computing, and the exchange of gradients
  double send_seconds = 0;  // per micro-batch: its output and the gradient of it
  double bytes = 0;         // memory of each of its devices
  bool operator==(const PlannedStage&) const = default;
};
struct PartitionPlan {
  double seconds = 0;  // per micro-batch in the steady state: the slowest stage or transfer
  std::vector<PlannedStage> stages;
};

// Cuts a model into stages so that the slowest stage or transfer is fastest: PipeDream's dynamic
// program (Narayanan et al. 2019, sec. 3.1) over the number of layers and of devices that are used.
// A stage of layers i..j on m devices takes
//   T(i..j, m) = (1/m) (sum t / min speed + 4 (m-1) sum w / (B m)),
// the form of its published code; the boundary after layer k, read by m' devices, takes
// 2 a_k / (B m'). A stage with n devices from itself to the last one holds the activations, and
// with stash_weights the versions, of ceil(n/m) micro-batches, as the schedules of this folder do.
// Ties: fewer devices first, then earlier cuts. O(L^2 D^2 R) with L layers, D devices, and R = D
// with replicate, else 1.
// Errors: kInvalidArgument: no layer or device, more than kPartitionLayersMax or
// kPartitionDevicesMax, or a value that is negative or not finite; kResourceExhausted: no partition
// fits the memory.
Result<PartitionPlan> PartitionStages(const PartitionOptions& options);

inline constexpr std::int64_t kPartitionLayersMax = 256;
inline constexpr std::int64_t kPartitionDevicesMax = 32;

}  // namespace troop
