#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
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
                                  // (its step counts for nothing, its other rows but observation
                                  // are 0); native ones never do
};

// Why a row of a batch has its `fault`.
struct EnvFault {
  int index = 0;
  std::uint64_t seed = 0;  // of the episode that it ended
  std::int64_t step = 0;   // within it, from 1; 0: its reset
  std::string what;        // "ended by signal 11 (Segmentation fault)", "observation[3] is nan"
};

// Gives the seed of an environment's next episode: (local index) -> seed. Called once per episode,
// in their order; VectorEnv::seeds_ahead says how early.
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
  // native one is ready at once), or status() is not ok. Valid until the next Submit.
  virtual const StepBatch* Poll() = 0;
  // Gives up the episodes of these environments and starts the next: the batch that Poll gives next
  // has their first observations in `observation`, and otherwise what the last one had (but a
  // `fault` is of this start). REQUIRES: the step before was polled; each index once.
  virtual void SubmitRestart(std::span<const int> indices) = 0;
  // Of the last batch: one for each row with a `fault`, in order of the index.
  virtual std::span<const EnvFault> faults() const { return {}; }
  // Becomes readable when Poll may have something; -1: it always has. Deadlines and pauses pass
  // without it: Poll at least every 100 ms.
  virtual int fd() const { return -1; }
  // Not ok: the environments can't go on; Poll gives nothing any more.
  virtual Status status() const { return Status::Ok(); }
  // How many seeds of each environment were asked for beyond the one of the episode that is under
  // way, 0 or 1: the same after each Poll that gave a batch.
  virtual int seeds_ahead() const { return 0; }
  virtual Environment::Picture Render(int index) const = 0;
  // How long the environments' own steps and resets took so far, over all of their processes: the
  // rest of the time is the bridge's, and of those who wait for it. Nothing: not measured.
  virtual std::optional<Duration> inside() const { return std::nullopt; }
};

// Environments of any kind. In this process: batched code for those that have it (CartPole, MinAtar
// …), else a loop over Environment; same bytes either way. In processes of their own: plug-ins and
// Python (EnvOptions::isolation); then it waits for their first start. Errors: as MakeEnvironment;
// kInvalidArgument for size < 1; MakeProcessVectorEnv's.
Result<std::unique_ptr<VectorEnv>> MakeVectorEnv(std::string_view id, const EnvOptions& options,
                                                 int size, EpisodeSeeder seeder);

}  // namespace troop
