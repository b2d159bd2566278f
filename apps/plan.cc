#include "apps/plan.h"

#include <algorithm>
#include <cstdio>
#include <thread>

#include "apps/machine.h"
#include "apps/train.h"
#include "collective/group.h"
#include "core/time.h"
#include "learners/supervised.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "nn/text_model.h"

namespace troop {
namespace {

constexpr int kUpdates = 4;                              // of which the first does not count
constexpr std::int64_t kSmall = 1024, kLarge = 1 << 22;  // floats of an all-reduce
constexpr int kSmallTries = 200, kLargeTries = 6;

double EmbeddingShare(const Module& module) {
  double words = 0;
  for (const ParamSpec& spec : module.params()) {
    if (spec.name.ends_with("word_embeddings.weight") || spec.name == "embedding.weight") {
      words += double(spec.shape.elements());
    }
  }
  return words / double(ParameterCount(module));
}

// Seconds of one all-reduce as this rank sees it: the median.
double TimeAllReduces(Collective* rank, std::int64_t floats, int tries) {
  Tensor tensor(DType::kF32, {floats});
  const SystemClock clock;
  std::vector<double> seconds;
  for (int i = 0; i < tries; ++i) {
    const Time begin = clock.Now();
    if (!RunOp(*rank, {.kind = OpKind::kAllReduce}, tensor, tensor).ok()) return 0;
    seconds.push_back(ToSeconds(clock.Now() - begin));
  }
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

Status MeasureLink(MeshProfile* profile) {
  std::vector<GroupEntry> entries;
  std::vector<Member> members;
  for (int rank = 0; rank < 2; ++rank) {
    TROOP_ASSIGN_OR_RETURN(GroupEntry entry,
                           GroupEntry::Listen({.group = "plan", .rank = rank, .size = 2}));
    members.push_back(entry.self());
    entries.push_back(std::move(entry));
  }
  Status status[2];
  double small = 0, large = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto joined = std::move(entries[std::size_t(rank)]).Join(members);
      status[rank] = joined.status();
      if (!joined.ok()) return;
      const double quick = TimeAllReduces(joined->get(), kSmall, kSmallTries);
      const double slow = TimeAllReduces(joined->get(), kLarge, kLargeTries);
      if (rank == 0) small = quick, large = slow;
      status[rank] = (*joined)->status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& s : status) TROOP_RETURN_IF_ERROR(s);
  profile->latency_s = small;
  profile->s_per_byte =
      std::max(0.0, large - small) / (SentShare(2) * double(kLarge * std::int64_t(sizeof(float))));
  return Status::Ok();
}

// The run of one learner that has the whole model.
Result<MeshProfile> ProfileAlone(Config config) {
  config.mesh = {.dp = 1, .tp = 1};
  config.fleet.learners = 1;
  TROOP_RETURN_IF_ERROR(ResolveSupervised(&config));
  return ProfileMesh(config, kUpdates);
}

}  // namespace

double LabelsOf(const Config& config, double tokens, double sequences) {
  return config.learner.algorithm == "masked_lm" ? std::max(0.15 * tokens, sequences) : sequences;
}

double SentShare(std::int64_t ranks) { return 2.0 * double(ranks - 1) / double(ranks); }

Result<MeshPlan> PlanMesh(const Config& config, const MeshProfile& profile, std::int64_t dp,
                          std::int64_t tp) {
  TROOP_ASSIGN_OR_RETURN(const auto part, MakeTextModel(config, {.ranks = int(tp)}));
  MeshPlan plan{.dp = dp, .tp = tp};
  const double learners = double(dp * tp);
  const double turns = std::max(1.0, learners / double(std::max(1, profile.cores)));
  plan.compute_s = profile.compute_s / learners * turns;
  plan.step_s = profile.step_s / double(tp) * turns;
  if (tp > 1) {
    TROOP_ASSIGN_OR_RETURN(TransformerOptions options, TextModelOptions(config));
    options.tensor.ranks = int(tp);
    const TensorTraffic traffic = StepTraffic(options, std::int64_t(profile.tokens / double(dp)),
                                              std::int64_t(profile.labels / double(dp)));
    const double sent = double(traffic.bytes) * SentShare(tp);
    plan.tensor_s =
        double(traffic.operations) * profile.latency_s * turns + sent * profile.s_per_byte * turns;
    plan.bytes += sent;
  }
  const double value = double(ParameterCount(*part)) * sizeof(float);
  if (dp > 1) {
    const double sent = value * SentShare(dp);
    const double travel = (profile.latency_s + sent * profile.s_per_byte) * turns;
    // Backward is two thirds of the work; the embeddings' gradient is ready at its very end.
    const double hidden = std::min(2 * plan.compute_s / 3, travel * (1 - EmbeddingShare(*part)));
    plan.gradient_s = travel - hidden;
    plan.bytes += sent;
  }
  Config meshed = config;
  meshed.mesh = {.dp = dp, .tp = tp};
  TROOP_ASSIGN_OR_RETURN(const ProcessBytes bytes, PredictSupervised(meshed, *part));
  plan.memory_bytes = bytes.learner;
  return plan;
}

Result<std::vector<MeshPlan>> PlanMeshes(const Config& config, const MeshProfile& profile,
                                         std::int64_t learners) {
  std::vector<MeshPlan> plans;
  for (std::int64_t tp = 1; tp <= learners; ++tp) {
    for (std::int64_t dp = 1; dp * tp <= learners; ++dp) {
      if (dp > config.learner.batch_size) break;
      Result<MeshPlan> plan = PlanMesh(config, profile, dp, tp);
      // A model that can't be cut into so many parts is no error, unless it can't be at all.
      if (!plan.ok() && tp > 1) break;
      if (!plan.ok()) return plan.status();
      plans.push_back(*plan);
    }
  }
  std::ranges::stable_sort(plans, {}, &MeshPlan::seconds);
  return plans;
}

Result<MeshProfile> ProfileMesh(const Config& config, int updates) {
  TROOP_ASSIGN_OR_RETURN(const auto data, LoadReviewData(config));
  TROOP_ASSIGN_OR_RETURN(const auto algorithm, MakeSupervised(config, data));
  MeshProfile profile{.cores = CoresHere()};
  SampleBatch batch;
  std::vector<float> priority(1);
  UpdateCost cost;
  for (int i = 0; i < updates; ++i) {
    TROOP_RETURN_IF_ERROR(algorithm->Update(batch, 0, priority).status());
    const UpdateCost once = algorithm->TakeCost();
    if (i > 0 || updates == 1) cost += once;
  }
  const double made = std::max(1, updates - 1);
  profile.compute_s = cost.compute_s / made;
  profile.step_s = cost.step_s / made;
  profile.tokens = cost.tokens / made;
  profile.labels = LabelsOf(config, cost.tokens, cost.sequences) / made;
  TROOP_RETURN_IF_ERROR(MeasureLink(&profile));
  return profile;
}

Result<MeshPlan> PlanRun(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const MeshProfile profile, ProfileAlone(config));
  return PlanMesh(config, profile, config.mesh.dp, config.mesh.tp);
}

