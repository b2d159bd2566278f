// Implements batches from a data set, in supervised mode.

#include <fmt/format.h>

#include <string>
#include <utility>

#include "learners/node/update_batch_source.h"
#include "learners/supervised/index_sampler.h"
#include "learners/supervised/supervised.h"

namespace troop {
namespace {

class DatasetBatchSource final : public UpdateBatchSource {
 public:
  explicit DatasetBatchSource(const TrainingConfig& config) : UpdateBatchSource(config) {}

  Status Connect(ChannelOptions) override {
    if (!sampler_) sampler_ = MakeIndexSampler();
    return Status::Ok();
  }
  ReplaySampler* sampler() override { return sampler_.get(); }
  // An update of a text model may take seconds: one per job, so that a stop request takes effect
  // soon.
  std::size_t batches_max(std::size_t) const override { return 1; }
  void ReportBatches(const UpdateJob& job, const Queue& queue, Metrics* metrics) override;
  Status WriteFinalModel(Storage* run, const Module& module,
                         std::span<const float> value) const override {
    return WriteModel(config(), run, module, value);
  }

 private:
  std::unique_ptr<ReplaySampler> sampler_;
};

// Accuracy is weighted by rows when roles are combined; costs are sums. A number has no accuracy.
void DatasetBatchSource::ReportBatches(const UpdateJob& job, const Queue&, Metrics* metrics) {
  if (config().model.problem_type != ProblemType::kRegression)
    metrics->Ratio("learner/accuracy", job.last.accuracy, job.last.rows);
  const std::pair<const char*, double> costs[] = {{"gradients", job.cost.gradients},
                                                  {"tokens", job.cost.tokens},
                                                  {"sequences", job.cost.sequences},
                                                  {"data_s", job.cost.data_s},
                                                  {"compute_s", job.cost.compute_s},
                                                  {"tensor_s", job.cost.tensor_s},
                                                  {"allreduce_wait_s", job.cost.allreduce_wait_s},
                                                  {"allreduce_s", job.cost.allreduce_s},
                                                  {"step_s", job.cost.step_s},
                                                  {"flops", job.cost.flops},
                                                  {"gradient_bytes", job.cost.gradient_bytes},
                                                  {"weights_s", job.cost.weights_s},
                                                  {"weights_bytes", job.cost.weights_bytes},
                                                  {"tensor_bytes", job.cost.tensor_bytes}};
  for (const auto& [name, value] : costs) metrics->Count(std::string("learner/") + name, value);
  if (job.cost.stage < 0) return;
  // Each stage of a pipeline has its own names, since roles are combined.
  // Sums over the measured runs.
  const std::pair<const char*, double> stage[] = {{"runs", job.cost.stage_runs},
                                                  {"s", job.cost.stage_s},
                                                  {"idle_s", job.cost.stage_idle_s},
                                                  {"bytes", job.cost.stage_bytes},
                                                  {"planned_s", job.cost.planned_stage_s},
                                                  {"planned_idle_s", job.cost.planned_idle_s},
                                                  {"planned_bytes", job.cost.planned_stage_bytes}};
  for (const auto& [name, value] : stage)
    metrics->Count(fmt::format("learner/stage{}_{}", job.cost.stage, name), value);
}

}  // namespace

std::unique_ptr<BatchSource> MakeDatasetBatchSource(const TrainingConfig& config) {
  return std::make_unique<DatasetBatchSource>(config);
}

std::unique_ptr<BatchSource> MakeBatchSource(const BatchSourceOptions& options) {
  if (IsSupervised(options.config->learner)) return MakeDatasetBatchSource(*options.config);
  if (IsOffline(options.config->learner)) return MakeOfflineBatchSource(options);
  return MakeReplayBatchSource(options);
}

}  // namespace troop
