#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/tensor/tensor.h"
#include "envs/environment.h"

namespace troop {

// Results of one step of N environments. The tensors belong to the VectorEnv and are overwritten by
// its next step. An environment whose episode ended has been reset: `observation` holds the first
// observation of its new episode, `final_observation` the last one of the old episode.
struct StepBatch {
  ConstTensor observation;        // [N, ...obs]: input of the next action
  ConstTensor final_observation;  // [N, ...obs]: row i is valid where terminated or truncated
  ConstTensor reward;             // [N] f32
  ConstTensor terminated;         // [N] u8
  ConstTensor truncated;          // [N] u8
  ConstTensor fault;              // [N] u8: 1 where the environment failed and was restarted
                                  // (its step is discarded and its other rows but observation
                                  // are 0); native environments never fail
};

// Details of one row with `fault` set.
struct EnvFault {
  int index = 0;
  std::uint64_t seed = 0;  // of the episode that was lost
  std::int64_t step = 0;   // within the episode, from 1; 0: its reset
  std::string what;        // "ended by signal 11 (Segmentation fault)", "observation[3] is nan"
};

// Returns the seed of an environment's next episode: (local index) -> seed. Called once per
// episode, in order; VectorEnv::seeds_ahead is the number of seeds that were requested early.
using EpisodeSeeder = std::function<std::uint64_t(int index)>;

// N copies of one environment that step together and write in place. One owner thread.
class VectorEnv {
 public:
  virtual ~VectorEnv() = default;
  virtual const EnvSpec& spec() const = 0;
  virtual int size() const = 0;
  // Starts all episodes; the next batch from Poll has only `observation`.
  virtual void SubmitReset() = 0;
  // Starts one step of all environments; action: [N, ...action]. REQUIRES: the previous step was
  // polled.
  virtual void Submit(ConstTensor action) = 0;
  // Returns the result of a step once. nullptr: not ready yet (worker processes answer
  // asynchronously; native environments are ready at once), or status() is not ok. Valid until the
  // next Submit.
  virtual const StepBatch* Poll() = 0;
  // Abandons the episodes of these environments and starts new ones. The next batch from Poll has
  // their first observations in `observation` and otherwise the previous batch's values (but
  // `fault` refers to this start). REQUIRES: the previous step was polled; each index occurs once.
  virtual void SubmitRestart(std::span<const int> indices) = 0;
  // Faults of the last batch, one per row with `fault`, in order of the index.
  virtual std::span<const EnvFault> faults() const { return {}; }
  // Descriptor that becomes readable when Poll may have a result; -1: Poll always has one.
  // Deadlines and restart delays do not signal it, so poll at least every 100 ms.
  virtual int fd() const { return -1; }
  // Not ok once the environments cannot continue; Poll then returns nullptr forever.
  virtual Status status() const { return Status::Ok(); }
  // Number of seeds per environment that were requested for episodes after the current one, 0 or 1;
  // constant after each Poll that returned a batch.
  virtual int seeds_ahead() const { return 0; }
  // Picture of environment `index`; empty if there is none.
  virtual Environment::Picture Render(int index) const = 0;
  // Moves the numbers that the environments have reported since the last call to `into`; none
  // without EnvOptions::metrics. Blocks for the worker processes, which answer at once; what a
  // process reported before it died is lost. REQUIRES: the previous step was polled.
  virtual void TakeMetrics(EnvMetrics* into) { (void)into; }
  // Time spent in the environments' own steps and resets so far, summed over their processes; the
  // remaining time is overhead of the bridge and of waiting. nullopt: not measured.
  virtual std::optional<Duration> inside() const { return std::nullopt; }
};

// Creates a vector of any kind of environment. In this process: batched code where it exists
// (CartPole, MinAtar, …), otherwise a loop over Environment, with the same bytes. In worker
// processes: plug-ins and Python environments (EnvOptions::isolation); the call blocks for their
// first start. Errors: those of MakeEnvironment and MakeSubprocVectorEnv; kInvalidArgument for size
// < 1.
Result<std::unique_ptr<VectorEnv>> MakeVectorEnv(std::string_view id, const EnvOptions& options,
                                                 int size, EpisodeSeeder seeder);

}  // namespace troop
