// Implements datasets of recorded episodes, and batches that contain their transitions.
#include "learners/rl/demonstrations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/philox.h"
#include "core/storage/storage.h"

namespace troop {
namespace {

// Index of the random stream of learner 0; those of replay shards are incarnations, far below.
constexpr std::uint64_t kDemonstrationStream = std::uint64_t{1} << 63;

// The spaces, as an error message names them.
std::string Describe(const TensorSpec& observation, const ActionSpec& action) {
  return fmt::format("observations {} and {}", observation.ToString(),
                     action.discrete() ? Counted(action.count, "action")
                                       : fmt::format("actions of {} values", action.low.size()));
}

// Above the magnitude an update may fail although all weights are finite.
Status CheckValues(const char* what, const Buffer& values) {
  for (const float x : values.as<float>()) {
    if (std::abs(x) < kSuspiciousMagnitude) continue;
    return DataLoss("has the {} {}, must be below {} in magnitude", what, x, kSuspiciousMagnitude);
  }
  return Status::Ok();
}

// Reads a file into memory. It is not mapped: an access to a mapped file that another program has
// truncated ends the process.
Result<Buffer> ReadWhole(const std::string& file) {
  const std::filesystem::path path(file);
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(path.parent_path().string()));
  // CheckMachine has compared the size of the whole dataset with the machine's memory.
  return folder->Read(path.filename().string(), std::numeric_limits<std::size_t>::max());
}

}  // namespace

// Steps: find the files, read and check each, then require at least one episode.
Result<std::unique_ptr<Demonstrations>> Demonstrations::Load(const std::string& path,
                                                             const Options& options) {
  std::unique_ptr<Demonstrations> made(new Demonstrations(options));
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::string> files, FindEpisodeFiles(path));
  for (const std::string& file : files) {
    TROOP_RETURN_IF_ERROR(made->Add(file).WithContext(file));
  }
  if (made->episodes_.empty()) {
    return InvalidArgument("{}: no complete episode; record some with actor.record_episodes", path);
  }
  return made;
}

// A torn record at the end is normal after a kill, so it is only logged.
Status Demonstrations::Add(const std::string& file) {
  TROOP_ASSIGN_OR_RETURN(Buffer bytes, ReadWhole(file));
  EpisodeReader reader(std::move(bytes));
  for (std::int64_t number = 0;; ++number) {
    TROOP_ASSIGN_OR_RETURN(std::optional<Episode> episode, reader.Next());
    if (!episode) break;
    TROOP_RETURN_IF_ERROR(Check(*episode).WithContext(fmt::format("episode {}", number)));
    // Each step begins one transition.
    first_.push_back(first_.back() + episode->steps);
    episodes_.push_back(std::move(*episode));
  }
  if (reader.torn_bytes() > 0) {
    LogWarning("{}: ignored an incomplete episode of {} bytes at its end", file,
               reader.torn_bytes());
  }
  return Status::Ok();
}

// The bounds of continuous actions may differ, because the dataset's actions are only imitated or
// evaluated.
Status Demonstrations::Check(const Episode& e) const {
  const EnvSpec& env = options_.env;
  const bool same_actions = e.action.discrete() == env.action.discrete() &&
                            e.action.count == env.action.count &&
                            e.action.low.size() == env.action.low.size();
  if (e.observation != env.observation || !same_actions) {
    return InvalidArgument("{} has {}, but {} has {}; use episodes of this environment", e.env,
                           Describe(e.observation, e.action), env.id,
                           Describe(env.observation, env.action));
  }
  // Values that were recorded otherwise would silently differ from those of the environment.
  const auto same = [&](const char* key, double recorded, double run) {
    if (recorded == run) return Status::Ok();
    return InvalidArgument("was recorded with {} = {}, but this run has {}; set the same value",
                           key, recorded, run);
  };
  if (options_.reward_scale)
    TROOP_RETURN_IF_ERROR(same("env.reward_scale", e.reward_scale, *options_.reward_scale));
  TROOP_RETURN_IF_ERROR(
      same("env.observation_clip", e.observation_clip, options_.observation_clip));
  if (e.observation.dtype == DType::kF32) {
    TROOP_RETURN_IF_ERROR(CheckValues("observation", e.observations));
  }
  TROOP_RETURN_IF_ERROR(CheckValues("reward", e.rewards));
  if (!env.action.discrete()) return CheckValues("action", e.actions);
  for (const std::int32_t action : e.actions.as<std::int32_t>()) {
    if (action >= 0 && action < env.action.count) continue;
    return DataLoss("has the action {}, which is not in [0, {})", action, env.action.count);
  }
  return Status::Ok();
}

