#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "envs/environment.h"

namespace troop {

// What one step of N environments gave. The tensors belong to the VectorEnv and are overwritten by
// its next step. An environment whose episode ended was reset: `observation` holds the first
// observation of its new episode, `final_observation` the true last one of the old.
struct StepBatch {
  ConstTensor observation;        // [N, ...obs]: to act on next
  ConstTensor final_observation;  // [N, ...obs]: row i is valid where terminated or truncated
  ConstTensor reward;             // [N] f32
  ConstTensor terminated;         // [N] u8
  ConstTensor truncated;          // [N] u8
  ConstTensor fault;              // [N] u8: 1 where the environment failed and was started anew
                                  // (its step counts for nothing); native ones never do
};

// Gives the seed of an environment's next episode: (local index) -> seed. Called once per episode.
using EpisodeSeeder = std::function<std::uint64_t(int index)>;

// N environments stepped together; writes in place. One owner thread.
class VectorEnv {
 public:
  virtual ~VectorEnv() = default;
  virtual const EnvSpec& spec() const = 0;
  virtual int size() const = 0;
  // Starts all episodes; the step that Poll gives next has only `observation`.
  virtual void SubmitReset() = 0;
  // action: [N, ...action]. REQUIRES: the step before was polled.
  virtual void Submit(ConstTensor action) = 0;
  // The result, once; nullptr: not ready yet (an environment in another process takes its time; a
  // native one is ready at once). Valid until the next Submit.
  virtual const StepBatch* Poll() = 0;
  // Gives up the episode of environment `index` and starts the next: its row of the last batch's
  // `observation` becomes the first observation. The other rows stay. REQUIRES: all was polled.
  virtual void Restart(int index) = 0;
  virtual Environment::Picture Render(int index) const = 0;
};

// Native environments: batched code for those that have it (CartPole, MinAtar …), else a loop over
// Environment. Same bytes either way. Errors: as MakeEnvironment; kInvalidArgument
// for size < 1.
Result<std::unique_ptr<VectorEnv>> MakeVectorEnv(std::string_view id, const EnvOptions& options,
                                                 int size, EpisodeSeeder seeder);

}  // namespace troop
