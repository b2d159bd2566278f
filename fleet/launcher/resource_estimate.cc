// Predicts memory, files and processes of a run, and checks them against this machine's limits.
#include "fleet/launcher/resource_estimate.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "core/base/counted.h"
#include "core/base/failures.h"
#include "core/config/enum_format.h"
#include "envs/environment.h"
#include "fleet/config/algorithm_advice.h"
#include "fleet/config/config_migration.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/roles/service_node.h"
#include "fleet/run/task_info.h"
#include "fleet/serial/serial_fleet.h"
#include "learners/algorithm.h"
#include "learners/images/image_pipeline.h"
#include "learners/supervised/gpu_profile.h"
#include "nn/models/model.h"
#include "nn/models/trunk.h"
#include "nn/optimizer.h"
#include "paramserver/service/options_from_config.h"
#include "replay/episodes/episode.h"
#include "replay/service/options_from_config.h"

namespace troop {
namespace {

constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024 * kMiB;
constexpr double kProcessBytesMin = 12 * kMiB;  // the program itself, measured

// Physical memory of the machine, or the limit of this container (cgroup version 2).
double MachineMemoryBytes() {
  const double machine = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
  double limit = 0;
  std::ifstream file("/sys/fs/cgroup/memory.max");
  return file >> limit && limit > 0 ? std::min(machine, limit) : machine;  // "max": no limit
}

// Bytes of the files of learner.demonstrations; 0 if they do not exist, which is another check's
// error.
double DemonstrationBytes(const Config& config) {
  if (config.learner.demonstrations.empty()) return 0;
  const auto files = FindEpisodeFiles(config.learner.demonstrations);
  double bytes = 0;
  for (const std::string& file : files.ok() ? *files : std::vector<std::string>()) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    if (!error) bytes += double(size);
  }
  return bytes;
}

// Compares parameter names and shapes: equal sizes in another order are another network.
Status CheckLayout(const Config& config, const EnvSpec& env, const Config& saved) {
  TROOP_ASSIGN_OR_RETURN(const EnvSpec saved_env, TaskSpec(saved));
  TROOP_ASSIGN_OR_RETURN(const auto before, MakeNetwork(ModelSetupOf(saved), saved_env));
  TROOP_ASSIGN_OR_RETURN(const auto now, MakeNetwork(ModelSetupOf(config), env));
  const auto same = [](const ParamSpec& a, const ParamSpec& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (std::ranges::equal(before->params(), now->params(), same)) return Status::Ok();
  return InvalidArgument("it was saved with another network: different layers or layer sizes");
}

// Loads the checkpoint into a new algorithm, then compares the parameter layout.
Status CheckFits(const Config& config, const CheckpointState& checkpoint) {
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, TaskSpec(config));
  TROOP_ASSIGN_OR_RETURN(const auto algorithm, MakeAlgorithm(TrainingConfigOf(config), env));
  TROOP_RETURN_IF_ERROR(algorithm->SetState(checkpoint.state));
  // This version may not read the config of another one; then only the sizes are checked.
  const Result<Config> saved =
      ParseSavedConfig(checkpoint.config_toml, "the checkpoint's config", {});
  return saved.ok() ? CheckLayout(config, env, *saved) : Status::Ok();
}

// Bytes of the packed weights that kernels use: at most those of the f32 weights.
double PackedBytes(const Config& config, double value_bytes) {
  return config.network.precision == NetworkPrecision::kBf16 ? value_bytes / 2 : value_bytes;
}

// Predicts the memory of each process: weights, gradients, optimizer, network buffers and batches.
// The program itself is not included.
Result<ProcessBytes> PredictProcesses(const Config& config, const EnvSpec& env,
                                      const Module& module) {
  const std::int64_t padded = ParameterCount(module);
  const double value = 4.0 * double(padded);
  const double weights = value + PackedBytes(config, value);
  const TensorSpec input = NetworkInput(ModelSetupOf(config), env);
  const auto plan = [&](std::int64_t batch) {
    const TensorSpec in{input.dtype, input.shape.Prepend(batch)};
    return module.MakePlan({&in, 1});
  };
  const double observation = double(input.bytes());
  TROOP_ASSIGN_OR_RETURN(const Plan acting, plan(config.actor.envs));
  TROOP_ASSIGN_OR_RETURN(const Plan judging, plan(config.evaluator.envs));
  // A batch of unrolls has all of their frames.
  const std::int64_t length = config.actor.unroll_length;
  const std::int64_t rows = config.learner.batch_size * (config.actor.burn_in + length + 1);
  TROOP_ASSIGN_OR_RETURN(const Plan learning, plan(rows));
  TROOP_ASSIGN_OR_RETURN(const auto optimizer, MakeOptimizer(config.optimizer, 1));
  const double slots = double(optimizer->slots().size());
  // Observations and next observations, or the frames of unrolls and the rows made of them.
  const double batch = 2.0 * observation * double(rows);
  ProcessBytes bytes;
  // Weights in use, and the copy being received.
  bytes.actor = weights + value + double(acting.workspace_bytes) +
                2.0 * observation * double(config.actor.envs);
  bytes.evaluator = weights + value + double(judging.workspace_bytes) +
                    2.0 * observation * double(config.evaluator.envs);
  if (InferenceServersOf(config) > 0) {
    TROOP_ASSIGN_OR_RETURN(const Plan batched, plan(config.inference.max_batch_size));
    bytes.inference = weights + value + double(batched.workspace_bytes) +
                      2.0 * observation * double(config.inference.max_batch_size);
    // With inference servers, actors evaluate no network.
    bytes.actor = 2.0 * observation * double(config.actor.envs);
  }
  // Online and target weights, gradient, optimizer and the published snapshot; activations for
  // backward; the prefetched batches and the current one; the recorded episodes.
  bytes.learner = 2 * weights + value + slots * value + value + double(learning.cache_bytes) +
                  double(learning.workspace_bytes) +
                  batch * double(config.learner.prefetch * config.learner.batches_per_request + 1) +
                  DemonstrationBytes(config);
  bytes.paramserver = 2 * value;  // the snapshot being served, and the next one being received
  if (config.learner.sync == LearnerSync::kParamServer) {
    TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapFor(config.paramserver, module));
    // The largest shard: weights, optimizer, two published versions, the gradient sum, one push per
    // learner.
    const double shard = map.imbalance() * value / double(map.shards().size());
    bytes.paramserver = (4 + slots + double(config.fleet.learners)) * shard;
  }
  return bytes;
}