int PlanCommand(const Config& config, std::int64_t learners) {
  const auto complain = [](const Status& status) {
    fmt::print(stderr, "troop: {}\n", status.message());
    return ExitCodeFor(status);
  };
  if (!IsSupervised(config)) {
    return complain(InvalidArgument(
        "learner.algorithm = \"{}\": only learners of reviews stand in a mesh, \"classifier\" or "
        "\"masked_lm\"; troop train --dry-run says what other runs take",
        config.learner.algorithm));
  }
  const Result<MeshProfile> profile = ProfileAlone(config);
  if (!profile.ok()) return complain(profile.status());
  const auto plans = PlanMeshes(config, *profile, learners > 0 ? learners : profile->cores);
  if (!plans.ok()) return complain(plans.status());
  fmt::print(
      "measured: {:.0f} ms an update of {:.0f} tokens on one thread, {:.1f} ms its optimizer; an "
      "all-reduce {:.0f} us and {:.2f} GB/s; {} cores\n\n",
      1e3 * profile->compute_s, profile->tokens, 1e3 * profile->step_s, 1e6 * profile->latency_s,
      1e-9 / std::max(1e-18, profile->s_per_byte), profile->cores);
  fmt::print(
      "| mesh.dp | mesh.tp | ms an update | compute | model's parts | gradients | optimizer | "
      "sent | memory |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const MeshPlan& p : *plans) {
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} MB | {:.0f} MB |\n",
               p.dp, p.tp, 1e3 * p.seconds(), 1e3 * p.compute_s, 1e3 * p.tensor_s,
               1e3 * p.gradient_s, 1e3 * p.step_s, p.bytes / 1e6, p.memory_bytes / 1e6);
  }
  return kExitOk;
}

}  // namespace troop
