#pragma once

#include <array>
#include <cstdint>

namespace troop {

// Purposes of random streams. The values must not change, because that changes every run. Add at
// the end.
enum class Purpose : std::uint32_t {
  kEnvironment = 1,  // episode seeds
  kExploration = 2,  // ε-greedy: exploring environments and their actions
  kParameters = 3,   // initial weights
  kReplaySampling = 4,
  kEvaluation = 5,
  kTest = 6,
  kSynthetic = 7,  // generated benchmark inputs
  kStickyActions = 8,
  kBatchOrder = 9,       // order of the examples of a data set
  kMasking = 10,         // masked LM: masked tokens and their replacements
  kDropout = 11,         // index: example in its data set; episode: step
  kHoldout = 12,         // examples that are held out; index: their class
  kSearch = 13,          // values of a sweep; index: trial; episode: hash of the config key
  kBootstrap = 14,       // resamples of an interval; index: stratum; episode: resample
  kTargetNoise = 16,     // TD3: noise of the target policy; index: learner; episode: update
  kPolicySampling = 17,  // SAC: actions of the updates; index: learner; episode: update
  kNoisyUpdates = 18,    // noisy networks: seed of an update; index: learner; episode: update
  kNoisyActing = 19,     // noisy networks: seed of an episode; index and episode: its environment's
  kNoisyLayer = 20,      // from such a seed; index: place of the layer; episode: draw
  kAugmentation = 21,    // changes of training images; index: image in its data set; episode: epoch
};

// Identifies a random stream by its purpose, independent of the role that computes it.
struct RngKey {
  std::uint64_t run_seed = 0;
  Purpose purpose = Purpose::kTest;
  std::uint64_t index = 0;    // global environment index, shard, layer …
  std::uint64_t episode = 0;  // or step, or 0
  bool operator==(const RngKey&) const = default;
};

// The counter-based generator Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy
// as 1, 2, 3"). Its state is (key, counter), so it can be saved, and any position is reached in
// O(1). The same key gives the same numbers on every machine. One owner thread.
class Rng {
 public:
  explicit Rng(const RngKey& key);

  std::uint32_t NextU32();
  std::uint64_t NextU64();
  double Uniform();    // [0, 1), 53 bits
  float UniformF32();  // [0, 1), 24 bits
  double Uniform(double low, double high);
  std::uint32_t Below(std::uint32_t n);  // [0, n) without bias. REQUIRES: n > 0
  double Normal();                       // mean 0, standard deviation 1 (Box-Muller)

  // Position in the stream in 32-bit numbers. Seek(position()) has no effect.
  std::uint64_t position() const { return block_ * 4 + used_ - 4; }
  void Seek(std::uint64_t position);

  // For vectorized generation: block n of the stream, numbers 4n to 4n + 3, is Philox4x32-10 of the
  // counter {low n, high n, stream()[0], stream()[1]} under key().
  const std::array<std::uint32_t, 2>& key() const { return key_; }
  const std::array<std::uint32_t, 2>& stream() const { return stream_; }

 private:
  // Generates the next block.
  void Refill();
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> stream_;  // upper half of the counter
  std::uint64_t block_ = 0;              // next block
  std::uint32_t used_ = 4;               // numbers of `out_` already returned
  std::array<std::uint32_t, 4> out_{};
};

namespace internal {
// The block function alone, for known-answer tests.
std::array<std::uint32_t, 4> Philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);
}  // namespace internal

// Derives one 64-bit seed from a key, for environments and other generators.
std::uint64_t DeriveSeed(const RngKey& key);

}  // namespace troop
