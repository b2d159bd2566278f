#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
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
  std::uint32_t first = 0;  // observation
  std::vector<RecordedStep> steps;
  bool ended = false;  // by itself; else it was given up after steps_max or by a fault
  bool operator==(const RecordedEpisode&) const = default;
};

// Plays chosen episodes of a vector of environments and writes down what it saw. One owner thread.
// The actions of an episode are drawn from its seed and `stream`, so that they are the same
// wherever and whenever it is played.
class EnvPlayer {
 public:
  struct Options {
    std::string id;
    EnvOptions env;
    int size = 1;
    std::uint64_t stream = 0;
    bool same_actions = false;      // in all episodes, whatever their seed
    std::int64_t steps_max = 1000;  // longer episodes are given up
  };
  static Result<std::unique_ptr<EnvPlayer>> Make(const Options& options);

  // Environment i plays the episodes of these seeds i, i + size, i + 2 size, … one after the other;
  // a `fault` ends the recording of its episode. Errors: what status() of the environments says.
  Result<std::vector<RecordedEpisode>> Play(const std::vector<std::uint64_t>& seeds);

  // Starts all anew. Then steps all, with random actions, or with `action` in each row.
  Status Restart();
  Status Step(const ConstTensor* action = nullptr);

  VectorEnv& env() { return *env_; }
  const EnvSpec& spec() const { return env_->spec(); }
  const StepBatch& batch() const { return *batch_; }
  // The first thing that was wrong in anything that was played; empty: nothing.
  const std::optional<EnvFault>& fault() const { return fault_; }
  const std::string& bad_number() const { return bad_number_; }

 private:
  struct Asked {
    std::uint64_t seed = 0;
    bool listed = false, counted = false;
  };
  struct Row {
    std::vector<std::uint64_t> seeds;  // to be recorded
    std::size_t given = 0, begun = 0;  // of them
    std::deque<Asked> asked;  // the seed of the present episode, and those that were given ahead
    bool recording = false;
    std::int64_t others = 0;  // episodes that nobody asked for
    std::int64_t steps = 0;   // of the present episode
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
