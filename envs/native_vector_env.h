#pragma once

#include <memory>

#include "envs/vector_env.h"

namespace troop {

// What all native vector environments share: the batch they write into, and the order of events.
// A derived class starts and steps; the base hands the batch out. Invariants: between two steps,
// row i of `observation_` is the current observation of environment i; behind the last row of each
// tensor lie rows that nobody sees, up to a multiple of kRowMultiple, so that batched code may
// write whole vectors.
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
  // Steps all: writes observation_, reward_, terminated_, truncated_, and for each environment
  // whose episode ended calls EndEpisode, in order of the index.
  virtual void StepAll(const std::byte* action) = 0;

  // Keeps the last observation of an ended episode, then starts the next.
  void EndEpisode(int index);
  // Its step or start failed: the row has a fault and counts for nothing. Called once a row, in
  // order of the index within one Submit….
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
  bool started_ = false, pending_ = false;
};

// Batched code; same bytes as a loop over the environment of the same id. REQUIRES: options as
// MakeEnvironment resolves them, without -1.
std::unique_ptr<VectorEnv> MakeCartPoleVectorEnv(std::int64_t max_episode_steps, int size,
                                                 EpisodeSeeder seeder);

// A loop over any environments. One that fails is started anew with the next seed; where that fails
// as well, at the next step. REQUIRES: at least one; all of equal spec.
std::unique_ptr<VectorEnv> MakeLoopVectorEnv(std::vector<std::unique_ptr<Environment>> envs,
                                             EpisodeSeeder seeder);

}  // namespace troop
