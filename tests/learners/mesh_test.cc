#include <gtest/gtest.h>

#include <cmath>

#include "learners/group_round.h"
#include "learners/supervised.h"
#include "nn/model.h"
#include "nn/text_model.h"
#include "paramserver/from_config.h"
#include "tests/learners/supervised_fixture.h"
#include "tests/nn/tensor_ranks.h"
#include "tests/paramserver/shard_testing.h"

// Learners in a mesh: dp groups of tp learners, each with its part of the model.
namespace troop {
namespace {

using testing::SimRanks;
using testing::SupervisedConfig;
using testing::SupervisedExpected;

struct Mesh {
  int dp = 1, tp = 1;
  int size() const { return dp * tp; }
};

// One rank of a mesh.
struct Learner {
  Learner(const Config& config, const Mesh& mesh, Collective* group) : all(group) {
    const int part = group->rank() % mesh.tp, model = group->rank() / mesh.tp;
    auto made = MakeSupervised(config, {.rank = part, .ranks = mesh.tp});
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    algorithm = *std::move(made);
    if (mesh.tp == 1) return;
    same_part = *group->Split(part, model);
    same_model = *group->Split(model, part);
    algorithm->SetTensorGroup(same_model.get());
  }
  Result<GroupRound::Outcome> Round(GroupRound::Options options) {
    options.gradients = same_part.get();
    GroupRound round(all, algorithm.get(), options);
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

// What PyTorch's model says after the 50 updates.
double LogitsApart(const Config& config, const std::string& family, std::span<const float> value) {
  const auto data = LoadReviewData(config);
  const auto module = MakeTextModel(config);
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < (*data)->train.size(); ++i) all.push_back(i);
  TextStep step(module->get(), 0);
  const TextBatches batches(config, (*data)->tokenizer);
  EXPECT_TRUE(step.Forward({value}, batches.ForJudging((*data)->train, all)).ok());
  const auto& rows = SupervisedExpected().Find(family)->Find("after")->array;
  double apart = 0;
  for (std::size_t i = 0; i < 2 * rows.size(); ++i) {
    apart = std::max(apart, std::abs(step.logits()[i] - rows[i / 2].array[i % 2].number));
  }
  return apart;
}

TEST(MeshTest, EveryMeshTakesPyTorchsCourse) {
  for (const std::string family : {"bert", "albert"}) {
    for (const Mesh mesh : {Mesh{1, 2}, Mesh{2, 2}, Mesh{1, 3}, Mesh{3, 2}, Mesh{2, 1}}) {
      const Config config = SupervisedConfig(family);
      const Ranks ranks = SimRanks(mesh.size());
      std::vector<std::vector<float>> values(ranks.size());
      RunRanks(mesh.size(), [&](int rank) {
        Learner learner(config, mesh, ranks[std::size_t(rank)].get());
        for (std::size_t u = 0; u < 50; ++u) {
          const auto round = learner.Round({.last = 50});
          ASSERT_TRUE(round.ok()) << round.status().ToString();
          ASSERT_TRUE(round->applied);
          const double norm = SupervisedExpected().Find(family)->Find("norms")->array[u].number;
          ASSERT_NEAR(round->report.gradient_norm, norm, 1e-3) << u;
          EXPECT_EQ(round->gathered, mesh.tp > 1 && u == 49);
        }
        const std::span<const float> whole = learner.algorithm->WholeValue();
        values[std::size_t(rank)].assign(whole.begin(), whole.end());
      });
      SCOPED_TRACE(fmt::format("{} {} x {}", family, mesh.dp, mesh.tp));
      for (const auto& value : values) EXPECT_EQ(value, values[0]);
      EXPECT_LT(LogitsApart(config, family, values[0]), 1e-4);
    }
  }
}

// AdamW on the shards, however they cut the model: norms and biases are not decayed there either.
TEST(MeshTest, ParameterShardsTakePyTorchsCourse) {
  for (const std::string sharding : {"memory", "layer"}) {
    Config config = SupervisedConfig("bert");
    config.learner.sync = "paramserver";
    config.paramserver.shards = 3;
    config.paramserver.sharding = sharding;
    auto algorithm = *MakeSupervised(config, {.rank = 0, .ranks = 1});
    const auto network = MakeTextModel(config);
    const ShardMap map = *ShardMapFor(config, **network);
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
      shards.push_back(Make(ParameterShardOptionsFor(config, **network, map, s), cut(value, s)));
      shards.back()->Join(0);
    }
    for (std::uint64_t u = 1; u <= 50; ++u) {
      std::vector<float> priority(1);
      algorithm->AdoptValue(u - 1, value);
      const auto report = algorithm->ComputeGradient({}, priority, nullptr);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      for (float& g : algorithm->gradient())
        g *= float(algorithm->ClipScale(report->gradient_norm));
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
    EXPECT_LT(LogitsApart(config, "bert", value), 1e-4) << sharding;
  }
}

// A checkpoint of one mesh goes on at another.
TEST(MeshTest, AWholeStateGoesOnAtAnotherMesh) {
  const Config config = SupervisedConfig("bert");
  TensorFile state;
  std::uint64_t done = 0;
  std::vector<float> value;
  for (const Mesh mesh : {Mesh{1, 3}, Mesh{2, 1}, Mesh{2, 2}}) {
    const Ranks ranks = SimRanks(mesh.size());
    const std::uint64_t until = mesh.tp == 3 ? 17 : mesh.dp * mesh.tp == 2 ? 30 : 50;
    TensorFile next;
    RunRanks(mesh.size(), [&](int rank) {
      Learner learner(config, mesh, ranks[std::size_t(rank)].get());
      if (done > 0) {
        ASSERT_TRUE(learner.algorithm->SetState(state).ok());
      }
      ASSERT_EQ(learner.algorithm->updates(), done);
      while (learner.algorithm->updates() < until) {
        const bool last = learner.algorithm->updates() + 1 == until;
        ASSERT_TRUE(learner.Round({.want_state = last && rank == mesh.size() - 1}).ok());
      }
      if (rank != 0) return;
      next = learner.algorithm->WholeState();
      const auto whole = learner.algorithm->WholeValue();
      value.assign(whole.begin(), whole.end());
    });
    state = next;
    done = until;
    ASSERT_FALSE(state.tensors.empty());
  }
  EXPECT_LT(LogitsApart(config, "bert", value), 1e-4);
}

// One rank asks: all bring their parts, and who wants the value alone gets no state.
TEST(MeshTest, TheWholeValueComesWhereOneRankWantsIt) {
  const Config config = SupervisedConfig("bert");
  const Mesh mesh{2, 2};
  const Ranks ranks = SimRanks(mesh.size());
  RunRanks(mesh.size(), [&](int rank) {
    Learner learner(config, mesh, ranks[std::size_t(rank)].get());
    ASSERT_TRUE(learner.Round({}).ok());
    EXPECT_TRUE(learner.algorithm->WholeValue().empty());
    const auto round = learner.Round({.want_value = rank == 0});
    ASSERT_TRUE(round.ok());
    EXPECT_FALSE(round->gathered);
    EXPECT_EQ(std::int64_t(learner.algorithm->WholeValue().size()),
              ParameterCount(**MakeTextModel(config)));
    EXPECT_TRUE(learner.algorithm->WholeState().tensors.empty());
  });
}

// Also those who wait for gradients, or for another model's parts.
TEST(MeshTest, WhenOnePartDiesAllLearnersSaySo) {
  const Config config = SupervisedConfig("bert");
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
    // What it had still to pass on of its last update may be lost with it.
    while (learner.Round({}).ok()) ASSERT_LE(learner.algorithm->updates(), 3u);
    const std::uint64_t updates = learner.algorithm->updates();
    EXPECT_GE(updates, 2u);
    EXPECT_FALSE(learner.Round({}).ok());
    EXPECT_EQ(learner.algorithm->updates(), updates);
  });
}

}  // namespace
}  // namespace troop
