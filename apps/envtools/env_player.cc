// Plays and records episodes. Environments may request seeds ahead, so a row keeps a queue of them.
#include "apps/envtools/env_player.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/storage/crc32c.h"

namespace troop {
namespace {

constexpr std::uint64_t kOtherSeeds = 0x7275;  // run seed of filler episodes

// The bytes of row `index`.
std::span<const std::byte> RowBytes(const ConstTensor& tensor, int index) {
  const std::size_t bytes = tensor.bytes().size() / std::size_t(tensor.dim(0));
  return tensor.bytes().subspan(std::size_t(index) * bytes, bytes);
}

// "observation[3] is nan"; empty if the row is finite or not f32.
std::string BadFloat(const ConstTensor& observations, int index) {
  if (observations.dtype() != DType::kF32) return {};
  const auto size = std::size_t(observations.elements() / observations.dim(0));
  const auto row = observations.as<float>().subspan(std::size_t(index) * size, size);
  for (std::size_t i = 0; i < size; ++i) {
    if (!std::isfinite(row[i])) return fmt::format("observation[{}] is {}", i, row[i]);
  }
  return {};
}

}  // namespace

// `wait`: Poll returns only complete batches, so that recordings do not depend on timing.
Result<std::unique_ptr<EnvPlayer>> EnvPlayer::Make(const Options& options) {
  std::unique_ptr<EnvPlayer> player(new EnvPlayer(options));
  EnvOptions env = options.env;
  env.wait = true;
  TROOP_ASSIGN_OR_RETURN(player->env_,
                         MakeVectorEnv(options.id, env, options.size,
                                       [p = player.get()](int i) { return p->NextSeed(i); }));
  const TensorSpec one = player->spec().action.tensor();
  player->action_ = Tensor(one.dtype, one.shape.Prepend(options.size));
  return player;
}

// Called by environment `index` whenever it needs a seed. Once all listed episodes have been given
// out, it gets filler episodes, which are not recorded.
std::uint64_t EnvPlayer::NextSeed(int index) {
  Row& row = rows_[std::size_t(index)];
  const bool listed = row.given < row.seeds.size();
  const std::uint64_t seed = listed ? row.seeds[row.given++]
                                    : DeriveSeed({.run_seed = kOtherSeeds,
                                                  .purpose = Purpose::kEnvironment,
                                                  .index = std::uint64_t(index),
                                                  .episode = std::uint64_t(row.others++)});
  row.asked.push_back({seed, listed});
  return seed;
}

// Blocks until all environments have stepped.
Status EnvPlayer::Poll() {
  while ((batch_ = env_->Poll()) == nullptr) {
    TROOP_RETURN_IF_ERROR(env_->status());
    pollfd readable{.fd = env_->fd(), .events = POLLIN};
    poll(&readable, 1, 10);
  }
  if (!fault_ && !env_->faults().empty()) fault_ = env_->faults()[0];
  NoteNumbers();
  return Status::Ok();
}

// Keeps the first non-finite observation or reward.
void EnvPlayer::NoteNumbers() {
  for (int i = 0; bad_number_.empty() && i < options_.size; ++i) {
    const auto at = std::size_t(i);
    if (batch_->fault.as<std::uint8_t>()[at] != 0) continue;
    const bool ended = batch_->terminated.as<std::uint8_t>()[at] != 0 ||
                       batch_->truncated.as<std::uint8_t>()[at] != 0;
    std::string bad = BadFloat(batch_->observation, i);
    if (bad.empty() && ended) bad = BadFloat(batch_->final_observation, i);
    const float reward = batch_->reward.as<float>()[at];
    if (bad.empty() && !std::isfinite(reward)) bad = fmt::format("reward is {}", reward);
    if (bad.empty()) continue;
    bad_number_ = fmt::format("{} at step {} of the episode with seed {}", bad, rows_[at].steps + 1,
                              rows_[at].episode.seed);
  }
}

// The first call resets; later calls restart episodes in progress.
Status EnvPlayer::Restart() {
  std::vector<int> all(std::size_t(options_.size));
  std::iota(all.begin(), all.end(), 0);
  started_ ? env_->SubmitRestart(all) : env_->SubmitReset();
  started_ = true;
  TROOP_RETURN_IF_ERROR(Poll());
  for (int i = 0; i < options_.size; ++i) Begin(i);
  return Status::Ok();
}

// Null: random actions, from a stream that each episode's seed determines.
Status EnvPlayer::Step(const ConstTensor* action) {
  if (action == nullptr) ChooseActions();
  env_->Submit(action == nullptr ? ConstTensor(action_) : *action);
  return Poll();
}

// Samples uniformly from the actions that the observations allow.
void EnvPlayer::ChooseActions() {
  const ActionSpec& spec = env_->spec().action;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Rng& rng = rows_[i].actions;
    if (spec.discrete()) {
      const ConstTensor row = batch_->observation.Rows(std::int64_t(i), 1);
      // After a fault the row may be anything, also an empty mask, which allows all.
      const std::vector<std::int32_t> allowed = AllowedActions(env_->spec(), row.bytes());
      action_.data<std::int32_t>()[i] = allowed[rng.Below(std::uint32_t(allowed.size()))];
      continue;
    }
    const std::size_t width = spec.low.size();
    for (std::size_t k = 0; k < width; ++k) {
      if (spec.integers) {
        const std::uint32_t choice = rng.Below(std::uint32_t(spec.choices(k)));
        action_.data<float>()[i * width + k] = spec.low[k] + float(choice);
        continue;
      }
      const double chosen = rng.Uniform(spec.low[k], spec.high[k]);
      // The conversion to f32 can round beyond a bound.
      action_.data<float>()[i * width + k] = std::clamp(float(chosen), spec.low[k], spec.high[k]);
    }
  }
}

