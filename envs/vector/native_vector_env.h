#pragma once

#include <memory>

#include "envs/vector_env.h"

namespace troop {

// Base of all native vector environments: the batch that they write to, and the order of events.
// The derived class starts and steps environments; the base returns the batch. Invariants: between
// two steps, row i of `observation_` is the current observation of environment i. Each tensor is
// padded to a multiple of kRowMultiple rows, so that batched code may write whole vectors.
class NativeVectorEnv : public VectorEnv {
 public:
  static constexpr int kRowMultiple = 8;
  const EnvSpec& spec() const final { return spec_; }
  int size() const final { return size_; }
  void SubmitReset() final;
  void Submit(ConstTensor action) final;
  const StepBatch* Poll() final;
  void SubmitRestart(std::span<const int> indices) final;
  std::span<const EnvFault> faults() const final { return faults_; }

 protected:
  NativeVectorEnv(EnvSpec spec, int size, EpisodeSeeder seeder);

  // Starts the episode of environment `index` and writes its first observation.
  virtual void Start(int index, std::uint64_t seed) = 0;
  // Steps all environments: writes observation_, reward_, terminated_ and truncated_, and calls
  // EndEpisode for each environment whose episode ended, in order of the index.
  virtual void StepAll(const std::byte* action) = 0;

  // Copies the last observation of an ended episode to final_observation_, then starts the next
  // episode.
  void EndEpisode(int index);
  // Records that a step or start failed: the row has a fault and its step is discarded. Called at
  // most once per row, in order of the index, between two Submit calls.
  void Fail(EnvFault fault);
  std::uint64_t NextSeed(int index) { return seeder_(index); }
  std::span<std::byte> ObservationRow(int index) const;

  const EnvSpec spec_;
  const int size_;
  const std::size_t row_bytes_;
  Tensor observation_, final_observation_, reward_, terminated_, truncated_;

 private:
  void ForgetFaults();

  Tensor fault_;
  std::vector<EnvFault> faults_;
  EpisodeSeeder seeder_;
  StepBatch batch_;
  bool started_ = false, pending_ = false;  // a reset was submitted; a batch waits for Poll
};

// Vector with SIMD code; the same bytes as a loop over the single environment. REQUIRES: options as
// MakeEnvironment resolves them, without -1.
std::unique_ptr<VectorEnv> MakeCartPoleVectorEnv(std::int64_t max_episode_steps, int size,
                                                 EpisodeSeeder seeder);

// Loop over single environments of any kind. One that fails is restarted with the next seed; if
// that fails too, it is restarted at the next step. REQUIRES: at least one; all have the same spec.
std::unique_ptr<VectorEnv> MakeSyncVectorEnv(std::vector<std::unique_ptr<Environment>> envs,
                                             EpisodeSeeder seeder);

}  // namespace troop