// Memory limit of the replay: the config's, or three quarters of the machine.
double ReplayBytesMax(const Config& config) {
  return config.replay.memory_bytes_max > 0 ? config.replay.memory_bytes_max
                                            : 0.75 * MachineMemoryBytes();
}

// A linear model: weights, those before the factors of naive Bayes, and two values per weight of
// its solver at most; the published copy. The rows of the data are not included.
ProcessBytes PredictLinear(const Module& module) {
  const double value = 4.0 * double(ParameterCount(module));
  ProcessBytes bytes;
  // The optimizer of [optimizer] is not used.
  bytes.learner = 5 * value;
  bytes.evaluator = bytes.paramserver = 2 * value;
  return bytes;
}

// The largest stage of a pipeline: weights, gradient and optimizer of its chunks, and the
// micro-batches that its schedule holds. Stage 0 also gathers the whole state.
Result<double> PredictStages(const Config& config, double slots) {
  TROOP_ASSIGN_OR_RETURN(const ImagePipeline pipeline, MakeImagePipeline(TrainingConfigOf(config)));
  TROOP_ASSIGN_OR_RETURN(const PipelineSchedule schedule, MakeSchedule(pipeline.schedule));
  // The largest process decides, since all stages have the same entry.
  double largest = 0;
  for (std::int64_t stage = 0; stage < config.mesh.pp; ++stage) {
    const StageParameters parameters(&pipeline, stage);
    const StageMemory& held = schedule.memory_max[std::size_t(stage)];
    double bytes = (3 + slots) * 4.0 * double(parameters.size()), pass = 0;
    for (const std::int64_t c : parameters.chunks()) {
      const PipelineChunk& chunk = pipeline.chunks[std::size_t(c)];
      const TensorSpec in{DType::kF32, chunk.input.Prepend(pipeline.micro_batch_rows)};
      TROOP_ASSIGN_OR_RETURN(const Plan plan, chunk.module->MakePlan({&in, 1}));
      const double inputs = double(held.inputs + held.messages + held.activations);
      pass = std::max(pass, double(held.activations) * double(plan.cache_bytes) +
                                inputs * double(in.bytes()) + double(plan.workspace_bytes));
    }
    if (stage == 0) bytes += (2 + slots) * 4.0 * double(pipeline.parameters);
    largest = std::max(largest, bytes + pass);
  }
  return largest;
}

}  // namespace