// Starts the record of the new episode. Seeds of episodes that failed to start are dropped first.
void EnvPlayer::Begin(int index) {
  Row& row = rows_[std::size_t(index)];
  const std::size_t kept = 1 + std::size_t(env_->seeds_ahead());
  for (;; row.asked.pop_front()) {
    Asked& present = row.asked.front();
    if (!std::exchange(present.counted, true) && present.listed) ++row.begun;
    if (row.asked.size() <= kept) break;
  }
  const std::uint64_t seed = row.asked.front().seed;
  row.recording = row.asked.front().listed;
  row.steps = 0;
  row.actions = Rng({.run_seed = options_.same_actions ? 0 : seed,
                     .purpose = Purpose::kExploration,
                     .index = options_.stream});
  row.episode = {.seed = seed, .first = Crc32c(RowBytes(batch_->observation, index))};
}

// Ends the record of the current episode. `ended`: by the environment.
void EnvPlayer::Finish(int index, bool ended, std::vector<RecordedEpisode>* done) {
  Row& row = rows_[std::size_t(index)];
  row.episode.ended = ended;
  if (row.recording) done->push_back(std::move(row.episode));
  row.recording = false;
}

// Appends the last step of one environment. With auto-reset, the final observation of an ended
// episode is in final_observation; `observation` is already the next episode's.
void EnvPlayer::Record(int index, std::vector<RecordedEpisode>* done) {
  const auto at = std::size_t(index);
  Row& row = rows_[at];
  ++row.steps;
  // The episode of a faulty environment ends without this step.
  if (batch_->fault.as<std::uint8_t>()[at] != 0) {
    Finish(index, false, done);
    return Begin(index);
  }
  const bool terminated = batch_->terminated.as<std::uint8_t>()[at] != 0;
  const bool truncated = batch_->truncated.as<std::uint8_t>()[at] != 0;
  const bool ended = terminated || truncated;
  const auto seen = RowBytes(ended ? batch_->final_observation : batch_->observation, index);
  row.episode.steps.push_back({.observation = Crc32c(seen),
                               .reward = batch_->reward.as<float>()[at],
                               .terminated = terminated,
                               .truncated = truncated});
  if (!ended) return;
  Finish(index, true, done);
  Begin(index);
}

// All listed episodes have been started and are no longer recorded.
bool EnvPlayer::AllDone() const {
  return std::ranges::all_of(
      rows_, [](const Row& row) { return !row.recording && row.begun == row.seeds.size(); });
}

// Steps all environments until every listed episode is recorded. Overlong episodes are cut off and
// restarted together.
Result<std::vector<RecordedEpisode>> EnvPlayer::Play(const std::vector<std::uint64_t>& seeds) {
  // Seeds requested ahead before this call are still in the queues, as filler episodes.
  for (Row& row : rows_) {
    row = {.asked = std::move(row.asked), .others = row.others};
    for (Asked& before : row.asked) before.listed = false;
  }
  for (std::size_t i = 0; i < seeds.size(); ++i) rows_[i % rows_.size()].seeds.push_back(seeds[i]);
  std::vector<RecordedEpisode> done;
  TROOP_RETURN_IF_ERROR(Restart());
  while (!AllDone()) {
    TROOP_RETURN_IF_ERROR(Step());
    std::vector<int> given_up;
    for (int i = 0; i < options_.size; ++i) {
      Record(i, &done);
      if (rows_[std::size_t(i)].steps >= options_.steps_max) given_up.push_back(i);
    }
    if (given_up.empty()) continue;
    for (const int i : given_up) Finish(i, false, &done);
    env_->SubmitRestart(given_up);
    TROOP_RETURN_IF_ERROR(Poll());
    for (const int i : given_up) Begin(i);
  }
  return done;
}

}  // namespace troop
