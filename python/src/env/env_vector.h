#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "envs/vector/episode_seeds.h"
#include "envs/vector_env.h"

namespace troop {

// N native environments for Python: a VectorEnv that checks the order of calls and the actions. One
// thread at a time. Invariant: the tensors of batch() keep their addresses, so that Python makes
// its views once; every Reset and Step overwrites them.
class EnvVector {
 public:
  static constexpr int kSizeMax = 1 << 20;
  struct Options {
    EnvOptions env;
    int size = 1;
    int threads = 1;
  };
  // Errors: those of CheckNative and MakeThreadedVectorEnv; kInvalidArgument: a size or number of
  // threads that is out of range.
  static Result<std::unique_ptr<EnvVector>> Make(std::string_view id, const Options& options);

  const EnvSpec& spec() const { return env_->spec(); }
  int size() const { return env_->size(); }
  // Sets the base seed of one environment (EpisodeSeeds). REQUIRES: index in [0, size()).
  void Seed(int index, std::uint64_t base) { seeds_.Seed(index, base); }
  // Starts an episode in every environment.
  void Reset();
  // Starts a new episode in these environments only. Errors: kFailedPrecondition: the first reset
  // must be one of all. REQUIRES: indices in [0, size()), each once.
  Status Restart(std::span<const int> indices);
  // Steps all environments; returns true if an episode ended, which was then restarted in its row.
  // Errors: kFailedPrecondition: no Reset yet; kInvalidArgument: see CopyDiscreteActions and
  // CopyContinuousActions, or a wrong number of actions. Nothing has happened after an error.
  template <class T>
  Result<bool> Step(std::span<const T> actions);
  // Picture of one environment. Errors: kFailedPrecondition: no Reset yet.
  Result<Environment::Picture> Render(int index) const;
  // Results of the last call. REQUIRES: Reset was called.
  const StepBatch& batch() const { return *batch_; }

 private:
  EnvVector(EpisodeSeeds seeds, const EnvSpec& spec, int size);
  Status Poll();
  bool AnyEnded() const;
  Status CheckStarted(std::string_view call) const;

  EpisodeSeeds seeds_;
  Tensor action_;  // [N, ...action]
  std::unique_ptr<VectorEnv> env_;
  const StepBatch* batch_ = nullptr;
};

}  // namespace troop
