// Implements batches from the replay's shards.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "learners/node/batch_source.h"
#include "learners/node/replayed_unroll_sampler.h"
#include "learners/node/rollout_sampler.h"
#include "replay/replica/delta_sampler.h"
#include "replay/service/options_from_config.h"

namespace troop {
namespace {

// Requests in flight for single unrolls, which a rollout consists of.
constexpr std::int64_t kUnrollPrefetch = 32;

class ReplayBatchSource final : public BatchSource {
 public:
  explicit ReplayBatchSource(const BatchSourceOptions& options)
      : config_(*options.config),
        env_(*options.env),
        network_(options.network),
        member_(*options.member),
        demonstrations_(options.demonstrations) {}

  void Begin(std::uint64_t updates) override { first_batch_ = updates; }
  Status Connect(ChannelOptions options) override;
  ReplaySampler* sampler() override { return sampler_.get(); }
  bool all_have_batches() const override { return false; }
  // Without a ratio or a number of updates, only the actors' steps can end the run.
  bool ends_with_steps() const override {
    return !rollouts() && config_.replay.samples_per_insert <= 0 && config_.run.max_updates == 0;
  }
  bool TakeRolloutEnd() override { return rollout_ != nullptr && rollout_->TakeEnd(); }
  std::size_t batches_max(std::size_t updater_max) const override { return updater_max; }
  std::int64_t StepsAt(std::uint64_t, std::int64_t agent_steps) const override {
    return agent_steps;
  }
  void ReportSteps(std::uint64_t, HeartbeatRequest*) const override {}  // actors report them
  void ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) override;
  Status WriteFinalModel(Storage*, const Module&, std::span<const float>) const override {
    return Status::Ok();  // the checkpoint's weights are enough
  }

 private:
  bool rollouts() const { return config_.rollout_steps > 0; }
  std::int64_t prefetch() const {
    return std::max(config_.learner.prefetch, rollouts() ? kUnrollPrefetch : 0);
  }
  // Rows of a batch that come from the replay.
  std::int64_t FreshRows() const {
    const LearnerConfig& l = config_.learner;
    return rollouts() ? 1 : l.batch_size - DemonstrationRows(l) - ReplayedRows(l);
  }
  ReplaySetup Setup() const;
  ReplaySampler::Options SamplingOptions(const TrajectorySpec& trajectory) const;
  Status AddShards(const ChannelOptions& options);

