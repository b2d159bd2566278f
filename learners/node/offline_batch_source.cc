// Implements batches from recorded episodes alone.

#include <algorithm>
#include <cmath>

#include "learners/node/batch_source.h"

namespace troop {
namespace {

// Every batch is ready at once, so only the updates limit the speed.
class OfflineBatchSource final : public BatchSource {
 public:
  explicit OfflineBatchSource(const BatchSourceOptions& options)
      : config_(*options.config),
        member_(*options.member),
        demonstrations_(options.demonstrations) {}

  void Begin(std::uint64_t updates) override { first_batch_ = updates; }
  // There is nothing to connect to.
  Status Connect(ChannelOptions) override {
    if (sampler_) return Status::Ok();
    sampler_ = MakeDemonstrationSampler(demonstrations_, nullptr,
                                        {.rows = config_.learner.batch_size,
                                         .seed = config_.seed,
                                         .learner = member_.options().index,
                                         .first = first_batch_});
    return Status::Ok();
  }
  ReplaySampler* sampler() override { return sampler_.get(); }
  // run.max_updates ends the run; steps only follow from the updates.
  bool all_have_batches() const override { return true; }
  bool ends_with_steps() const override { return false; }
  std::size_t batches_max(std::size_t updater_max) const override { return updater_max; }
  // There are no agent steps; run.total_steps (samples) is spread over the updates.
  std::int64_t StepsAt(std::uint64_t updates, std::int64_t) const override {
    const double share =
        double(updates) / double(std::max<std::int64_t>(1, config_.run.max_updates));
    return std::llround(std::min(1.0, share) * config_.run.total_steps);
  }
  // The coordinator ends the run by these.
  void ReportSteps(std::uint64_t updates, HeartbeatRequest* report) const override {
    report->steps_done = StepsAt(updates, 0);
  }
  void ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) override;
  // Agents have no files in the format of other programs.
  Status WriteFinalModel(Storage*, const Module&, std::span<const float>) const override {
    return Status::Ok();
  }

 private:
  const TrainingConfig& config_;
  const FleetMember& member_;
  const std::shared_ptr<const Demonstrations> demonstrations_;
  std::uint64_t first_batch_ = 0;
  std::unique_ptr<ReplaySampler> sampler_;
};

// A cloned policy has no values, a learned value no accuracy.
void OfflineBatchSource::ReportBatches(const UpdateJob& job, const Queue&, Metrics* metrics) {
  metrics->Ratio("learner/demonstration_fraction", 1, job.last.rows);
  if (config_.learner.algorithm == AlgorithmKind::kBehaviorCloning) {
    metrics->Ratio("learner/accuracy", job.last.accuracy, job.last.rows);
    return;
  }
  metrics->Ratio("learner/td_error_mean", job.last.td_error_mean, job.last.rows);
  metrics->Ratio("learner/q_mean", job.last.q_mean, job.last.rows);
}

}  // namespace

Result<std::shared_ptr<const Demonstrations>> LoadDemonstrations(const TrainingConfig& config,
                                                                 const EnvSpec& env) {
  // The path is absolute: ResolveSupervised has made it so.
  const std::string& path = config.learner.demonstrations;
  if (path.empty()) return std::shared_ptr<const Demonstrations>();
  Demonstrations::Options options{.env = env,
                                  .n_step = config.n_step,
                                  .frame_stack = config.frame_stack,
                                  .reward_scale = config.reward_scale,
                                  .observation_clip = config.observation_clip};
  // A clone learns from observations and actions alone.
  if (config.learner.algorithm == AlgorithmKind::kBehaviorCloning)
    options.reward_scale = std::nullopt;
  Result<std::unique_ptr<Demonstrations>> loaded = Demonstrations::Load(path, options);
  if (!loaded.ok()) return loaded.status().WithContext("learner.demonstrations");
  return std::shared_ptr<const Demonstrations>(std::move(*loaded));
}

// Only made for offline runs, which have a dataset (FindConflicts).
std::unique_ptr<BatchSource> MakeOfflineBatchSource(const BatchSourceOptions& options) {
  return std::make_unique<OfflineBatchSource>(options);
}

}  // namespace troop
