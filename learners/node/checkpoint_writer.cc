// Implements the job that writes a checkpoint.

#include "learners/node/checkpoint_writer.h"

#include <utility>

#include "learners/checkpoint.h"
#include "learners/supervised/supervised.h"
#include "learners/train_state.h"

namespace troop {

void CheckpointWriter::Start(bool final, std::int64_t agent_steps,
                             const RewardStatistics& rewards) {
  TROOP_CHECK(!busy(), "a checkpoint is already being written");
  job_ = std::make_unique<Job>();
  job_->agent_steps = agent_steps;
  job_->rewards = rewards;
  job_->written.final = final;
  Result<Executor::Job> id =
      options_.executor->Submit("checkpoint", [this, job = job_.get()] { Write(job); });
  TROOP_CHECK(id.ok(), "{}", id.status().ToString());
  job_->id = *id;
}

// The weights are checked first. With tensor parallelism the state may be older than the weights.
void CheckpointWriter::Write(Job* job) const {
  Written& written = job->written;
  Algorithm* const algorithm = options_.algorithm;
  written.updates = algorithm->updates();
  written.weights = algorithm->CheckFinite();
  if (!written.weights.ok()) return;
  CheckpointState checkpoint{.config_toml = options_.config->config_toml,
                             .state = WholeStateOf(*algorithm),
                             .policy = options_.policy,
                             .rewards = job->rewards};
  if (checkpoint.state.tensors.empty()) {
    written.path = NotFound("the tensor-parallel state has not been gathered yet");
    return;
  }
  // The state names its own update, which may be an earlier one.
  if (const auto updates = UpdatesOfState(checkpoint.state); updates.ok()) {
    written.updates = *updates;
  }
  checkpoint.updates = written.updates;
  checkpoint.steps = options_.source->StepsAt(written.updates, job->agent_steps);
  written.path =
      WriteCheckpoint(options_.run, *options_.module, checkpoint, options_.config->checkpoint.keep);
  if (!written.final || !written.path.ok()) return;
  // An algorithm with its own files has them for any of its values.
  const ModelFiles* const files = algorithm->model_files();
  const Status model = files != nullptr
                           ? files->WriteModelFiles(kModelFolder, options_.run)
                           : options_.source->WriteFinalModel(options_.run, *options_.module,
                                                              WholeValueOf(*algorithm));
  if (!model.ok()) written.path = model;
}

// The job is released with its result.
std::optional<CheckpointWriter::Written> CheckpointWriter::Poll() {
  if (!job_ || !options_.executor->TakeDone(job_->id)) return std::nullopt;
  return std::exchange(job_, nullptr)->written;
}

}  // namespace troop