  const TrainingConfig& config_;
  const EnvSpec& env_;
  Network* const network_;
  const FleetMember& member_;
  const std::shared_ptr<const Demonstrations> demonstrations_;  // nullptr: none
  std::uint64_t first_batch_ = 0;  // its number, for the demonstrations
  std::unique_ptr<ReplaySampler> sampler_;
  RolloutSampler* rollout_ = nullptr;  // sampler_ of synchronous learning
  std::int32_t shards_ = 0;            // replay shards that the sampler uses
};

// Waits until the endpoints of all initial shards are known.
Status ReplayBatchSource::Connect(ChannelOptions options) {
  // Room for priorities, totals and dictionaries in addition to requests for samples.
  options.window = int(prefetch()) + 12;
  // Connected already: only shards that joined later are missing.
  if (sampler_) return AddShards(options);
  const std::vector<std::int32_t> shards =
      ReplayShardsFor(config_.replay, member_.options().index, member_.fleet().replay);
  for (const std::int32_t k : shards) {
    // A batch needs all shards, or its probabilities would be wrong.
    if (member_.Endpoint(Role::kReplay, k).empty()) return Status::Ok();
  }
  std::vector<std::unique_ptr<Channel>> channels;
  for (const std::int32_t k : shards) {
    TROOP_ASSIGN_OR_RETURN(auto channel,
                           network_->Connect(member_.Endpoint(Role::kReplay, k), options));
    channels.push_back(std::move(channel));
  }
  // The spec is that of the environment: shards with other shapes are refused.
  const TrajectorySpec trajectory = TrajectoryFor(Setup(), env_);
  shards_ = std::int32_t(channels.size());
  const ReplaySampler::Options drawing = SamplingOptions(trajectory);
  // On a GPU the learner holds a copy of the table, which one shard sends as deltas.
  sampler_ = config_.replay.placement == ReplayPlacement::kGpu
                 ? MakeDeltaSampler(std::move(channels[0]), trajectory, drawing)
                 : MakeReplaySampler(std::move(channels), trajectory, drawing);
  if (ReplayedRows(config_.learner) > 0) {
    sampler_ = std::make_unique<ReplayedUnrollSampler>(
        std::move(sampler_),
        ReplayedUnrollSampler::Options{.rows = ReplayedRows(config_.learner),
                                       .capacity = config_.learner.replayed_capacity,
                                       .seed = config_.seed,
                                       .learner = member_.options().index,
                                       .first = first_batch_});
  }
  if (rollouts()) {
    auto rollout = std::make_unique<RolloutSampler>(
        std::move(sampler_),
        RolloutSampler::Options{.steps = config_.rollout_steps,
                                .epochs = config_.learner.rollout_epochs,
                                .minibatches = config_.learner.rollout_minibatches,
                                .seed = config_.seed,
                                .learner = member_.options().index});
    rollout_ = rollout.get();
    sampler_ = std::move(rollout);
  }
  if (demonstrations_ != nullptr) {
    sampler_ = MakeDemonstrationSampler(demonstrations_, std::move(sampler_),
                                        {.rows = DemonstrationRows(config_.learner),
                                         .seed = config_.seed,
                                         .learner = member_.options().index,
                                         .first = first_batch_});
  }
  return Status::Ok();
}

ReplaySetup ReplayBatchSource::Setup() const {
  return {.seed = config_.seed,
          .replay = config_.replay,
          .n_step = config_.n_step,
          .unroll_length = config_.unroll_length,
          .numbers_per_step = NumbersPerStep(config_.learner),
          .state_columns = StateColumns(config_.network.layers),
          .burn_in = config_.burn_in,
          .frame_stack = config_.frame_stack,
          .batch_size = FreshRows()};
}

ReplaySampler::Options ReplayBatchSource::SamplingOptions(const TrajectorySpec& trajectory) const {
  ReplaySampler::Options options = SamplerOptionsFor(Setup(), trajectory);
  options.prefetch = int(prefetch());
  options.batches_per_request = rollouts() ? 1 : int(config_.learner.batches_per_request);
  // Serial mode decodes on the calling thread, to be deterministic and single-threaded.
  if (config_.serial) options.decode_threads = 0;
  return options;
}

// Connects to new shards, and to leaving ones, which are sampled while they exist.
Status ReplayBatchSource::AddShards(const ChannelOptions& options) {
  if (config_.replay.scope == ReplayScope::kLocal) return Status::Ok();
  while (shards_ < member_.fleet().replay + member_.fleet().replay_leaving) {
    const std::string endpoint = member_.Endpoint(Role::kReplay, shards_);
    // Shards are numbered in order, so a missing endpoint ends the search.
    if (endpoint.empty()) return Status::Ok();
    TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(endpoint, options));
    sampler_->AddShard(std::move(channel));
    ++shards_;
  }
  return Status::Ok();
}

void ReplayBatchSource::ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) {
  if (!job.batches.back().key.empty()) metrics->Gauge("learner/beta", job.batches.back().beta);
  metrics->Ratio("learner/td_error_mean", job.last.td_error_mean, job.last.rows);
  metrics->Ratio("learner/q_mean", job.last.q_mean, job.last.rows);
  // Batches ready at the sampler or waiting in jobs: 0 means that the learner waits for data.
  const std::size_t ready = std::size_t(sampler_->ready_batches()) + queue.batches_waiting;
  metrics->Gauge("learner/ready_batches", double(ready), MetricKind::kGaugeSum);
  // Age of the experience: updates since the weights that acted in it.
  double age = 0, items = 0, rows = 0;
  for (const SampleBatch& batch : job.batches) {
    rows += double(batch.key.size());
    for (std::size_t i = 0; i < batch.policy_version.size(); ++i) {
      if (batch.key[i].generation == 0) continue;  // a demonstration
      age += double(queue.updates) - double(UpdatesOf(batch.policy_version[i]));
      ++items;
    }
  }
  if (rollout_ != nullptr) {
    metrics->Gauge("learner/rollouts", double(rollout_->rollouts()), MetricKind::kCounter);
    metrics->Gauge("learner/dropped_unrolls", double(rollout_->dropped()), MetricKind::kCounter);
  }
  if (demonstrations_ != nullptr && rows > 0) {
    metrics->Ratio("learner/demonstration_fraction", (rows - items) / rows, rows);
  }
  // Weighted by the number of items when reports are merged.
  metrics->Ratio("learner/sample_age", items > 0 ? std::max(0.0, age / items) : 0, items);
}

}  // namespace

std::unique_ptr<BatchSource> MakeReplayBatchSource(const BatchSourceOptions& options) {
  return std::make_unique<ReplayBatchSource>(options);
}

}  // namespace troop