// The batch is split over data-parallel learners, and further into micro-batches.
Result<ProcessBytes> PredictSupervised(const Config& config, const Module& module) {
  const std::int64_t dp = std::max<std::int64_t>(1, config.mesh.dp);
  std::int64_t reviews = (config.learner.batch_size + dp - 1) / dp;
  if (config.learner.micro_batch_size > 0)
    reviews = std::min(reviews, config.learner.micro_batch_size);
  const std::int64_t tokens = reviews * config.data.max_length;
  const auto ints = [](std::int64_t n) { return TensorSpec{DType::kI32, {n}}; };
  // The largest batch: all sequences at data.max_length. A masked LM needs logits for 15 % of the
  // tokens.
  std::vector<TensorSpec> in = {ints(tokens), ints(reviews + 1), {}, {}};
  // Images of a batch have one size.
  const ModelConfig& m = config.model;
  if (ClassifiesImages(m.architecture))
    in = {{DType::kF32, {reviews, m.image_height, m.image_width, m.image_channels}}};
  double logits = 0;
  if (config.learner.algorithm == AlgorithmKind::kMaskedLm) {
    in.push_back(ints(tokens * 15 / 100 + 1));
    logits = 4.0 * double(in.back().shape[0]) * double(config.model.vocab_size);
  }
  TROOP_ASSIGN_OR_RETURN(const Plan plan, module.MakePlan(in));
  TROOP_ASSIGN_OR_RETURN(const auto optimizer, MakeOptimizer(config.optimizer, 1));
  const double value = 4.0 * double(ParameterCount(module));
  const double slots = double(optimizer->slots().size());
  ProcessBytes bytes;
  // Weights, gradient, optimizer and the published snapshot; activations for backward.
  bytes.learner = (3 + slots) * value + double(plan.cache_bytes + plan.workspace_bytes) + logits;
  if (config.mesh.pp > 1) {
    TROOP_ASSIGN_OR_RETURN(bytes.learner, PredictStages(config, slots));
  }
  bytes.evaluator = 2 * value + double(plan.workspace_bytes) + logits;
  bytes.paramserver = 2 * value;
  if (config.learner.sync == LearnerSync::kParamServer) {
    TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapFor(config.paramserver, module));
    const double shard = map.imbalance() * value / double(map.shards().size());
    bytes.paramserver = (4 + slots + double(config.fleet.learners)) * shard;
  }
  return bytes;
}

// The affinity mask may allow fewer cores than the machine has (containers, taskset).
int CoresHere() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// A supervised run has no replay and no action space, so its prediction ends early.
Result<ResourceEstimate> EstimateResources(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const EnvSpec env, TaskSpec(config));
  TROOP_ASSIGN_OR_RETURN(const auto module, MakeNetwork(ModelSetupOf(config), env));
  ResourceEstimate needs;
  needs.env = env;
  needs.parameters = 0;
  for (const ParamSpec& param : module->params()) needs.parameters += param.shape.elements();
  TROOP_RETURN_IF_ERROR(CheckWeightsMessage(needs.parameters));
  if (IsSupervised(config)) {
    if (IsLinearModel(config)) {
      needs.processes = PredictLinear(*module);
      return needs;
    }
    TROOP_ASSIGN_OR_RETURN(needs.processes, PredictSupervised(config, *module));
    return needs;
  }
  TROOP_ASSIGN_OR_RETURN(needs.processes, PredictProcesses(config, env, *module));
  if (config.learner.sync == LearnerSync::kParamServer) {
    TROOP_ASSIGN_OR_RETURN(const ShardMap map, ShardMapFor(config.paramserver, *module));
    needs.shards = map.ToString();
  }
  // Offline runs have no replay.
  if (!HasActors(config)) return needs;
  TROOP_ASSIGN_OR_RETURN(
      const auto replay,
      ReplayOptionsFor(ReplaySetupOf(config), TrajectoryFor(ReplaySetupOf(config), env)));
  needs.replay_bytes = double(PredictReplayBytes(replay)) * double(config.replay.shards);
  needs.replay_bytes_max = ReplayBytesMax(config);
  return needs;
}

// An estimate: 64 for the program, and 6 per role for its connections and its log.
std::int64_t OpenFilesOf(std::int64_t roles) { return 64 + 6 * roles; }

