// Implements batches from recorded episodes alone.

#include <memory>
#include <utility>

#include "learners/node/update_batch_source.h"

namespace troop {
namespace {

// Every batch is ready at once, so only the updates limit the speed.
class OfflineBatchSource final : public UpdateBatchSource {
 public:
  explicit OfflineBatchSource(const BatchSourceOptions& options)
      : UpdateBatchSource(*options.config),
        member_(*options.member),
        demonstrations_(options.demonstrations) {}

  void Begin(std::uint64_t updates) override { first_batch_ = updates; }
  // There is nothing to connect to.
  Status Connect(ChannelOptions) override {
    if (sampler_) return Status::Ok();
    sampler_ = MakeDemonstrationSampler(demonstrations_, nullptr,
                                        {.rows = config().learner.batch_size,
                                         .seed = config().seed,
                                         .learner = member_.options().index,
                                         .first = first_batch_});
    return Status::Ok();
  }
  ReplaySampler* sampler() override { return sampler_.get(); }
  std::size_t batches_max(std::size_t updater_max) const override { return updater_max; }
  void ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) override;
  // Agents have no files in the format of other programs.
  Status WriteFinalModel(Storage*, const Module&, std::span<const float>) const override {
    return Status::Ok();
  }

 private:
  const FleetMember& member_;
  const std::shared_ptr<const Demonstrations> demonstrations_;
  std::uint64_t first_batch_ = 0;
  std::unique_ptr<ReplaySampler> sampler_;
};

// A cloned policy has no values, a learned value no accuracy.
void OfflineBatchSource::ReportBatches(const UpdateJob& job, const Queue&, Metrics* metrics) {
  metrics->Ratio("learner/demonstration_fraction", 1, job.last.rows);
  if (config().learner.algorithm == AlgorithmKind::kBehaviorCloning) {
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
