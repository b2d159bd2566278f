// The exchange of row gradients, alone and in the updates of linear models.
#include "learners/sync/row_exchange.h"

#include <gmock/gmock.h>

#include <functional>
#include <optional>

#include "collective/sim/sim_group.h"
#include "core/base/philox.h"
#include "learners/linear/linear_training.h"
#include "learners/sync/allreduce_step.h"

namespace troop {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kExamples = 40, kFeatures = 12, kBatch = 10;

// Rows of which each has a third of the features. No sum of values is 0, where AdaGrad and Adam
// would make steps of full size from rounding errors.
std::shared_ptr<LinearExamples> RandomExamples(std::int64_t classes) {
  auto examples = std::make_shared<LinearExamples>();
  examples->rows.width = kFeatures;
  examples->outputs = classes == 2 ? 1 : classes;
  std::vector<std::int32_t> labels;
  Rng rng({7, Purpose::kTest});
  for (std::int64_t i = 0; i < kExamples; ++i) {
    labels.push_back(std::int32_t(rng.Below(std::uint32_t(classes))));
    for (std::int32_t j = 0; j < kFeatures; ++j) {
      if (rng.Below(3) > 0) continue;
      examples->rows.columns.push_back(j);
      examples->rows.values.push_back(float(0.5 + rng.Uniform()));
    }
    examples->rows.EndRow();
  }
  examples->targets = ClassTargets(labels, classes);
  return examples;
}

// A learner of a linear model. examples: those of all learners.
std::unique_ptr<Algorithm> MakeLearner(RowRule rule, bool naive_bayes,
                                       std::shared_ptr<const LinearExamples> examples) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.learner.batch_size = kBatch;
  config.run.max_updates = 100;
  config.optimizer.learning_rate = 0.1;
  const LinearOptions options{.loss = LinearLoss::kLog,
                              .dual_ascent = false,
                              .rows = {.rule = rule},
                              .l2 = rule == RowRule::kFtrl ? 1e-3 : 0,
                              .naive_bayes = naive_bayes};
  auto made = MakeLinearTraining(config, options, std::move(examples));
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

// N learners that one thread plays.
class Learners {
 public:
  Learners(int size, const std::function<std::unique_ptr<Algorithm>()>& make)
      : group_({.size = size, .delay_min = Duration(5000), .delay_max = Duration(500000)}) {
    for (int rank = 0; rank < size; ++rank) {
      algorithms.push_back(make());
      ranks.push_back(group_.Rank(rank));
    }
  }
  // A round in which those ranks have batches. killed: dies during the round.
  std::vector<Result<AllReduceStep::Outcome>> Round(const std::vector<bool>& given,
                                                    int killed = -1) {
    const SampleBatch batch;
    std::vector<std::unique_ptr<AllReduceStep>> rounds;
    std::vector<std::optional<Result<AllReduceStep::Outcome>>> ends(given.size());
    for (std::size_t i = 0; i < given.size(); ++i) {
      rounds.push_back(std::make_unique<AllReduceStep>(ranks[i].get(), algorithms[i].get()));
      const Status begun = rounds[i]->Begin(given[i] ? &batch : nullptr, 0, false, {});
      if (!begun.ok()) ends[i] = begun;
    }
    if (killed >= 0) group_.Kill(killed);
    if (killed >= 0) ends[std::size_t(killed)] = Cancelled("killed");
    const auto ended = [](const auto& end) { return end.has_value(); };
    for (int turn = 0; turn < 100000 && !std::ranges::all_of(ends, ended); ++turn) {
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        if (!ends[i]) ends[i] = rounds[i]->Poll();
      }
      group_.Advance(Duration(50000));
    }
    std::vector<Result<AllReduceStep::Outcome>> out;
    for (auto& end : ends) out.push_back(end ? *end : Status(Internal("the round does not end")));
    return out;
  }

  std::vector<std::unique_ptr<Algorithm>> algorithms;
  std::vector<std::unique_ptr<Collective>> ranks;

 private:
  SimGroup group_;
};

// The oracle is the model of one learner, whose first step linear_training_test.cc compares with
// loops. 11 learners: one of them has no example of a batch of 10.
TEST(RowExchangeTest, LearnersEqualOneWithTheWholeBatch) {
  for (const RowRule rule : {RowRule::kSgd, RowRule::kAdaGrad, RowRule::kFtrl, RowRule::kAdam}) {
    for (const std::int64_t classes : {2, 3}) {
      const auto examples = RandomExamples(classes);
      const auto make = [&] { return MakeLearner(rule, classes == 2, examples); };
      const auto single = make();
      for (int i = 0; i < 12; ++i) ASSERT_TRUE(single->Update({}, 0, {}).ok());
      for (const int size : {1, 2, 3, 11}) {
        SCOPED_TRACE(fmt::format("{}, {} classes, {} learners", EnumName(rule), classes, size));
        Learners learners(size, make);
        for (int i = 0; i < 12; ++i) {
          for (const auto& end : learners.Round(std::vector<bool>(std::size_t(size), true))) {
            ASSERT_TRUE(end.ok() && end->applied) << end.status().ToString();
            EXPECT_EQ(end->report.rows, kBatch);
          }
        }
        for (const auto& learner : learners.algorithms) {
          EXPECT_EQ(learner->updates(), 12u);
          // Bits of the ranks are equal, since each adds the parts in the same order.
          EXPECT_TRUE(std::ranges::equal(learner->value(), learners.algorithms[0]->value()));
          for (std::size_t p = 0; p < single->value().size(); ++p)
            ASSERT_NEAR(learner->value()[p], single->value()[p], 1e-5) << p;
        }
      }
    }
  }
}