Status RaiseOpenFiles(const Config& config) {
  const auto roles = std::int64_t(RolesOf(config).size());
  // Each role needs a connection and a log at least. ZeroMQ aborts when no descriptor is left.
  const auto most = rlim_t(OpenFilesOf(roles)), least = rlim_t(64 + 2 * roles);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  // Between `least` and `most` the run may work: raise the limit as far as possible, then check.
  const rlim_t allowed = files.rlim_cur;
  if (allowed < most) {
    files.rlim_cur = std::max(allowed, std::min(most, files.rlim_max));
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = allowed;
  }
  if (files.rlim_cur >= least) return Status::Ok();
  return InvalidArgument(
      "open files: the limit is {}, {} roles need {} to {}; raise it with ulimit -n {}, or use "
      "fewer roles",
      files.rlim_cur, roles, least, most, most);
}

namespace {

// Checks the file size limit (ulimit -f) against the least size of a checkpoint.
Status CheckFileSize(const ResourceEstimate& needs) {
  constexpr double kConfigBytes = 16 * 1024;
  // Config and f32 weights; optimizer states come in addition.
  const double least = kConfigBytes + 4.0 * double(needs.parameters);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  if (limit.rlim_cur == RLIM_INFINITY || double(limit.rlim_cur) >= least) return Status::Ok();
  return InvalidArgument(
      "ulimit -f is {} KiB, but a checkpoint of {} parameters needs at least {:.0f} KiB; raise it, "
      "or set ulimit -f unlimited",
      limit.rlim_cur / 1024, needs.parameters, least / 1024);
}

}  // namespace

// Prints advice for picture observations and target networks, which is not an error.
Status CheckMachine(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const ResourceEstimate needs, EstimateResources(config));
  // GPU checks apply only to roles that this machine will start. Failures are collected, so that
  // all are reported at once.
  const bool learners_here = config.fleet.engine == LaunchEngine::kLocal &&
                             std::ranges::count(config.fleet.external_roles, "learner") == 0;
  Failures failures;
  failures.Add(CheckFileSize(needs));
  if (config.learner.device == DeviceChoice::kCuda && learners_here && GpusHere() == 0) {
    failures.Add(InvalidArgument(
        "learner.device is \"cuda\", but this program finds no GPU (see troop doctor); set "
        "\"auto\" "
        "or \"cpu\", or use a build with the preset \"cuda\" on a machine with a GPU"));
  }
  if (config.replay.placement == ReplayPlacement::kGpu && learners_here && GpusHere() == 0) {
    failures.Add(InvalidArgument(
        "replay.placement is \"gpu\", but this program finds no GPU (see troop doctor); set "
        "\"host\", or use a build with the preset \"cuda\" on a machine with a GPU"));
  }
  const bool infers_here = config.actor.inference == InferencePlace::kServer &&
                           config.fleet.engine == LaunchEngine::kLocal &&
                           std::ranges::count(config.fleet.external_roles, "inference") == 0;
  if (config.inference.device == DeviceChoice::kCuda && infers_here && GpusHere() == 0) {
    failures.Add(InvalidArgument(
        "inference.device is \"cuda\", but this program finds no GPU (see troop doctor); set "
        "\"auto\" or \"cpu\", or use a build with the preset \"cuda\" on a machine with a GPU"));
  }
  if (IsSupervised(config)) return failures.status();
  for (const std::string& advice :
       {PictureAdvice(ModelSetupOf(config), needs.env), AlgorithmAdvice(config)})
    if (!advice.empty()) fmt::print(stderr, "troop: {}\n", advice);
  if (HasActors(config)) failures.Add(CheckReplayMemory(config, needs.replay_bytes));
  failures.Add(CheckDemonstrationMemory(config));
  failures.Add(CheckEvaluationSpec(config, needs.env));
  return failures.status();
}

// A coarse check before anything is predicted: it avoids starting 100,000 processes.
Status CheckProcesses(const Config& config) {
  if (config.fleet.engine != LaunchEngine::kLocal || config.fleet.mode == FleetMode::kSerial)
    return Status::Ok();
  const std::size_t roles = RolesOf(config).size();
  const double memory = MachineMemoryBytes();
  if (double(roles) * kProcessBytesMin > memory) {
    return InvalidArgument(
        "memory: {} roles are processes of at least 12 MiB, {:.1f} GiB in total; this machine has "
        "{:.1f} GiB; lower fleet.actors and raise actor.envs, or use more machines "
        "(fleet.external_roles)",
        roles, double(roles) * kProcessBytesMin / kGiB, memory / kGiB);
  }
  std::int64_t most = 0;
  std::ifstream file("/sys/fs/cgroup/pids.max");
  if (!(file >> most) || std::int64_t(roles) <= most) return Status::Ok();  // "max": no limit
  return InvalidArgument(
      "processes: {} roles are separate processes, must be at most {} (pids.max of the "
      "container); use fewer roles",
      roles, most);
}

