// Implements the dynamic program that balances stages. For each number of used devices, the table
// has the best bottleneck of the first layers on the first devices.
#include "learners/pipeline/stage_partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace troop {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Refuses a value that is negative or not finite, or 0 where it must be positive.
Status CheckValue(std::string_view list, std::size_t index, double value, bool positive) {
  if (std::isfinite(value) && (positive ? value > 0 : value >= 0)) return Status::Ok();
  return InvalidArgument("{}[{}] has the value {}, must be {}", list, index, value,
                         positive ? "positive" : "at least 0");
}

// Bounds the tables, and refuses values that cannot be compared.
Status CheckProfile(const PartitionOptions& options) {
  const auto range = [](std::string_view name, std::size_t count, std::int64_t high) {
    if (count >= 1 && std::int64_t(count) <= high) return Status::Ok();
    return InvalidArgument("there are {} {}, must be from 1 to {}", count, name, high);
  };
  TROOP_RETURN_IF_ERROR(range("layers", options.layers.size(), kPartitionLayersMax));
  TROOP_RETURN_IF_ERROR(range("devices", options.devices.size(), kPartitionDevicesMax));
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    const LayerProfile& layer = options.layers[i];
    for (const double value :
         {layer.compute_s, layer.output_bytes, layer.held_bytes, layer.weight_bytes}) {
      TROOP_RETURN_IF_ERROR(CheckValue("layers", i, value, false));
    }
  }
  for (std::size_t i = 0; i < options.devices.size(); ++i) {
    TROOP_RETURN_IF_ERROR(CheckValue("devices", i, options.devices[i].speed, true));
    TROOP_RETURN_IF_ERROR(CheckValue("devices", i, options.devices[i].memory_bytes, false));
  }
  TROOP_RETURN_IF_ERROR(CheckValue("bytes_per_s", 0, options.bytes_per_s, false));
  return CheckValue("weight_copies", 0, options.weight_copies, false);
}

// Best way to run the first layers on the first devices.
struct Cell {
  double seconds = kInfinite;  // slowest stage or transfer; infinite: there is no way
  std::int64_t layer = 0;      // where the last stage begins
  std::int64_t device = 0;
};

// One number of used devices.
class Partitioner {
 public:
  Partitioner(const PartitionOptions& options, std::int64_t used)
      : options_(options),
        layers_(std::int64_t(options.layers.size())),
        used_(used),
        cells_(std::size_t((layers_ + 1) * (used + 1))) {
    for (const LayerProfile& layer : options.layers) {
      compute_s_.push_back(compute_s_.back() + layer.compute_s);
      held_bytes_.push_back(held_bytes_.back() + layer.held_bytes);
      weight_bytes_.push_back(weight_bytes_.back() + layer.weight_bytes);
    }
  }

  // The best plan that uses all of the devices; nullopt: none fits.
  std::optional<PartitionPlan> Solve();

 private:
  Cell& At(std::int64_t layer, std::int64_t device) {
    return cells_[std::size_t(layer * (used_ + 1) + device)];
  }
  PlannedStage StageOf(std::int64_t first_layer, std::int64_t end_layer, std::int64_t first_device,
                       std::int64_t end_device) const;
  bool Fits(const PlannedStage& stage) const;
  void Fill(std::int64_t end_layer, std::int64_t end_device);
  // Seconds of the boundary before a stage.
  double ReceiveSeconds(const PlannedStage& stage) const;

  const PartitionOptions& options_;
  const std::int64_t layers_, used_;
  std::vector<Cell> cells_;  // [layers, devices]
  // Sums over the layers before an index.
  std::vector<double> compute_s_ = {0}, held_bytes_ = {0}, weight_bytes_ = {0};
};

