#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "envs/vector_env.h"

namespace troop {

// One step of a recorded episode. Observations are kept as checksums (CRC-32C).
struct RecordedStep {
  std::uint32_t observation = 0;
  float reward = 0;
  bool terminated = false, truncated = false;
  bool operator==(const RecordedStep&) const = default;
};

struct RecordedEpisode {
  std::uint64_t seed = 0;
  std::uint32_t first = 0;  // checksum of the initial observation
  std::vector<RecordedStep> steps;
  bool ended = false;  // by the environment; false: cut off after steps_max, or by a fault
  bool operator==(const RecordedEpisode&) const = default;
};

// Plays given episodes in a vector of environments and records them. One owner thread. The actions
// of an episode are sampled from its seed and `stream`, so they do not depend on where and when it
// is played.
class EnvPlayer {
 public:
  struct Options {
    std::string id;
    EnvOptions env;
    int size = 1;
    std::uint64_t stream = 0;
    bool same_actions = false;      // true: equal in all episodes, whatever their seed
    std::int64_t steps_max = 1000;  // longer episodes are cut off
  };
  static Result<std::unique_ptr<EnvPlayer>> Make(const Options& options);

  // Plays one episode per seed: environment i plays the seeds i, i + size, i + 2 size, … in turn. A
  // fault ends the recording of its episode. Blocks. Errors: status() of the environments.
  Result<std::vector<RecordedEpisode>> Play(const std::vector<std::uint64_t>& seeds);

  // Restart resets all environments. Step steps all, with random actions or with `action` [size,
  // …].
  Status Restart();
  Status Step(const ConstTensor* action = nullptr);

  VectorEnv& env() { return *env_; }
  const EnvSpec& spec() const { return env_->spec(); }
  const StepBatch& batch() const { return *batch_; }
  // The first fault and the first non-finite value since Make; empty: none.
  const std::optional<EnvFault>& fault() const { return fault_; }
  const std::string& bad_number() const { return bad_number_; }

 private:
  // A seed that an environment has requested.
  struct Asked {
    std::uint64_t seed = 0;
    bool listed = false;   // one of the seeds to play; false: a filler episode
    bool counted = false;  // its start is in Row::begun
  };
  // The state of one environment.
  struct Row {
    std::vector<std::uint64_t> seeds;  // to record
    std::size_t given = 0, begun = 0;  // numbers of those seeds
    std::deque<Asked> asked;           // seed of the current episode, then those requested ahead
    bool recording = false;
    std::int64_t others = 0;  // filler episodes so far
    std::int64_t steps = 0;   // of the current episode
    Rng actions{{}};
    RecordedEpisode episode;
  };
  explicit EnvPlayer(Options options) : options_(std::move(options)), rows_(options_.size) {}
  std::uint64_t NextSeed(int index);
  Status Poll();
  void ChooseActions();
  void NoteNumbers();
  void Begin(int index);
  void Record(int index, std::vector<RecordedEpisode>* done);
  void Finish(int index, bool ended, std::vector<RecordedEpisode>* done);
  bool AllDone() const;

  const Options options_;
  std::unique_ptr<VectorEnv> env_;
  const StepBatch* batch_ = nullptr;
  std::vector<Row> rows_;
  Tensor action_;
  bool started_ = false;
  std::optional<EnvFault> fault_;
  std::string bad_number_;
};

}  // namespace troop