// All tensors have the shapes of the replay's batches (BatchDecoder).
SampleBatch Demonstrations::Prepare(std::int64_t size) const {
  const EnvSpec& env = options_.env;
  const bool stacked = options_.frame_stack > 1;
  const Shape frames =
      stacked ? env.observation.shape.Prepend(options_.frame_stack) : env.observation.shape;
  const auto rows = std::size_t(size);
  SampleBatch batch;
  batch.key.resize(rows);
  batch.probability.resize(rows, 1.0 / double(transitions()));
  batch.weight.resize(rows, 1.0F);
  batch.observation = Tensor(env.observation.dtype, frames.Prepend(size));
  batch.next_observation = Tensor(env.observation.dtype, frames.Prepend(size));
  const TensorSpec action = env.action.tensor();
  batch.action = Tensor(action.dtype, action.shape.Prepend(size));
  batch.reward = Tensor(DType::kF32, {size, options_.n_step});
  batch.discount = Tensor(DType::kF32, {size, options_.n_step});
  // No burn-in: demonstrations are transitions, not sequences.
  batch.length.resize(rows);
  batch.burn_in.resize(rows);
  batch.policy_version.resize(rows);
  return batch;
}

// The frames up to `last`, oldest first; zeros before the start of the episode.
void Demonstrations::FillFrames(const Episode& e, std::int64_t last,
                                std::span<std::byte> out) const {
  const std::size_t frame = e.observation.bytes();
  for (std::int64_t k = 0; k < options_.frame_stack; ++k) {
    const std::int64_t t = last - options_.frame_stack + 1 + k;
    const std::span<std::byte> to = out.subspan(std::size_t(k) * frame, frame);
    if (t < 0) {
      std::ranges::fill(to, std::byte{0});
    } else {
      std::ranges::copy(e.observations.bytes().subspan(std::size_t(t) * frame, frame), to.begin());
    }
  }
}

// A transition is an item of an actor: at most n steps, shorter at the end of the episode. Past the
// end the rewards are 0 and the discounts 1.
void Demonstrations::Fill(std::int64_t index, std::int64_t row, SampleBatch* batch) const {
  const auto after = std::ranges::upper_bound(first_, index);
  const auto number = std::size_t(after - first_.begin()) - 1;
  const Episode& e = episodes_[number];
  const std::int64_t t = index - first_[number];
  // At the end of an episode fewer steps are left.
  const std::int64_t length = std::min(options_.n_step, e.steps - t);
  const auto row_of = [row](const Tensor& tensor) {
    const std::size_t bytes = tensor.bytes().size() / std::size_t(tensor.dim(0));
    return tensor.bytes().subspan(std::size_t(row) * bytes, bytes);
  };
  FillFrames(e, t, row_of(batch->observation));
  FillFrames(e, t + length, row_of(batch->next_observation));
  // One action, that of the first step.
  const std::size_t action = e.action.tensor().bytes();
  std::ranges::copy(e.actions.bytes().subspan(std::size_t(t) * action, action),
                    row_of(batch->action).begin());
  for (std::int64_t k = 0; k < options_.n_step; ++k) {
    const auto at = std::size_t(row * options_.n_step + k);
    // The discount is 0 only where the last step of the episode terminated.
    const bool inside = k < length;
    const bool terminal = inside && e.terminated && t + k == e.steps - 1;
    batch->reward.as<float>()[at] = inside ? e.rewards.as<float>()[std::size_t(t + k)] : 0;
    batch->discount.as<float>()[at] = terminal ? 0 : 1;
  }
  batch->length[std::size_t(row)] = std::int32_t(length);
  batch->policy_version[std::size_t(row)] = e.policy_updates;
}

namespace {

// Copies the rows of `from` to the first rows of `to`.
void CopyRows(const Tensor& from, const Tensor& to) {
  std::ranges::copy(from.bytes(), to.bytes().begin());
}

// Calls that concern the replay are forwarded to its sampler, if there is one.
class DemonstrationSampler final : public ReplaySampler {
 public:
  DemonstrationSampler(std::shared_ptr<const Demonstrations> dataset,
                       std::unique_ptr<ReplaySampler> fresh,
                       const DemonstrationSamplerOptions& options)
      : dataset_(std::move(dataset)),
        fresh_(std::move(fresh)),
        options_(options),
        number_(options.first) {}

