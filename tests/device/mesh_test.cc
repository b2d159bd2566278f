#include <gtest/gtest.h>

#include <stdlib.h>

#include <atomic>
#include <cmath>

#include "core/base/failpoint.h"
#include "learners/supervised/gpu_supervised.h"
#include "learners/supervised/supervised.h"
#include "learners/sync/allreduce_step.h"
#include "learners/sync/tensor_parallel_worker.h"
#include "nn/models/text_model.h"
#include "tests/collective/nccl_ranks.h"
#include "tests/learners/supervised_fixture.h"

// Text models in parts on (emulated) GPUs, in meshes of dp models of tp parts: by the simulated
// NCCL, or through the hosts.
namespace troop {
namespace {

using test::SupervisedConfig;
using test::SupervisedExpected;

struct Mesh {
  int dp = 1, tp = 2;
  int size() const { return dp * tp; }
};
enum class Way { kCpu, kHosts, kNccl };

std::unique_ptr<Collective> OverNccl(Collective& group, int device) {
  auto host = group.Split(0, group.rank());
  NcclOptions options = SimulatedNccl();
  options.device = device;
  auto made = MakeNcclGroup(*std::move(host), options);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// One rank of a mesh.
class Learner {
 public:
  Learner(TrainingConfig config, const Mesh& mesh, Collective* all, Way way) : all_(all) {
    config.learner.device = way == Way::kCpu ? DeviceChoice::kCpu : DeviceChoice::kCuda;
    const int part = all->rank() % mesh.tp, model = all->rank() / mesh.tp;
    auto made = MakeSupervised(config, {.rank = part, .ranks = mesh.tp}, 0);
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    algorithm_ = *std::move(made);
    same_part_ = *all->Split(part, model);
    same_model_ = *all->Split(model, part);
    if (way == Way::kNccl) {
      parts_ = OverNccl(*same_model_, algorithm_->device_ordinal());
      devices_ = OverNccl(*same_part_, algorithm_->device_ordinal());
      EXPECT_FALSE(algorithm_->device_gradient()->device_values().empty());
      algorithm_->device_gradient()->ReduceOnDevice(true);
    }
    algorithm_->tensor_parallel()->SetTensorGroup(same_model_.get(), parts_.get());
  }
  ~Learner() { algorithm_->tensor_parallel()->SetTensorGroup(nullptr, nullptr); }
  Result<AllReduceStep::Outcome> Round(std::uint64_t last) {
    AllReduceStep round(all_, algorithm_.get(),
                        {.gradients = same_part_.get(), .devices = devices_.get(), .last = last});
    std::vector<float> priority(1);
    const Status begun = round.Begin(&batch_, 0, false, priority);
    if (!begun.ok()) return begun;
    return round.Wait();
  }
  Algorithm& algorithm() { return *algorithm_; }
  Collective& same_model() { return *same_model_; }

 private:
  const SampleBatch batch_;
  Collective* const all_;
  std::unique_ptr<Collective> same_part_, same_model_, parts_, devices_;
  std::unique_ptr<Algorithm> algorithm_;
};

struct Course {
  std::vector<double> losses, norms;
  std::vector<float> value;  // of the whole, the same bits on all ranks
  TensorFile state;
  UpdateCost cost;
};

Course Play(const TrainingConfig& config, const Mesh& mesh, Way way, int updates,
            const TensorFile* from = nullptr) {
  const Ranks ranks = MakeSocketRanks(mesh.size(), {});
  std::vector<Course> courses{std::size_t(mesh.size())};
  RunRanks(mesh.size(), [&](int rank) {
    Learner learner(config, mesh, ranks[std::size_t(rank)].get(), way);
    Algorithm& algorithm = learner.algorithm();
    Course& course = courses[std::size_t(rank)];
    if (from != nullptr) {
      ASSERT_TRUE(algorithm.SetState(*from).ok());
    }
    const std::uint64_t last = algorithm.updates() + std::uint64_t(updates);
    while (algorithm.updates() < last) {
      const auto round = learner.Round(last);
      ASSERT_TRUE(round.ok()) << round.status().ToString();
      ASSERT_TRUE(round->applied) << round->update.ToString();
      course.losses.push_back(round->report.loss);
      course.norms.push_back(round->report.gradient_norm);
    }
    const auto value = algorithm.tensor_parallel()->WholeValue();
    course.value.assign(value.begin(), value.end());
    course.state = algorithm.tensor_parallel()->WholeState();
    course.cost = algorithm.cost_reporting()->TakeCost();
  });
  for (const Course& course : courses) EXPECT_EQ(course.value, courses[0].value);
  return courses[0];
}

double Distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += double(b[i]) * double(b[i]);
  }
  return std::sqrt(difference / size);
}

// One model in two parts makes PyTorch's first updates.
TEST(DeviceMeshTest, UpdatesMatchPyTorch) {
  for (const std::string family : {"bert", "albert"}) {
    for (const Way way : {Way::kHosts, Way::kNccl}) {
      const Course course = Play(SupervisedConfig(family), {}, way, 3);
      const JsonValue& expected = *SupervisedExpected().Find(family);
      for (std::size_t u = 0; u < 3; ++u) {
        EXPECT_NEAR(course.losses[u], expected.Find("losses")->array[u].number, 1e-4);
        EXPECT_NEAR(course.norms[u], expected.Find("norms")->array[u].number, 1e-3);
      }
      EXPECT_GT(course.cost.tensor_bytes, 0);
      EXPECT_GT(course.cost.tensor_s, 0);
    }
  }
}

// Meshes of two and three tensor-parallel ranks, with all features of the CPU path: micro-batches,
// recomputation, uneven shares, dropout, and masked tokens with a sliced embedding table.
TEST(DeviceMeshTest, MeshesMatchCpu) {
  for (const std::string family : {"bert", "albert"}) {
    TrainingConfig config = SupervisedConfig(family);
    config.model.pretrained = "";
    config.learner.algorithm = AlgorithmKind::kMaskedLm;
    config.learner.micro_batch_size = 4;
    config.model.gradient_checkpointing = true;
    config.model.dropout = config.model.attention_dropout = 0.2;
    Mesh mesh{.dp = 2, .tp = 2};
    if (family == "albert") {  // parts of 32, 32 and 16 numbers
      mesh = {.dp = 1, .tp = 3};
      config.model.hidden_size = 80;
      config.model.num_attention_heads = 5;
    }
    for (int i = 0; i < mesh.dp; ++i) config.mesh.batch_shares.push_back(i + 1);
    const Course here = Play(config, mesh, Way::kCpu, 2);
    for (const Way way : {Way::kHosts, Way::kNccl}) {
      SCOPED_TRACE(family + (way == Way::kNccl ? " over NCCL" : " through hosts"));
      const Course there = Play(config, mesh, way, 2);
      for (std::size_t u = 0; u < 2; ++u) {
        EXPECT_NEAR(there.losses[u], here.losses[u], 1e-4 * here.losses[u]);
        EXPECT_NEAR(there.norms[u], here.norms[u], 1e-3 * here.norms[u]);
      }
      EXPECT_LT(Distance(there.value, here.value), 1e-4);
    }
  }
}

// A state holds the whole model: it resumes as one learner on the CPU, and from there
// tensor-parallel.
TEST(DeviceMeshTest, ContinuesStateOnCpuAndBack) {
  TrainingConfig config = SupervisedConfig("bert");
  config.model.dropout = 0.1;
  const Course parts = Play(config, {}, Way::kNccl, 2);
  const Course straight = Play(config, {.dp = 1, .tp = 1}, Way::kCpu, 4);
  const Course one = Play(config, {.dp = 1, .tp = 1}, Way::kCpu, 1, &parts.state);
  const Course again = Play(config, {}, Way::kHosts, 1, &one.state);
  EXPECT_LT(Distance(again.value, straight.value), 1e-4);
}

// A model in parts on GPUs as one worker of parameter shards: the gradient that one learner has.
TEST(DeviceMeshTest, PartitionedReplicaGivesWholeGradient) {
  TrainingConfig config = SupervisedConfig("bert");
  config.learner.sync = LearnerSync::kParamServer;
  config.learners = 2;
  config.mesh.tp = 2;
  auto whole = *MakeSupervised(config, TensorParallelRank(), 0);
  std::vector<float> priority(1);
  ASSERT_TRUE(whole->ComputeGradient(SampleBatch(), priority).ok());
  TrainingConfig there = config;
  there.learner.device = DeviceChoice::kCuda;
  for (const Way way : {Way::kHosts, Way::kNccl}) {
    const Ranks ranks = MakeSocketRanks(2, {});
    RunRanks(2, [&](int rank) {
      auto part = *MakeSupervised(there, {.rank = rank, .ranks = 2}, 0);
      Collective& group = *ranks[std::size_t(rank)];
      const auto nccl = way == Way::kNccl ? OverNccl(group, 0) : nullptr;
      if (rank > 0) {
        part->tensor_parallel()->SetTensorGroup(&group, nccl.get());
        const auto module = *MakeTextModel(ModelSetupOf(there), {.rank = rank, .ranks = 2});
        std::vector<float> nothing(1);
        const auto outcome =
            TensorParallelWorker(part.get(), module.get()).Follow(group, SampleBatch(), nothing);
        ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
        part->tensor_parallel()->SetTensorGroup(nullptr, nullptr);
        return;
      }
      auto replica = *TensorParallelReplica::Make(there, 2, std::move(part));
      replica->SetTensorGroup(&group, nccl.get());
      replica->ReplaceWeights(0, whole->value());
      std::vector<float> mine(1);
      const auto report = replica->ComputeGradient(SampleBatch(), mine, nullptr);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      EXPECT_LT(Distance(replica->gradient(), whole->gradient()), 1e-4);
      replica->SetTensorGroup(nullptr, nullptr);
    });
  }
}

// A missing rank ends the update of the others with an error, long before any timeout; all ranks
// skip a non-finite gradient.
TEST(DeviceMeshTest, MissingPartEndsUpdate) {
  for (const Way way : {Way::kHosts, Way::kNccl}) {
    const Ranks ranks = MakeSocketRanks(2, {});
    RunRanks(2, [&](int rank) {
      Learner learner(SupervisedConfig("bert"), {}, ranks[std::size_t(rank)].get(), way);
      ASSERT_TRUE(learner.Round(0).ok());
      if (rank == 1) return learner.same_model().Abort(Unavailable("it is gone"));
      const auto round = learner.Round(0);
      ASSERT_FALSE(round.ok());
      EXPECT_EQ(round.status().code(), Code::kUnavailable) << round.status().ToString();
      EXPECT_EQ(learner.algorithm().updates(), 1u);
    });
  }
}

// A rank whose GPU failed also ends the update of the others, which do not wait for it.
TEST(DeviceMeshTest, FailedGpuEndsUpdateOfAllParts) {
  setenv("TROOP_FAILPOINT", "learner.device:1", 1);
  ReloadFailpoint();
  const Ranks ranks = MakeSocketRanks(2, {});
  std::atomic<int> broken = 0;
  RunRanks(2, [&](int rank) {
    Learner learner(SupervisedConfig("bert"), {}, ranks[std::size_t(rank)].get(), Way::kNccl);
    ASSERT_TRUE(learner.Round(0).ok());
    const auto round = learner.Round(0);
    ASSERT_FALSE(round.ok());
    EXPECT_EQ(round.status().code(), Code::kUnavailable) << round.status().ToString();
    if (!learner.algorithm().CheckFinite().ok()) ++broken;
  });
  unsetenv("TROOP_FAILPOINT");
  ReloadFailpoint();
  EXPECT_EQ(broken, 1);
}

TEST(DeviceMeshTest, AllPartsSkipNonFiniteUpdate) {
  const Ranks ranks = MakeSocketRanks(2, {});
  RunRanks(2, [&](int rank) {
    Learner learner(SupervisedConfig("bert"), {}, ranks[std::size_t(rank)].get(), Way::kNccl);
    TensorFile state = learner.algorithm().State();
    std::vector<float> value(learner.algorithm().value().begin(),
                             learner.algorithm().value().end());
    if (rank == 1) value[0] = std::nanf("");  // of its words
    state.tensors["value"] = ConstTensor(Buffer::Copy(std::as_bytes(std::span(value))),
                                         {DType::kF32, {std::int64_t(value.size())}});
    ASSERT_TRUE(learner.algorithm().SetState(state).ok());
    const auto round = learner.Round(0);
    ASSERT_TRUE(round.ok()) << round.status().ToString();
    EXPECT_FALSE(round->applied);
    EXPECT_FALSE(round->update.ok());
    EXPECT_EQ(learner.algorithm().updates(), 0u);
  });
}

}  // namespace
}  // namespace troop
