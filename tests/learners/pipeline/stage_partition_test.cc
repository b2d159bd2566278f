#include "learners/pipeline/stage_partition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/philox.h"

namespace troop {
namespace {

constexpr double kNoPartition = std::numeric_limits<double>::infinity();

// A stage of a plan by hand: its layers and its devices.
struct HandStage {
  std::size_t first_layer, end_layer, first_device, end_device;
};

// Slowest stage or boundary of a plan, by PipeDream's formulas; infinite: the memory is exceeded.
double Bottleneck(const PartitionOptions& options, const std::vector<HandStage>& stages) {
  double slowest = 0;
  const auto used = double(stages.back().end_device);
  for (const HandStage& stage : stages) {
    const auto m = double(stage.end_device - stage.first_device);
    const double in_flight = std::ceil((used - double(stage.first_device)) / m);
    double time = 0, held = 0, weights = 0, speed = kNoPartition;
    for (std::size_t l = stage.first_layer; l < stage.end_layer; ++l) {
      time += options.layers[l].compute_s;
      held += options.layers[l].held_bytes;
      weights += options.layers[l].weight_bytes;
    }
    const double versions = options.stash_weights ? in_flight : 1;
    const double bytes = in_flight * held + (versions + options.weight_copies) * weights;
    for (std::size_t d = stage.first_device; d < stage.end_device; ++d) {
      speed = std::min(speed, options.devices[d].speed);
      const double memory = options.devices[d].memory_bytes;
      if (memory > 0 && bytes > memory) return kNoPartition;
    }
    double exchange = 0, boundary = 0;
    if (options.bytes_per_s > 0) {
      exchange = 4 * (m - 1) * weights / (options.bytes_per_s * m);
      if (stage.first_layer > 0) {
        boundary = 2 * options.layers[stage.first_layer - 1].output_bytes / options.bytes_per_s / m;
      }
    }
    slowest = std::max({slowest, (time / speed + exchange) / m, boundary});
  }
  return slowest;
}

// Best bottleneck over all cuts of layers and devices, by enumeration.
double BestByEnumeration(const PartitionOptions& options, std::vector<HandStage>* stages) {
  const std::size_t layer = stages->empty() ? 0 : stages->back().end_layer;
  const std::size_t device = stages->empty() ? 0 : stages->back().end_device;
  if (layer == options.layers.size()) {
    if (options.use_all_devices && device < options.devices.size()) return kNoPartition;
    return Bottleneck(options, *stages);
  }
  double best = kNoPartition;
  for (std::size_t l = layer + 1; l <= options.layers.size(); ++l) {
    for (std::size_t d = device + 1; d <= options.devices.size(); ++d) {
      if (d > device + 1 && !options.replicate) break;
      stages->push_back({layer, l, device, d});
      best = std::min(best, BestByEnumeration(options, stages));
      stages->pop_back();
    }
  }
  return best;
}

// Memory, bandwidth, unequal devices and each option are drawn for each profile.
PartitionOptions RandomProfile(Rng* rng) {
  PartitionOptions options;
  options.layers.resize(1 + rng->Below(8));
  for (LayerProfile& layer : options.layers) {
    layer = {rng->Uniform(), rng->Uniform(), rng->Uniform(), rng->Uniform()};
  }
  options.devices.resize(1 + rng->Below(4));
  const bool equal = rng->Below(2) == 0, limited = rng->Below(2) == 0;
  for (DeviceProfile& device : options.devices) {
    device.speed = equal ? 1 : rng->Uniform(.5, 2);
    device.memory_bytes = limited ? rng->Uniform(1, 12) : 0;
  }
  options.bytes_per_s = rng->Below(3) == 0 ? 0 : rng->Uniform(1, 20);
  options.replicate = rng->Below(2) == 0;
  options.use_all_devices = rng->Below(2) == 0;
  options.weight_copies = rng->Below(3);
  options.stash_weights = rng->Below(2) == 0;
  return options;
}

TEST(StagePartitionTest, EqualsEnumerationOnRandomProfiles) {
  Rng rng({.index = 38});
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const PartitionOptions options = RandomProfile(&rng);
    std::vector<HandStage> stages;
    const double expected = BestByEnumeration(options, &stages);
    const Result<PartitionPlan> plan = PartitionStages(options);
    ASSERT_EQ(plan.ok(), expected < kNoPartition) << "trial " << trial;
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), Code::kResourceExhausted);
      ++refused;
      continue;
    }
    EXPECT_NEAR(plan->seconds, expected, 1e-12) << "trial " << trial;
    // The plan itself has this bottleneck.
    for (const PlannedStage& stage : plan->stages) {
      stages.push_back({std::size_t(stage.first_layer), std::size_t(stage.end_layer),
                        std::size_t(stage.first_device), std::size_t(stage.end_device)});
      EXPECT_LE(std::max(stage.seconds, stage.send_seconds), plan->seconds);
    }
    EXPECT_EQ(stages.back().end_layer, options.layers.size());
    EXPECT_NEAR(Bottleneck(options, stages), expected, 1e-12);
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 200);
}

TEST(StagePartitionTest, ReplicatesTheStageThatIsSlow) {
  PartitionOptions options{.layers = {{.compute_s = 4}, {.compute_s = 2}}};
  options.devices.resize(3);
  options.replicate = true;
  const Result<PartitionPlan> plan = PartitionStages(options);
  ASSERT_TRUE(plan.ok());
  // One stage on three devices and two of the same time: fewer cuts win no time, so either is 2.
  EXPECT_DOUBLE_EQ(plan->seconds, 2);
  options.layers[0].output_bytes = 1;
  options.layers[1].weight_bytes = 100;  // its gradient is expensive to exchange
  options.bytes_per_s = 10;
  const Result<PartitionPlan> cut = PartitionStages(options);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->stages.size(), 2u);
  EXPECT_EQ(cut->stages[0].end_device, 2);
  EXPECT_DOUBLE_EQ(cut->seconds, 2);
}

TEST(StagePartitionTest, UsesFewerDevicesUnlessAllMustHaveLayers) {
  PartitionOptions options{.layers = {{.compute_s = 1}, {.compute_s = 1}, {.compute_s = 2}}};
  options.devices.resize(3);
  ASSERT_TRUE(PartitionStages(options).ok());
  EXPECT_EQ(PartitionStages(options)->stages.size(), 2u) << "a third stage wins no time";
  options.use_all_devices = true;
  EXPECT_EQ(PartitionStages(options)->stages.size(), 3u);
  options.devices.resize(4);
  EXPECT_NE(PartitionStages(options).status().message().find("each of which must have a layer"),
            std::string::npos);
}

TEST(StagePartitionTest, RefusesProfilesThatAreInvalid) {
  const auto message = [](const PartitionOptions& options) {
    return std::string(PartitionStages(options).status().message());
  };
  PartitionOptions options;
  EXPECT_EQ(message(options), "there are 0 layers, must be from 1 to 256");
  options.layers.resize(2);
  EXPECT_EQ(message(options), "there are 0 devices, must be from 1 to 32");
  options.devices.resize(33);
  EXPECT_EQ(message(options), "there are 33 devices, must be from 1 to 32");
  options.devices.resize(2);
  options.devices[1].speed = 0;
  EXPECT_EQ(message(options), "devices[1] has the value 0, must be positive");
  options.devices[1].speed = 1;
  options.layers[1].weight_bytes = -1;
  EXPECT_EQ(message(options), "layers[1] has the value -1, must be at least 0");
  options.layers[1].weight_bytes = std::nan("");
  EXPECT_NE(message(options), "");
}

}  // namespace
}  // namespace troop