  void AddShard(std::unique_ptr<Channel> channel) override {
    if (fresh_) fresh_->AddShard(std::move(channel));
  }
  void Poll(Time now) override {
    if (fresh_) fresh_->Poll(now);
  }
  Result<std::optional<SampleBatch>> Next() override;
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override;
  void ObservePolicyVersion(std::uint64_t version) override {
    if (fresh_) fresh_->ObservePolicyVersion(version);
  }
  void SetBeta(double beta) override {
    if (fresh_) fresh_->SetBeta(beta);
  }
  void Drain() override {
    drained_ = true;
    if (fresh_) fresh_->Drain();
  }
  int ready_batches() const override {
    if (fresh_) return fresh_->ready_batches();
    return drained_ ? 0 : 1;
  }
  int shards_alive() const override { return fresh_ ? fresh_->shards_alive() : 1; }

 private:
  SampleBatch Merge(const SampleBatch& fresh) const;

  const std::shared_ptr<const Demonstrations> dataset_;
  const std::unique_ptr<ReplaySampler> fresh_;  // nullptr: the dataset alone
  const DemonstrationSamplerOptions options_;
  std::uint64_t number_;  // of the next batch
  bool drained_ = false;
};

// The rows of `fresh`, then those of the dataset, which have no values yet.
SampleBatch DemonstrationSampler::Merge(const SampleBatch& fresh) const {
  SampleBatch batch = dataset_->Prepare(fresh.size() + options_.rows);
  for (const auto& [from, to] :
       {std::pair{&fresh.observation, &batch.observation},
        std::pair{&fresh.next_observation, &batch.next_observation},
        std::pair{&fresh.action, &batch.action}, std::pair{&fresh.reward, &batch.reward},
        std::pair{&fresh.discount, &batch.discount}}) {
    CopyRows(*from, *to);
  }
  std::ranges::copy(fresh.key, batch.key.begin());
  std::ranges::copy(fresh.probability, batch.probability.begin());
  std::ranges::copy(fresh.weight, batch.weight.begin());
  std::ranges::copy(fresh.length, batch.length.begin());
  std::ranges::copy(fresh.burn_in, batch.burn_in.begin());
  std::ranges::copy(fresh.policy_version, batch.policy_version.begin());
  batch.beta = fresh.beta;
  return batch;
}

// An empty batch of the replay stays empty.
Result<std::optional<SampleBatch>> DemonstrationSampler::Next() {
  // The replay's rows come first, as the rate limiter has charged for them.
  SampleBatch fresh;
  if (fresh_) {
    TROOP_ASSIGN_OR_RETURN(std::optional<SampleBatch> sampled, fresh_->Next());
    if (!sampled) return std::optional<SampleBatch>();
    fresh = std::move(*sampled);
  } else if (drained_) {
    return OutOfRange("the run has ended");
  }
  SampleBatch batch = fresh_ ? Merge(fresh) : dataset_->Prepare(options_.rows);
  // The stream of this batch depends on nothing but its number, so a resumed run continues it.
  Rng rng({.run_seed = std::uint64_t(options_.seed),
           .purpose = Purpose::kReplaySampling,
           .index = kDemonstrationStream + std::uint64_t(options_.learner),
           .episode = number_++});
  for (std::int64_t row = fresh.size(); row < batch.size(); ++row) {
    // 64 random bits: the bias of the remainder is below 2^-20 for 2^44 transitions.
    dataset_->Fill(std::int64_t(rng.NextU64() % std::uint64_t(dataset_->transitions())), row,
                   &batch);
  }
  return std::optional(std::move(batch));
}

// Rows of the dataset have no item whose priority could change.
void DemonstrationSampler::UpdatePriorities(std::span<const ItemKey> keys,
                                            std::span<const float> priority) {
  if (!fresh_) return;
  // Generation 0 marks a row without an item.
  std::vector<ItemKey> items;
  std::vector<float> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].generation == 0) continue;
    items.push_back(keys[i]);
    values.push_back(priority[i]);
  }
  fresh_->UpdatePriorities(items, values);
}

}  // namespace

std::unique_ptr<ReplaySampler> MakeDemonstrationSampler(
    std::shared_ptr<const Demonstrations> dataset, std::unique_ptr<ReplaySampler> fresh,
    const DemonstrationSamplerOptions& options) {
  return std::make_unique<DemonstrationSampler>(std::move(dataset), std::move(fresh), options);
}

}  // namespace troop