// Predicts a stage: the slowest of its devices decides, since they take micro-batches in turn.
PlannedStage Partitioner::StageOf(std::int64_t first_layer, std::int64_t end_layer,
                                  std::int64_t first_device, std::int64_t end_device) const {
  PlannedStage stage{.first_layer = first_layer,
                     .end_layer = end_layer,
                     .first_device = first_device,
                     .end_device = end_device};
  const auto over = [&](const std::vector<double>& sums) {
    return sums[std::size_t(end_layer)] - sums[std::size_t(first_layer)];
  };
  double speed = kInfinite;
  for (std::int64_t d = first_device; d < end_device; ++d) {
    speed = std::min(speed, options_.devices[std::size_t(d)].speed);
  }
  const auto replicas = double(end_device - first_device);
  double exchange_s = 0;
  if (options_.bytes_per_s > 0) {
    exchange_s = 4 * (replicas - 1) * over(weight_bytes_) / (options_.bytes_per_s * replicas);
  }
  stage.seconds = (over(compute_s_) / speed + exchange_s) / replicas;
  // Micro-batches between the forward and the backward pass: the warm-up of 1F1B and one.
  const double in_flight = std::ceil(double(used_ - first_device) / replicas);
  const double copies = options_.weight_copies + (options_.stash_weights ? in_flight : 1);
  stage.bytes = in_flight * over(held_bytes_) + copies * over(weight_bytes_);
  return stage;
}

// All replicas hold the same.
bool Partitioner::Fits(const PlannedStage& stage) const {
  for (std::int64_t d = stage.first_device; d < stage.end_device; ++d) {
    const double memory_bytes = options_.devices[std::size_t(d)].memory_bytes;
    if (memory_bytes > 0 && stage.bytes > memory_bytes) return false;
  }
  return true;
}

// Activations of one direction and gradients of the other share the links of the stage's devices.
double Partitioner::ReceiveSeconds(const PlannedStage& stage) const {
  if (stage.first_layer == 0 || options_.bytes_per_s == 0) return 0;
  const double bytes = options_.layers[std::size_t(stage.first_layer - 1)].output_bytes;
  return 2 * bytes / (options_.bytes_per_s * double(stage.end_device - stage.first_device));
}

// Tries each last stage. Strict comparison keeps the first of equal plans.
void Partitioner::Fill(std::int64_t end_layer, std::int64_t end_device) {
  Cell& best = At(end_layer, end_device);
  const std::int64_t lowest = options_.replicate ? 0 : end_device - 1;
  for (std::int64_t device = end_device - 1; device >= lowest; --device) {
    for (std::int64_t layer = 0; layer < end_layer; ++layer) {
      const double before = At(layer, device).seconds;
      if (before >= best.seconds) continue;
      const PlannedStage stage = StageOf(layer, end_layer, device, end_device);
      const double seconds = std::max({before, stage.seconds, ReceiveSeconds(stage)});
      if (seconds < best.seconds && Fits(stage)) best = {seconds, layer, device};
    }
  }
}

// Prefixes of layers in order, so that shorter ones are complete.
std::optional<PartitionPlan> Partitioner::Solve() {
  At(0, 0).seconds = 0;  // no layer on no device
  for (std::int64_t layer = 1; layer <= layers_; ++layer) {
    for (std::int64_t device = 1; device <= used_; ++device) Fill(layer, device);
  }
  PartitionPlan plan{.seconds = At(layers_, used_).seconds, .stages = {}};
  if (plan.seconds == kInfinite) return std::nullopt;
  // The cells name the stages from the last one to the first.
  for (std::int64_t layer = layers_, device = used_; layer > 0;) {
    const Cell& cell = At(layer, device);
    plan.stages.push_back(StageOf(cell.layer, layer, cell.device, device));
    layer = cell.layer;
    device = cell.device;
  }
  std::reverse(plan.stages.begin(), plan.stages.end());
  for (std::size_t s = 0; s + 1 < plan.stages.size(); ++s) {
    plan.stages[s].send_seconds = ReceiveSeconds(plan.stages[s + 1]);
  }
  return plan;
}

}  // namespace

// The number of used devices decides how many micro-batches a stage holds, so each has its table.
Result<PartitionPlan> PartitionStages(const PartitionOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckProfile(options));
  std::optional<PartitionPlan> best;
  const auto devices = std::int64_t(options.devices.size());
  for (std::int64_t used = options.use_all_devices ? devices : 1; used <= devices; ++used) {
    std::optional<PartitionPlan> plan = Partitioner(options, used).Solve();
    if (plan && (!best || plan->seconds < best->seconds)) best = std::move(plan);
  }
  if (best) return *std::move(best);
  return ResourceExhausted(
      "{} layers fit no partition over {} devices{}; add devices or memory, or "
      "reduce the micro-batch",
      options.layers.size(), devices,
      options.use_all_devices ? ", each of which must have a layer" : "");
}

}  // namespace troop