// The launcher reads the episodes, too, but only before the learners exist.
Status CheckDemonstrationMemory(const Config& config) {
  const bool learners_here = config.fleet.engine == LaunchEngine::kLocal &&
                             std::ranges::count(config.fleet.external_roles, "learner") == 0;
  const std::int64_t copies = learners_here ? std::max<std::int64_t>(1, config.fleet.learners) : 1;
  const double bytes = DemonstrationBytes(config), most = 0.75 * MachineMemoryBytes();
  if (double(copies) * bytes <= most) return Status::Ok();
  return InvalidArgument(
      "learner.demonstrations: the recorded episodes take {:.2f} GiB in the memory of each of {}, "
      "must be at most {:.2f} GiB in total (three quarters of this machine's memory); use fewer "
      "files, or a machine with more memory",
      bytes / kGiB, Counted(copies, "learner"), most / kGiB);
}

Status CheckReplayMemory(const Config& config, double bytes) {
  const double most = ReplayBytesMax(config);
  if (bytes <= most) return Status::Ok();
  std::int64_t items = config.replay.tables.empty() ? config.replay.capacity_items : 0;
  for (const ReplayTableConfig& table : config.replay.tables) items += table.capacity_items;
  const bool configured = config.replay.memory_bytes_max > 0;
  return InvalidArgument(
      "replay.capacity_items is {}: the full replay needs {:.2f} GiB, must be at most {:.2f} GiB "
      "({}); lower replay.capacity_items, or {}",
      items, bytes / kGiB, most / kGiB,
      configured ? "replay.memory_bytes_max" : "three quarters of this machine's memory",
      configured ? "raise that limit" : "use a machine with more memory");
}

Status CheckResume(const Config& config, const CheckpointState& checkpoint,
                   const std::string& path) {
  const Status fits = CheckFits(config, checkpoint);
  if (fits.code() != Code::kInvalidArgument) return fits;
  return InvalidArgument(
      "{} does not fit this config: {}; resume with the run's own network.*, optimizer.type and "
      "env.id, or start a new run (name=…)",
      path, fits.message());
}

double BytesOfRole(const ResourceEstimate& needs, Role role, std::int64_t shards) {
  switch (role) {
    case Role::kReplay:
      // Shards hold equal parts of the items.
      return needs.replay_bytes / double(shards);
    case Role::kLearner:
      return needs.processes.learner;
    case Role::kParamServer:
      return needs.processes.paramserver;
    case Role::kActor:
      return needs.processes.actor;
    case Role::kEvaluator:
      return needs.processes.evaluator;
    case Role::kInference:
      return needs.processes.inference;
    default:
      return 0;
  }
}