// A rank contributes its number of rows (8 bytes), and 4 + 4 · outputs bytes for each of them.
TEST(RowExchangeTest, CountedBytesAreThoseOfTheRows) {
  const auto examples = RandomExamples(3);
  Learners learners(2, [&] { return MakeLearner(RowRule::kSgd, false, examples); });
  std::vector<double> bytes;
  for (const auto& learner : learners.algorithms) {
    const auto alone = MakeLearner(RowRule::kSgd, false, examples);
    alone->batch_partition()->SetRank(int(bytes.size()), 2);
    ASSERT_TRUE(alone->ComputeGradient({}, {}).ok());
    bytes.push_back(8 + double(alone->row_gradients()->row_gradient().sum().rows.size()) * 16);
    learner->cost_reporting()->TakeCost();
  }
  for (const auto& end : learners.Round({true, true})) ASSERT_TRUE(end.ok() && end->applied);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_GT(bytes[i], 8 + 3 * 16.0);
    EXPECT_EQ(learners.algorithms[i]->cost_reporting()->TakeCost().gradient_bytes, bytes[i]);
  }
}

// The mean is that of the learners with a batch; without any, nothing changes.
TEST(RowExchangeTest, LearnerWithoutBatchContributesNothing) {
  const auto examples = RandomExamples(2);
  Learners learners(2, [&] { return MakeLearner(RowRule::kSgd, false, examples); });
  const auto alone = MakeLearner(RowRule::kSgd, false, examples);
  for (const auto& end : learners.Round({false, false})) EXPECT_FALSE(end.ok() && end->applied);
  EXPECT_EQ(learners.algorithms[0]->updates(), 0u);
  for (const auto& end : learners.Round({true, false})) ASSERT_TRUE(end.ok() && end->applied);
  alone->batch_partition()->SetRank(0, 2);
  ASSERT_TRUE(alone->ComputeGradient({}, {}).ok());
  alone->ApplyGradient(0, 0);
  for (const auto& learner : learners.algorithms)
    EXPECT_TRUE(std::ranges::equal(learner->value(), alone->value()));
}

// The survivors keep their weights, and learn of the death.
TEST(RowExchangeTest, DeadLearnerEndsTheRoundOfTheOthers) {
  const auto examples = RandomExamples(2);
  Learners learners(3, [&] { return MakeLearner(RowRule::kFtrl, false, examples); });
  const auto ends = learners.Round({true, true, true}, 1);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_FALSE(ends[i].ok());
    EXPECT_EQ(learners.algorithms[i]->updates(), 0u);
  }
}

// Rows of a fake peer with another model.
class FakeRows final : public RowGradients {
 public:
  FakeRows(std::int64_t rows, std::vector<std::int32_t> touched) : rows_(rows), sum_(100, 1) {
    for (const std::int32_t row : touched) *sum_.Row(row) = 1;
  }
  std::int64_t rows() const override { return rows_; }
  RowGradientSum& row_gradient() override { return sum_; }

 private:
  const std::int64_t rows_;
  RowGradientSum sum_;
};

// Bytes of a peer are not trusted: neither its number of rows nor their indices.
TEST(RowExchangeTest, RowsOutsideTheModelAreRefused) {
  const std::pair<std::vector<std::int32_t>, const char*> wrong[] = {
      {{0, 1, 2, 3, 4}, "rank 1 has a gradient of 5 rows, but the model has 4"},
      {{0, 4}, "rank 1 has a gradient of row 4, but the model has 4 rows"}};
  for (const auto& [touched, message] : wrong) {
    SimGroup group({.size = 2, .delay_min = Duration(5000), .delay_max = Duration(500000)});
    FakeRows good(4, {1, 3}), bad(50, touched);
    const std::unique_ptr<Collective> ranks[] = {group.Rank(0), group.Rank(1)};
    RowExchange exchanges[] = {{ranks[0].get(), &good}, {ranks[1].get(), &bad}};
    std::vector<Work> works[2];
    Status ends[2];
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(exchanges[i].Start(true, &works[i]).ok());
    // Rank 0 ends with its error, while rank 1 waits for it.
    for (int turn = 0; turn < 100000 && ends[0].ok(); ++turn) {
      for (std::size_t i = 0; i < 2; ++i) {
        while (!works[i].empty() && ranks[i]->Poll(works[i].front()))
          works[i].erase(works[i].begin());
        if (works[i].empty() && ends[i].ok()) ends[i] = exchanges[i].Advance(&works[i]);
      }
      group.Advance(Duration(50000));
    }
    EXPECT_EQ(ends[0].code(), Code::kDataLoss);
    EXPECT_THAT(ends[0].message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace troop
