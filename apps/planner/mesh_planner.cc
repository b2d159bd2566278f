// `troop plan`: a cost model of supervised updates on meshes of learners, and its measurements.
#include "apps/planner/mesh_planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/phase_progress.h"
#include "core/base/time.h"
#include "core/config/enum_format.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "learners/supervised/gpu_profile.h"
#include "learners/supervised/supervised.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "nn/optimizer.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

constexpr int kUpdates = 4;                           // the first one is warm-up and not counted
constexpr std::int64_t kFew = 1024, kMany = 1 << 22;  // floats of a GPU all-reduce
constexpr int kFewTries = 100, kManyTries = 10;
constexpr Duration kServe = Seconds(600);  // idle time after which --serve ends

// Share of the parameters in embeddings. Their gradient is complete only at the end of backward, so
// its all-reduce cannot be overlapped.
double EmbeddingShare(const Module& module) {
  double words = 0;
  for (const ParamSpec& spec : module.params()) {
    if (spec.name.ends_with("word_embeddings.weight") || spec.name == "embedding.weight") {
      words += double(spec.shape.elements());
    }
  }
  return words / double(ParameterCount(module));
}

// Measures all-reduces between two GPUs by NCCL.
Result<LinkSpeed> MeasureGpuLink(const Config& config) {
  const NcclOptions nccl{.library = config.learner.nccl_library};
  TROOP_ASSIGN_OR_RETURN(const double small, TimeGpuAllReduce(0, 1, nccl, kFew, kFewTries));
  TROOP_ASSIGN_OR_RETURN(const double large, TimeGpuAllReduce(0, 1, nccl, kMany, kManyTries));
  const double sent = SentShare(2) * double(kMany * std::int64_t(sizeof(float)));
  // The small message gives the latency, the large one the time per byte.
  return LinkOf({small}, {large}, sent);
}

// Measures the link that learners of this machine would use: NCCL, or sockets between threads.
Result<LinkSpeed> MeasureLink(const Config& config, const std::string& gpu) {
  if (!gpu.empty() && GpusHere() > 1 && !config.learner.nccl_library.empty()) {
    Result<LinkSpeed> link = MeasureGpuLink(config);
    if (link.ok()) return link;
    fmt::print(stderr, "troop: {}; planning with all-reduces through host memory\n",
               link.status().message());
  }
  return MeasureLinkHere();
}

// GPU memory of a learner, for the batch sizes of PredictSupervised.
Result<double> GpuBytes(const Config& config, std::int64_t dp, std::int64_t tp) {
  std::int64_t reviews = (config.learner.batch_size + dp - 1) / dp;
  if (config.learner.micro_batch_size > 0)
    reviews = std::min(reviews, config.learner.micro_batch_size);
  const double tokens = double(reviews * config.data.max_length);
  return PredictGpuBytes(TrainingConfigOf(config), {.rank = 0, .ranks = int(tp)}, tokens,
                         LabelsOf(config, tokens, double(reviews)));
}

// Compressed size of a pushed gradient, as a share of its f32 size.
double CodedShare(const Config& config) {
  const CodecOptions codec = CodecOptionsFor(config.paramserver);
  switch (codec.codec) {
    case GradientCodec::kNone:
      return 1;
    case GradientCodec::kFp16:
    case GradientCodec::kBf16:
      return 0.5;
    case GradientCodec::kTopK:  // a float, and 1.5 - log2(keep) bits for the gap between indices
      return codec.keep * (32 + 1.5 - std::log2(codec.keep)) / 32;
    case GradientCodec::kStrom:
      return 2.0 / 32;  // upper bound: one sign bit and a one-bit gap per element
  }
  return 1;
}

