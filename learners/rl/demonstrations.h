#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/spec.h"
#include "replay/codec/sample_batch.h"
#include "replay/episodes/episode.h"
#include "replay/service/client.h"

namespace troop {

// A dataset of recorded episodes as transitions (learner.demonstrations): each step of each episode
// is one, with the rewards of up to n_step steps and the stacked frames that an actor's items would
// have. Immutable after Load, which copies the files into memory: later changes of them have no
// effect.
class Demonstrations {
 public:
  struct Options {
    EnvSpec env;  // of the run, with single frames
    std::int64_t n_step = 3;
    std::int64_t frame_stack = 1;
    // env.reward_scale and env.observation_clip of the run, which the episodes must include
    // already. reward_scale: nullopt: the rewards are not used.
    std::optional<double> reward_scale = 1;
    double observation_clip = 0;
  };
  // Reads and checks all files of a dataset (FindEpisodeFiles). Errors: kNotFound: no files;
  // kInvalidArgument: no complete episode, or one whose spaces differ from the environment's, or
  // whose reward_scale or observation_clip differ from those of the run; kDataLoss: a damaged file,
  // an action outside the environment's, or a value that is NaN, infinite or above
  // kSuspiciousMagnitude. The messages name file and episode.
  static Result<std::unique_ptr<Demonstrations>> Load(const std::string& path,
                                                      const Options& options);

  std::int64_t episodes() const { return std::int64_t(episodes_.size()); }
  std::int64_t transitions() const { return first_.back(); }
  // Writes transition `index` to row `row` of a batch with the tensors of Prepare. REQUIRES: index
  // < transitions().
  void Fill(std::int64_t index, std::int64_t row, SampleBatch* batch) const;
  // Makes the tensors and vectors of a batch of `size` rows; rows that are never filled are zeros,
  // with key 0 and weight 1.
  SampleBatch Prepare(std::int64_t size) const;

 private:
  explicit Demonstrations(const Options& options) : options_(options) {}
  Status Add(const std::string& file);
  Status Check(const Episode& episode) const;
  void FillFrames(const Episode& episode, std::int64_t last, std::span<std::byte> out) const;

  const Options options_;
  std::vector<Episode> episodes_;
  std::vector<std::int64_t> first_{0};  // [episodes + 1] transitions before each episode
};

// Makes a sampler whose batches have `rows` transitions of the dataset, uniformly sampled with
// replacement, after those of `fresh`; nullptr: all rows are of the dataset, and batches never run
// out until Drain. Rows of the dataset have key 0 (no item), weight 1 and probability 1 / N, and
// their priorities are dropped. The rows of batch number k follow from (seed, learner, k) alone;
// `first` is the number of the first batch.
struct DemonstrationSamplerOptions {
  std::int64_t rows = 0;
  std::int64_t seed = 1;
  std::int64_t learner = 0;
  std::uint64_t first = 0;
};
std::unique_ptr<ReplaySampler> MakeDemonstrationSampler(
    std::shared_ptr<const Demonstrations> dataset, std::unique_ptr<ReplaySampler> fresh,
    const DemonstrationSamplerOptions& options);

}  // namespace troop
