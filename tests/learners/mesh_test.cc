#include <gtest/gtest.h>

#include <cmath>

#include "learners/supervised/supervised.h"
#include "learners/sync/allreduce_step.h"
#include "learners/sync/tensor_parallel_worker.h"
#include "learners/train_state.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "paramserver/service/options_from_config.h"
#include "tests/learners/supervised_fixture.h"
#include "tests/nn/tensor_ranks.h"
#include "tests/paramserver/shard_testing.h"

// Learners in a mesh: dp groups of tp learners, each with its part of the model.
namespace troop {
namespace {

using test::SimRanks;
using test::SupervisedConfig;
using test::SupervisedExpected;

// The settings of the parameter shards.
ShardConfig ShardConfigOf(const TrainingConfig& config) {
  return {.model = ModelSetupOf(config),
          .paramserver = config.paramserver,
          .optimizer = config.optimizer,
          .workers = WorkersOf(config.learners, config.mesh.tp),
          .max_updates = config.run.max_updates};
}

struct Mesh {
  int dp = 1, tp = 1;
  int size() const { return dp * tp; }
};

// One rank of a mesh.
struct Learner {
  Learner(const TrainingConfig& config, const Mesh& mesh, Collective* group) : all(group) {
    const int part = group->rank() % mesh.tp, model = group->rank() / mesh.tp;
    auto made = MakeSupervised(config, {.rank = part, .ranks = mesh.tp});
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    algorithm = *std::move(made);
    if (mesh.tp == 1) return;
    same_part = *group->Split(part, model);
    same_model = *group->Split(model, part);
    algorithm->tensor_parallel()->SetTensorGroup(same_model.get(), nullptr);
  }
  Result<AllReduceStep::Outcome> Round(AllReduceStep::Options options) {
    options.gradients = same_part.get();
    AllReduceStep round(all, algorithm.get(), options);
    std::vector<float> priority(1);
    const Status begun = round.Begin(&batch, 0, false, priority);
    if (!begun.ok()) return begun;
    return round.Wait();
  }
  const SampleBatch batch;
  Collective* const all;
  std::unique_ptr<Collective> same_part, same_model;
  std::unique_ptr<Algorithm> algorithm;
};

// PyTorch's course has 50 updates. Under the thread sanitizer an update takes thirty times as long,
// and the first ten already contain every exchange between the threads.
#ifdef __SANITIZE_THREAD__
constexpr std::uint64_t kUpdates = 10;
#else
constexpr std::uint64_t kUpdates = 50;
#endif

// Returns the largest difference from the logits of PyTorch's model after the 50 updates.
double LogitsApart(const TrainingConfig& config, const std::string& family,
                   std::span<const float> value) {
  const auto data = LoadReviewData(config);
  const auto module = MakeTextModel(ModelSetupOf(config));
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < (*data)->train.size(); ++i) all.push_back(i);
  TextStep step(module->get(), 0);
  const TextCollator batches(config, (*data)->tokenizer);
  EXPECT_TRUE(step.Forward({value}, batches.ForJudging((*data)->train, all)).ok());
  const auto& rows = SupervisedExpected().Find(family)->Find("after")->array;
  double apart = 0;
  for (std::size_t i = 0; i < 2 * rows.size(); ++i) {
    apart = std::max(apart, std::abs(step.logits()[i] - rows[i / 2].array[i % 2].number));
  }
  return apart;
}

// Whatever part of the batch a rank has, it reports the loss of all 12 reviews (x parts).
void ExpectWholeBatch(const LossReport& report, const std::string& family, std::size_t update,
                      double tolerance) {
  const double loss = SupervisedExpected().Find(family)->Find("losses")->array[update].number;
  EXPECT_NEAR(report.loss, loss, tolerance) << update;
  const double right = report.accuracy * 12;
  EXPECT_NEAR(right, std::round(right), 1e-6) << update;
  EXPECT_EQ(int(report.rows) % 12, 0) << update;
}

TEST(MeshTest, EveryMeshMatchesPyTorch) {
  for (const std::string family : {"bert", "albert"}) {
    for (const Mesh mesh : {Mesh{1, 2}, Mesh{2, 2}, Mesh{1, 3}, Mesh{3, 2}, Mesh{2, 1}}) {
      const TrainingConfig config = SupervisedConfig(family);
      const Ranks ranks = SimRanks(mesh.size());
      std::vector<std::vector<float>> values(ranks.size());
      RunRanks(mesh.size(), [&](int rank) {
        Learner learner(config, mesh, ranks[std::size_t(rank)].get());
        for (std::size_t u = 0; u < kUpdates; ++u) {
          const auto round = learner.Round({.last = kUpdates});
          ASSERT_TRUE(round.ok()) << round.status().ToString();
          ASSERT_TRUE(round->applied);
          const double norm = SupervisedExpected().Find(family)->Find("norms")->array[u].number;
          ASSERT_NEAR(round->report.gradient_norm, norm, 1e-3) << u;
          ExpectWholeBatch(round->report, family, u, 1e-4);
          EXPECT_EQ(round->gathered, mesh.tp > 1 && u + 1 == kUpdates);
        }
        const std::span<const float> whole = learner.algorithm->tensor_parallel()->WholeValue();
        values[std::size_t(rank)].assign(whole.begin(), whole.end());
      });
      SCOPED_TRACE(fmt::format("{} {} x {}", family, mesh.dp, mesh.tp));
      for (const auto& value : values) EXPECT_EQ(value, values[0]);
      if (kUpdates < 50) continue;
      EXPECT_LT(LogitsApart(config, family, values[0]), 1e-4);
    }
  }
}

// Memory-saving options, uneven shares and half precision, tested in each kind of mesh.
struct Way {
  const char* name;
  std::int64_t micro_batch_size = 0;
  bool recompute = false, halves = false, uneven = false;
};

class MeshWaysTest : public ::testing::TestWithParam<std::tuple<Mesh, Way>> {};

TEST_P(MeshWaysTest, MatchesPyTorch) {
  const Mesh& mesh = std::get<0>(GetParam());
  const Way& way = std::get<1>(GetParam());
  for (const std::string family : {"bert", "albert"}) {
    SCOPED_TRACE(family);
    TrainingConfig config = SupervisedConfig(family);
    config.learner.micro_batch_size = way.micro_batch_size;
    config.model.gradient_checkpointing = way.recompute;
    if (way.halves) config.network.precision = NetworkPrecision::kBf16;
    for (int i = 0; way.uneven && i < mesh.dp; ++i) config.mesh.batch_shares.push_back(i + 1);
    const Ranks ranks = SimRanks(mesh.size());
    std::vector<std::vector<float>> values(ranks.size());
    RunRanks(mesh.size(), [&](int rank) {
      Learner learner(config, mesh, ranks[std::size_t(rank)].get());
      learner.algorithm->batch_partition()->SetRank(rank / mesh.tp, mesh.dp);
      double apart = 0, all = 0;
      for (std::size_t u = 0; u < kUpdates; ++u) {
        const auto round = learner.Round({.last = kUpdates});
        ASSERT_TRUE(round.ok()) << round.status().ToString();
        ASSERT_TRUE(round->applied);
        const double norm = SupervisedExpected().Find(family)->Find("norms")->array[u].number;
        if (!way.halves) {
          ASSERT_NEAR(round->report.gradient_norm, norm, 1e-3) << u;
          ExpectWholeBatch(round->report, family, u, 1e-4);
        }
        apart += std::abs(round->report.gradient_norm - norm);
        all += norm;
      }
      // Halves: one learner alone is 0.12 apart (SupervisedTest.Bf16StaysNearPyTorch).
      EXPECT_LT(apart, (way.halves ? 0.15 : 1e-4) * all);
      const std::span<const float> whole = learner.algorithm->tensor_parallel()->WholeValue();
      values[std::size_t(rank)].assign(whole.begin(), whole.end());
    });
    for (const auto& value : values) EXPECT_EQ(value, values[0]);
    if (kUpdates < 50) continue;
    EXPECT_LT(LogitsApart(config, family, values[0]), way.halves ? 0.3 : 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Products, MeshWaysTest,
    ::testing::Combine(
        ::testing::Values(Mesh{1, 1}, Mesh{2, 1}, Mesh{3, 1}, Mesh{1, 2}, Mesh{2, 2}, Mesh{3, 2}),
        ::testing::Values(
            Way{.name = "micro_batches", .micro_batch_size = 2},
            Way{.name = "recomputed", .recompute = true}, Way{.name = "uneven", .uneven = true},
            Way{.name = "halves", .halves = true},
            Way{.name = "all_whole", .micro_batch_size = 1, .recompute = true, .uneven = true},
            Way{.name = "all_in_halves",
                .micro_batch_size = 2,
                .recompute = true,
                .halves = true,
                .uneven = true})),
    [](const auto& info) {
      const Mesh mesh = std::get<0>(info.param);
      return fmt::format("{}x{}_{}", mesh.dp, mesh.tp, std::get<1>(info.param).name);
    });

// AdamW on the shards, however they cut the model: norms and biases are not decayed there either.
TEST(MeshTest, ParameterShardsMatchPyTorch) {
  for (const Sharding sharding : {Sharding::kMemory, Sharding::kLayer}) {
    TrainingConfig config = SupervisedConfig("bert");
    config.learner.sync = LearnerSync::kParamServer;
    config.paramserver.shards = 3;
    config.paramserver.sharding = sharding;
    auto algorithm = *MakeSupervised(config, {.rank = 0, .ranks = 1});
    const auto network = MakeTextModel(ModelSetupOf(config));
    const ShardMap map = *ShardMapFor(config.paramserver, **network);
    std::vector<float> value(algorithm->value().begin(), algorithm->value().end());
    const auto cut = [&map](std::span<const float> whole, std::int32_t shard) {
      std::vector<float> own;
      for (const ParamRange& r : map.RangesOf(shard)) {
        own.insert(own.end(), whole.begin() + r.begin, whole.begin() + r.end);
      }
      return own;
    };
    std::vector<std::unique_ptr<ParameterShard>> shards;
    for (const std::int32_t s : map.shards()) {
      shards.push_back(
          Make(ParameterShardOptionsFor(ShardConfigOf(config), **network, map, s), cut(value, s)));
      shards.back()->Join(0);
    }
    ExternalOptimizer& weights = *algorithm->external_optimizer();
    for (std::uint64_t u = 1; u <= 50; ++u) {
      std::vector<float> priority(1);
      weights.ReplaceWeights(u - 1, value);
      const auto report = algorithm->ComputeGradient({}, priority, nullptr);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      for (float& g : algorithm->gradient()) g *= float(weights.ClipScale(report->gradient_norm));
      for (const std::int32_t s : map.shards()) {
        ParameterShard* const shard = shards[std::size_t(s)].get();
        ShardPush push = PushOf({0, 1, u}, u, cut(algorithm->gradient(), s));
        push.learning_rate = algorithm->LearningRate(0);
        Push(shard, std::move(push));
        Drain(shard);
        const float* from = shard->value().data();
        for (const ParamRange& r : map.RangesOf(s)) {
          std::copy(from, from + r.size(), value.begin() + r.begin);
          from += r.size();
        }
      }
    }
    EXPECT_LT(LogitsApart(config, "bert", value), 1e-4) << EnumName(sharding);
  }
}

// A model in two parts is one worker, and two of those are two: however the shards cut the model.
TEST(MeshTest, TensorParallelModelIsOneParameterServerWorker) {
  // One alone makes the same course however much it may be ahead of others.
  struct Case {
    int workers;
    std::string family, mode;
  };
  const std::vector<Case> cases = {
      {1, "bert", "bsp"},     {1, "bert", "async"}, {1, "bert", "ssp"},  {1, "bert", "k_of_n"},
      {1, "albert", "async"}, {2, "bert", "bsp"},   {2, "albert", "bsp"}};
  for (const Case& c : cases) {
    const int workers = c.workers;
    const std::string &family = c.family, &mode = c.mode;
    SCOPED_TRACE(fmt::format("{} {} {}", workers, family, mode));
    TrainingConfig config = SupervisedConfig(family);
    config.learner.sync = LearnerSync::kParamServer;
    config.learners = 2 * workers;
    config.mesh.tp = 2;
    config.paramserver.shards = family == "bert" ? 3 : 2;
    config.paramserver.mode = *ParseEnum<SyncMode>(mode);
    config.paramserver.staleness = mode == "ssp" ? 2 : 0;
    const auto network = MakeTextModel(ModelSetupOf(config));
    const ShardMap map = *ShardMapFor(config.paramserver, **network);
    const auto cut = [&map](std::span<const float> whole, std::int32_t shard) {
      std::vector<float> own;
      for (const ParamRange& r : map.RangesOf(shard)) {
        own.insert(own.end(), whole.begin() + r.begin, whole.begin() + r.end);
      }
      return own;
    };
    auto first = *MakeSupervised(config, {.rank = 0, .ranks = 1});
    std::vector<float> value(first->value().begin(), first->value().end());
    std::vector<std::unique_ptr<ParameterShard>> shards;
    for (const std::int32_t s : map.shards()) {
      shards.push_back(
          Make(ParameterShardOptionsFor(ShardConfigOf(config), **network, map, s), cut(value, s)));
      for (int w = 0; w < workers; ++w) shards.back()->Join(2 * w);
    }
    std::vector<Ranks> ranks;
    std::vector<std::vector<float>> gradients(static_cast<std::size_t>(workers));
    for (int w = 0; w < workers; ++w) ranks.push_back(SimRanks(2));
    std::vector<std::unique_ptr<TensorParallelReplica>> replicas;
    std::vector<std::unique_ptr<Algorithm>> others;
    for (int w = 0; w < workers; ++w) {
      Ranks& pair = ranks[std::size_t(w)];
      replicas.push_back(*TensorParallelReplica::Make(
          config, 2, *MakeSupervised(config, {.rank = 0, .ranks = 2})));
      others.push_back(*MakeSupervised(config, {.rank = 1, .ranks = 2}));
      for (const auto& [algorithm, rank] :
           {std::pair<Algorithm*, std::size_t>{replicas.back().get(), 0},
            {others.back().get(), 1}}) {
        algorithm->batch_partition()->SetRank(w, workers);
        algorithm->tensor_parallel()->SetTensorGroup(pair[rank].get(), nullptr);
      }
    }
    const auto part = *MakeTextModel(ModelSetupOf(config), {.rank = 1, .ranks = 2});
    for (std::uint64_t u = 1; u <= kUpdates; ++u) {
      RunRanks(2 * workers, [&](int rank) {
        const auto w = std::size_t(rank / 2);
        std::vector<float> priority(1);
        if (rank % 2 == 1) {
          TensorParallelWorker other(others[w].get(), part.get());
          const auto did = other.Follow(*ranks[w][1], {}, priority);
          ASSERT_TRUE(did.ok()) << did.status().ToString();
          ASSERT_EQ(did->did, TensorParallelWorker::Did::kGradient);
          return;
        }
        TensorParallelReplica& replica = *replicas[w];
        replica.ReplaceWeights(u - 1, value);
        const auto report = replica.ComputeGradient({}, priority);
        ASSERT_TRUE(report.ok()) << report.status().ToString();
        const double norm =
            SupervisedExpected().Find(family)->Find("norms")->array[std::size_t(u - 1)].number;
        if (workers == 1) {
          ASSERT_NEAR(report->gradient_norm, norm, 1e-3) << u;
        }
        gradients[w].assign(replica.gradient().begin(), replica.gradient().end());
      });
      ASSERT_FALSE(HasFailure());
      // The reference clips the mean of the workers' gradients.
      double squares = 0;
      for (std::size_t i = 0; i < value.size(); ++i) {
        double mean = 0;
        for (const auto& g : gradients) mean += double(g[i]) / workers;
        squares += mean * mean;
      }
      const auto scale = float(replicas[0]->ClipScale(std::sqrt(squares)));
      for (auto& gradient : gradients) {
        for (float& g : gradient) g *= scale;
      }
      for (const std::int32_t s : map.shards()) {
        ParameterShard* const shard = shards[std::size_t(s)].get();
        for (int w = 0; w < workers; ++w) {
          ShardPush push = PushOf({2 * w, 1, u}, u, cut(gradients[std::size_t(w)], s));
          push.learning_rate = replicas[0]->LearningRate(0);
          Push(shard, std::move(push));
        }
        Drain(shard);
        const float* from = shard->value().data();
        for (const ParamRange& r : map.RangesOf(s)) {
          std::copy(from, from + r.size(), value.begin() + r.begin);
          from += r.size();
        }
      }
    }
    if (kUpdates < 50) continue;
    EXPECT_LT(LogitsApart(config, family, value), 1e-4);
  }
}

// If either part dies, the other one fails and produces no gradient.
TEST(MeshTest, TensorParallelWorkerFailsWhenAnyPartDies) {
  TrainingConfig config = SupervisedConfig("bert");
  config.mesh.tp = 2;
  for (const int dies : {0, 1}) {
    SimGroup sim({.size = 2});
    const Ranks ranks = SimRanks(2, &sim);
    RunRanks(2, [&](int rank) {
      auto algorithm = *MakeSupervised(config, {.rank = rank, .ranks = 2});
      std::vector<float> priority(1);
      Collective& group = *ranks[std::size_t(rank)];
      if (rank == 1) {
        algorithm->tensor_parallel()->SetTensorGroup(&group, nullptr);
        const auto part = *MakeTextModel(ModelSetupOf(config), {.rank = 1, .ranks = 2});
        TensorParallelWorker other(algorithm.get(), part.get());
        if (dies == 1) {
          ASSERT_TRUE(other.Follow(group, {}, priority).ok());
          return sim.Kill(1);
        }
        Status ended;
        while (ended.ok()) ended = other.Follow(group, {}, priority).status();
        EXPECT_EQ(ended.code(), Code::kUnavailable) << ended.ToString();
        return;
      }
      const auto whole = *MakeSupervised(config, {.rank = 0, .ranks = 1});
      auto replica = *TensorParallelReplica::Make(config, 2, std::move(algorithm));
      replica->SetTensorGroup(&group, nullptr);
      replica->ReplaceWeights(0, whole->value());
      if (dies == 0) {
        ASSERT_TRUE(replica->ComputeGradient({}, priority).ok());
        return sim.Kill(0);
      }
      // Messages that the other part had not yet forwarded may be lost with it.
      Status ended;
      for (int i = 0; i < 2 && ended.ok(); ++i) {
        ended = replica->ComputeGradient({}, priority).status();
      }
      EXPECT_EQ(ended.code(), Code::kUnavailable) << ended.ToString();
      EXPECT_TRUE(replica->broken());
      EXPECT_FALSE(replica->Tell(false).ok());
    });
  }
}

// No non-finite value is pushed to the shards, whichever rank detects it.
TEST(MeshTest, SkipsBatchWhenOnePartHasNoGradient) {
  TrainingConfig config = SupervisedConfig("bert");
  config.mesh.tp = 2;
  const Ranks ranks = SimRanks(2);
  RunRanks(2, [&](int rank) {
    auto algorithm = *MakeSupervised(config, {.rank = rank, .ranks = 2});
    std::vector<float> priority(1);
    Collective& group = *ranks[std::size_t(rank)];
    if (rank == 1) {
      algorithm->tensor_parallel()->SetTensorGroup(&group, nullptr);
      const auto part = *MakeTextModel(ModelSetupOf(config), {.rank = 1, .ranks = 2});
      TensorParallelWorker other(algorithm.get(), part.get());
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(other.Follow(group, {}, priority).ok());
      const auto over = other.Follow(group, {}, priority);
      ASSERT_TRUE(over.ok());
      EXPECT_EQ(over->did, TensorParallelWorker::Did::kOver);
      return;
    }
    const auto whole = *MakeSupervised(config, {.rank = 0, .ranks = 1});
    std::vector<float> value(whole->value().begin(), whole->value().end());
    auto replica = *TensorParallelReplica::Make(config, 2, std::move(algorithm));
    replica->SetTensorGroup(&group, nullptr);
    replica->ReplaceWeights(0, std::vector<float>(value.size(), std::nanf("")));
    EXPECT_EQ(replica->ComputeGradient({}, priority).status().code(), Code::kDataLoss);
    EXPECT_FALSE(replica->broken());
    replica->ReplaceWeights(0, value);
    EXPECT_TRUE(replica->ComputeGradient({}, priority).ok());
    EXPECT_TRUE(replica->Tell(true).ok());
  });
}

// A checkpoint of one mesh resumes on another mesh.
TEST(MeshTest, ContinuesWholeStateOnAnotherMesh) {
  const TrainingConfig config = SupervisedConfig("bert");
  TensorFile state;
  std::uint64_t done = 0;
  std::vector<float> value;
  for (const Mesh mesh : {Mesh{1, 3}, Mesh{2, 1}, Mesh{2, 2}}) {
    const Ranks ranks = SimRanks(mesh.size());
    const std::uint64_t until = mesh.tp == 3 ? 17 : mesh.dp * mesh.tp == 2 ? 30 : 50;
    TensorFile next;
    std::vector<float> next_value;
    RunRanks(mesh.size(), [&](int rank) {
      Learner learner(config, mesh, ranks[std::size_t(rank)].get());
      if (done > 0) {
        ASSERT_TRUE(learner.algorithm->SetState(state).ok());
        // Also where no update comes that would bring it together.
        const auto whole = learner.algorithm->tensor_parallel()->WholeValue();
        EXPECT_EQ(std::vector<float>(whole.begin(), whole.end()), value);
        EXPECT_EQ(*UpdatesOfState(learner.algorithm->tensor_parallel()->WholeState()), done);
      }
      ASSERT_EQ(learner.algorithm->updates(), done);
      while (learner.algorithm->updates() < until) {
        const bool last = learner.algorithm->updates() + 1 == until;
        ASSERT_TRUE(learner.Round({.want_state = last && rank == mesh.size() - 1}).ok());
      }
      if (rank != 0) return;
      next = learner.algorithm->tensor_parallel()->WholeState();
      const auto whole = learner.algorithm->tensor_parallel()->WholeValue();
      next_value.assign(whole.begin(), whole.end());
    });
    state = next;
    value = next_value;
    done = until;
    ASSERT_FALSE(state.tensors.empty());
  }
  EXPECT_LT(LogitsApart(config, "bert", value), 1e-4);
}

// One rank requests the value: all ranks contribute their slices, and the state is not gathered.
TEST(MeshTest, GathersWholeValueOnRequestOfOneRank) {
  const TrainingConfig config = SupervisedConfig("bert");
  const Mesh mesh{2, 2};
  const Ranks ranks = SimRanks(mesh.size());
  RunRanks(mesh.size(), [&](int rank) {
    Learner learner(config, mesh, ranks[std::size_t(rank)].get());
    ASSERT_TRUE(learner.Round({}).ok());
    EXPECT_TRUE(learner.algorithm->tensor_parallel()->WholeValue().empty());
    const auto round = learner.Round({.want_value = rank == 0});
    ASSERT_TRUE(round.ok());
    EXPECT_FALSE(round->gathered);
    EXPECT_EQ(std::int64_t(learner.algorithm->tensor_parallel()->WholeValue().size()),
              ParameterCount(**MakeTextModel(ModelSetupOf(config))));
    EXPECT_TRUE(learner.algorithm->tensor_parallel()->WholeState().tensors.empty());
  });
}

// The failure also reaches learners that wait for gradients or for another model's slices.
TEST(MeshTest, AllLearnersFailWhenOnePartDies) {
  const TrainingConfig config = SupervisedConfig("bert");
  const Mesh mesh{2, 2};
  SimGroup sim({.size = mesh.size()});
  const Ranks ranks = SimRanks(mesh.size(), &sim);
  RunRanks(mesh.size(), [&](int rank) {
    Learner learner(config, mesh, ranks[std::size_t(rank)].get());
    if (rank == 3) {
      for (int u = 0; u < 3; ++u) ASSERT_TRUE(learner.Round({}).ok());
      sim.Kill(3);
      return;
    }
    // Messages of its last update that it had not yet forwarded may be lost with it.
    while (learner.Round({}).ok()) ASSERT_LE(learner.algorithm->updates(), 3u);
    const std::uint64_t updates = learner.algorithm->updates();
    EXPECT_GE(updates, 2u);
    EXPECT_FALSE(learner.Round({}).ok());
    EXPECT_EQ(learner.algorithm->updates(), updates);
  });
}

}  // namespace
}  // namespace troop