// Adds the parameter-server traffic to a plan: workers push gradients, the shards of one machine
// receive them all, step, and send the weights back. Nothing overlaps with computing.
void PlanShards(const Config& config, const MeshProfile& profile, const LinkSpeed& link,
                double value, MeshPlan* plan) {
  const double workers = double(plan->dp), shards = double(config.paramserver.shards);
  const double pushes = 1 / double(std::max<std::int64_t>(1, config.paramserver.push_every));
  const double pulls = 1 / double(std::max<std::int64_t>(1, config.paramserver.pull_every));
  // Only pushes are compressed; pulled weights are f32.
  const double coded = value * CodedShare(config);
  const double spread = std::max(1.0, workers / shards);  // bytes of a shard per byte of a worker
  const double turns =
      std::max(1.0, std::max(workers, shards) / double(std::max(1, profile.cores)));
  const double steps =
      std::max(1.0, workers / double(PushesOfUpdate(config.paramserver, plan->dp)));
  // `spread` is the congestion at a shard, `turns` the sharing of cores.
  const auto travel = [&](double bytes) {
    return (link.latency_s + bytes * link.s_per_byte * spread) * turns;
  };
  plan->gradient_s =
      pushes * (travel(coded) + steps * profile.step_s / shards * turns) + pulls * travel(value);
  plan->bytes += pushes * coded;
  // One learner of a tensor-parallel group pushes and pulls for all: it gathers and scatters
  // slices.
  if (plan->tp > 1) {
    const double parts = value * double(plan->tp - 1) / double(plan->tp);
    plan->tensor_s += 2 * (profile.link.latency_s + parts * profile.link.s_per_byte);
    plan->bytes += parts;
  }
  // The shards make the optimizer's steps, which gradient_s includes.
  plan->step_s = 0;
}

// The config of a single learner with the whole model, with the sizes that come from the data.
Result<Config> Alone(Config config) {
  config.mesh = {.dp = 1, .tp = 1};
  config.fleet.learners = 1;
  TROOP_RETURN_IF_ERROR(ResolveSupervised(&config));
  return config;
}

}  // namespace

// A masked LM predicts 15 % of the tokens, at least one per sequence; a classifier one per
// sequence.
double LabelsOf(const Config& config, double tokens, double sequences) {
  return config.learner.algorithm == AlgorithmKind::kMaskedLm ? std::max(0.15 * tokens, sequences)
                                                              : sequences;
}

// Steps: place the learners on machines, then compute, tensor-parallel traffic, gradients, memory.
Result<MeshPlan> PlanMesh(const Config& config, const MeshProfile& profile, std::int64_t dp,
                          std::int64_t tp) {
  if (tp > 1 && config.model.architecture == ModelArchitecture::kLstm)
    return InvalidArgument(
        "mesh.tp is above 1, but model.architecture = \"lstm\" cannot be tensor-parallel");
  TROOP_ASSIGN_OR_RETURN(const auto part, MakeTextModel(ModelSetupOf(config), {.ranks = int(tp)}));
  MeshPlan plan{.dp = dp, .tp = tp};
  // Use only as many machines as the learners' cores need.
  const std::int64_t cores = std::max(1, profile.cores);
  const std::int64_t machines =
      std::clamp<std::int64_t>((dp * tp + cores - 1) / cores, 1, std::max(1, profile.machines));
  const std::int64_t learners_there = (dp * tp + machines - 1) / machines;
  const double learners = double(dp * tp);
  const double turns = std::max(1.0, double(learners_there) / double(cores));
  // Ranks of one tensor-parallel group are consecutive, so they share a machine if they can.
  const bool far = dp * tp > learners_there;
  const LinkSpeed& parts = far && learners_there % tp != 0 ? profile.far : profile.link;
  const LinkSpeed& models = far ? profile.far : profile.link;
  // Compute and optimizer, then tensor-parallel traffic, then gradients.
  plan.compute_s = profile.compute_s / learners * turns;
  plan.step_s = profile.step_s / double(tp) * turns;
  if (tp > 1) {
    TROOP_ASSIGN_OR_RETURN(TransformerOptions options, TextModelOptions(ModelSetupOf(config)));
    options.tensor.ranks = int(tp);
    const TensorTraffic traffic = StepTraffic(options, std::int64_t(profile.tokens / double(dp)),
                                              std::int64_t(profile.labels / double(dp)));
    const double sent = double(traffic.bytes) * (profile.element_bytes / 4) * SentShare(tp);
    plan.tensor_s =
        (double(traffic.operations) * parts.latency_s + sent * parts.s_per_byte) * turns;
    plan.bytes += sent;
  }
  const double value = double(ParameterCount(*part)) * sizeof(float);
  if (config.learner.sync == LearnerSync::kParamServer) {
    TROOP_ASSIGN_OR_RETURN(const auto whole, MakeTextModel(ModelSetupOf(config)));
    PlanShards(config, profile, models, double(ParameterCount(*whole)) * sizeof(float), &plan);
  } else if (dp > 1) {
    const double sent = value * SentShare(dp);
    const double travel = (models.latency_s + sent * models.s_per_byte) * turns;
    // Backward is two thirds of the compute; the embeddings' gradient is ready only at its end.
    const double hidden = std::min(2 * plan.compute_s / 3, travel * (1 - EmbeddingShare(*part)));
    plan.gradient_s = travel - hidden;
    plan.bytes += sent;
  }
  Config meshed = config;
  meshed.mesh = {.dp = dp, .tp = tp};
  if (!profile.gpu.empty()) {
    TROOP_ASSIGN_OR_RETURN(plan.memory_bytes, GpuBytes(meshed, dp, tp));
    return plan;
  }
  TROOP_ASSIGN_OR_RETURN(const ProcessBytes bytes, PredictSupervised(meshed, *part));
  plan.memory_bytes = bytes.learner;
  return plan;
}