namespace {

// The line with the condition that ends the run.
std::string DescribeEnd(const Config& config) {
  const std::int64_t updates = config.run.max_updates;
  // With a replay ratio, the updates follow from the steps.
  std::string out;
  if (config.replay.samples_per_insert > 0) {
    out = fmt::format("after {:.0f} steps and the updates that replay.samples_per_insert allows",
                      config.run.total_steps);
    if (updates > 0) out += fmt::format(", or after {} updates", updates);
  } else if (updates > 0) {
    out = fmt::format("after {} updates; the actors stop at {:.0f} steps", updates,
                      config.run.total_steps);
  } else {
    out = fmt::format("after {:.0f} steps, however many updates were made", config.run.total_steps);
  }
  if (config.evaluator.stop_at_return != 0) {
    out += fmt::format(", or when an evaluation reaches {:g}", config.evaluator.stop_at_return);
  }
  return fmt::format("ends         {}\n", out);
}

// Large parts of a run's memory, which only some runs have.
std::string MemoryParts(const Config& config) {
  return fmt::format("{}{}", HasActors(config) ? "the full replay, " : "",
                     config.learner.demonstrations.empty() ? "" : "the recorded episodes, ");
}

// Device of the learners, with learner.device = "auto" resolved on this machine.
std::string DescribeDevice(const Config& config) {
  const bool images = IsSupervised(config) && ClassifiesImages(config.model.architecture);
  if (config.learner.device == DeviceChoice::kCpu || images || IsLinearModel(config)) return "cpu";
  const Result<std::string> gpu = GpuOf(TrainingConfigOf(config));
  return gpu.ok() ? *gpu : config.learner.device == DeviceChoice::kAuto ? "cpu" : "no GPU found";
}

// The line with algorithm, device and seed.
std::string DescribeAlgorithm(const Config& config) {
  return fmt::format("algorithm    {} on {}, seed {}\n", AlgorithmName(config.learner),
                     DescribeDevice(config), config.seed);
}

// The first lines of DescribeRun.
std::string DescribeProblem(const Config& config, const ResourceEstimate& needs) {
  const std::string network =
      fmt::format("network      {} parameters, {}\n", needs.parameters, config.network.precision);
  if (IsSupervised(config)) {
    return fmt::format(
        "run          {} ({})\n{}data         {}\n{}steps        {:.0f} examples in {} updates of "
        "{}, "
        "over {} x {} learners (mesh.dp x {})\n",
        config.name, config.fleet.mode, DescribeAlgorithm(config), SourceOfExamples(config),
        network, config.run.total_steps, config.run.max_updates, config.learner.batch_size,
        config.mesh.dp, config.mesh.tp * config.mesh.pp,
        config.mesh.pp > 1 ? "mesh.pp" : "mesh.tp");
  }
  const std::string actions = needs.env.action.discrete()
                                  ? fmt::format("{} actions", needs.env.action.count)
                                  : "action " + needs.env.action.tensor().ToString();
  std::string out = fmt::format("run          {} ({})\n{}environment  {}: observation {}, {}\n",
                                config.name, config.fleet.mode, DescribeAlgorithm(config),
                                config.env.id, needs.env.observation.ToString(), actions);
  out += network;
  if (IsOffline(config)) {
    return out + fmt::format("episodes     {}\nsteps        {:.0f} samples in {} updates of {}\n",
                             config.learner.demonstrations, config.run.total_steps,
                             config.run.max_updates, config.learner.batch_size);
  }
  out += fmt::format("steps        {:.0f} agent steps, {} environments\n", config.run.total_steps,
                     config.fleet.actors * config.actor.envs);
  out += DescribeEnd(config);
  return out + fmt::format("replay       {} items, {:.3f} GiB when full (limit {:.3f} GiB)\n",
                           config.replay.capacity_items, needs.replay_bytes / kGiB,
                           needs.replay_bytes_max / kGiB);
}

}  // namespace

// One line per property, then one per role with its memory and endpoint.
Result<std::string> DescribeRun(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const ResourceEstimate needs, EstimateResources(config));
  std::string out = DescribeProblem(config, needs);
  if (!needs.shards.empty()) {
    out += fmt::format("parameters   {}; paramserver.mode = \"{}\"\n", needs.shards,
                       config.paramserver.mode);
  }
  const bool serial = config.fleet.mode == FleetMode::kSerial;
  out += serial ? "roles        all in one thread\n" : "roles\n";
  double total = 0;
  if (!serial) {
    out += fmt::format("  {:<14} {:>11}  {}\n", "coordinator", "",
                       Endpoints::PatternFor(config, Role::kCoordinator, 0));
  }
  for (const FleetRole& role : RolesOf(config)) {
    const bool serves = Serves(role.role);
    const double bytes = BytesOfRole(needs, role.role, config.replay.shards);
    total += bytes;
    out +=
        fmt::format("  {:<14} {:>7.2f} MiB  {}\n", PeerName(role.role, role.index), bytes / kMiB,
                    serves && !serial ? Endpoints::PatternFor(config, role.role, role.index) : "-");
  }
  out += fmt::format(
      "memory       {:.1f} MiB: {}weights, optimizer, network buffers, batches; not\n"
      "             included: the program itself, 12 MiB or more per process\n",
      total / kMiB, MemoryParts(config));
  if (serial) return out;
  return out + (config.fleet.transport == FleetTransport::kIpc
                    ? "endpoints    in a private folder; XXXXXX is replaced at the start\n"
                    : "endpoints    PORT: a free port, chosen for each role at the start\n");
}

}  // namespace troop