// dp is also bounded by the batch size, as a learner needs at least one review.
Result<std::vector<MeshPlan>> PlanMeshes(const Config& config, const MeshProfile& profile,
                                         std::int64_t learners) {
  std::vector<MeshPlan> plans;
  for (std::int64_t tp = 1; tp <= learners; ++tp) {
    for (std::int64_t dp = 1; dp * tp <= learners; ++dp) {
      if (dp > config.learner.batch_size) break;
      Result<MeshPlan> plan = PlanMesh(config, profile, dp, tp);
      // A tp that the model does not allow ends the search. With tp = 1 it is an error.
      if (!plan.ok() && tp > 1) break;
      if (!plan.ok()) return plan.status();
      plans.push_back(*plan);
    }
  }
  std::ranges::stable_sort(plans, {}, &MeshPlan::seconds);
  return plans;
}

// Runs real updates with one learner. The first one includes allocation and is not counted.
Result<MeshProfile> ProfileMesh(const Config& config, int updates) {
  TROOP_ASSIGN_OR_RETURN(const auto algorithm,
                         MakeSupervised(TrainingConfigOf(config), TensorParallelRank(), 0));
  CostReporting* const costs = algorithm->cost_reporting();
  TROOP_CHECK(costs != nullptr, "supervised algorithms report their cost");
  MeshProfile profile{.cores = CoresHere()};
  // On GPUs, a "core" of the profile is a GPU.
  if (algorithm->device_ordinal() >= 0) {
    TROOP_ASSIGN_OR_RETURN(profile.gpu, GpuOf(TrainingConfigOf(config)));
    profile.cores = std::max(1, GpusHere());
    if (config.network.precision == NetworkPrecision::kBf16) profile.element_bytes = 2;
  }
  SampleBatch batch;
  std::vector<float> priority(1);
  UpdateCost cost;
  PhaseProgress progress("measuring", "updates", updates);
  for (int i = 0; i < updates; ++i) {
    TROOP_RETURN_IF_ERROR(algorithm->Update(batch, 0, priority).status());
    progress.Show(i + 1);
    const UpdateCost once = costs->TakeCost();
    if (i > 0 || updates == 1) cost += once;
  }
  const double made = std::max(1, updates - 1);
  profile.compute_s = cost.compute_s / made;
  profile.step_s = cost.step_s / made;
  profile.tokens = cost.tokens / made;
  profile.labels = LabelsOf(config, cost.tokens, cost.sequences) / made;
  TROOP_ASSIGN_OR_RETURN(profile.link, MeasureLink(config, profile.gpu));
  return profile;
}

// Profiles with one learner and plans the mesh of the config from it.
Result<MeshPlan> PlanRun(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const Config alone, Alone(config));
  TROOP_ASSIGN_OR_RETURN(const MeshProfile profile, ProfileMesh(alone, kUpdates));
  return PlanMesh(config, profile, config.mesh.dp, config.mesh.tp);
}

// Steps: check the config, profile one learner, measure the link to --machine, print the plans.
int PlanCommand(const Config& config, const PlanOptions& options) {
  const auto complain = [](const Status& status) {
    fmt::print(stderr, "troop: {}\n", status.message());
    return ExitCodeFor(status);
  };
  if (!IsSupervised(config)) {
    return complain(InvalidArgument(
        "learner.algorithm is \"{}\", must be \"classifier\" or \"masked_lm\" for troop plan; "
        "troop train --dry-run shows the memory of other runs",
        config.learner.algorithm));
  }
  // The profile consists of batches of tokens.
  if (ClassifiesImages(config.model.architecture) || IsLinearModel(config)) {
    return complain(
        InvalidArgument("model.architecture is \"{}\", but troop plan profiles networks of tokens "
                        "only; troop train "
                        "--dry-run shows the memory of other runs",
                        EnumName(config.model.architecture)));
  }
  const Result<Config> alone = Alone(config);
  if (!alone.ok()) return complain(alone.status());
  Result<MeshProfile> profile = ProfileMesh(*alone, kUpdates);
  if (!profile.ok()) return complain(profile.status());
  if (!options.machine.empty()) {
    const Result<LinkSpeed> far = MeasureLinkTo(options.machine);
    if (!far.ok()) {
      return complain(far.status().WithContext(
          fmt::format("--machine {0}: first run `troop plan --serve {0}` there", options.machine)));
    }
    // All machines are assumed to be alike, with one kind of link between them.
    profile->far = *far;
    profile->machines = int(options.machines);
  }
  const std::int64_t most = std::int64_t(profile->cores) * profile->machines;
  const auto plans = PlanMeshes(*alone, *profile, options.learners > 0 ? options.learners : most);
  if (!plans.ok()) return complain(plans.status());
  const auto link = [](const LinkSpeed& speed) {
    return fmt::format("{:.0f} us and {:.2f} GB/s", 1e6 * speed.latency_s, 1e-9 / speed.s_per_byte);
  };
  const bool on_gpu = !profile->gpu.empty();
  const bool shards = config.learner.sync == LearnerSync::kParamServer;
  fmt::print(
      "measured: {:.0f} ms per update of {:.0f} tokens on {}, {:.1f} ms for its optimizer; "
      "all-reduce {}{}; {}{} {}\n\n",
      1e3 * profile->compute_s, profile->tokens, on_gpu ? profile->gpu : "one thread",
      1e3 * profile->step_s, link(profile->link),
      options.machine.empty() ? "" : fmt::format(", to {} {}", options.machine, link(profile->far)),
      profile->machines > 1 ? fmt::format("{} machines of ", profile->machines) : "",
      profile->cores, on_gpu ? "GPU(s)" : "cores");
  if (shards) {
    fmt::print(
        "{} parameter shards, {}: the column \"gradients\" has push, pull and the optimizer steps "
        "of the shards; an update is one batch, even if the shards count updates otherwise\n\n",
        config.paramserver.shards, config.paramserver.mode);
  }
  fmt::print(
      "| mesh.dp | mesh.tp | ms/update | compute | tensor parallel | gradients | optimizer | "
      "sent | {}memory |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      on_gpu ? "GPU " : "");
  for (const MeshPlan& p : *plans) {
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} MB | {:.0f} MB |\n",
               p.dp, p.tp, 1e3 * p.seconds(), 1e3 * p.compute_s, 1e3 * p.tensor_s,
               1e3 * p.gradient_s, 1e3 * p.step_s, p.bytes / 1e6, p.memory_bytes / 1e6);
  }
  return kExitOk;
}

// Serves one measurement after another.
int ServePlanLink(const std::string& address) {
  fmt::print("waiting at {} for `troop plan CONFIG --machine {}` on another machine\n", address,
             address);
  std::fflush(stdout);
  // After at least one measurement, an idle timeout is a normal end.
  for (bool answered = false;; answered = true) {
    const Result<bool> measured = AnswerLink(address, kServe);
    if (!measured.ok()) {
      if (answered && measured.status().code() == Code::kDeadlineExceeded) return kExitOk;
      fmt::print(stderr, "troop: {}\n", measured.status().message());
      return ExitCodeFor(measured.status());
    }
    fmt::print("{}\n",
               *measured ? "the link was measured" : "the peer disconnected before the end");
    std::fflush(stdout);
  }
}

}  // namespace troop
