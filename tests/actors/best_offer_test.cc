#include "actors/best_offer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "actors/evaluator_node.h"
#include "nn/models/model.h"
#include "paramserver/weights/weights_server.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

// Runs a job only when the test allows it, like a slow disk.
class HeldExecutor final : public Executor {
 public:
  Result<Job> Submit(std::string_view, std::function<void()> work) override {
    held_.push_back({++last_, std::move(work)});
    return last_;
  }
  bool TakeDone(Job job) override { return std::erase(done_, job) > 0; }
  std::size_t held() const { return held_.size(); }
  void RunOne() {
    held_.front().second();
    done_.push_back(held_.front().first);
    held_.pop_front();
  }

 private:
  Job last_ = 0;
  std::deque<std::pair<Job, std::function<void()>>> held_;
  std::vector<Job> done_;
};

// An evaluator with a weights server and a fake coordinator; its best weights go to the test.
class EvaluatorWorld {
 public:
  struct Offered {
    EvaluationReport report;
    std::vector<float> weights;
  };
  // answer: of BestKeeper. begin: empty: episodes are played.
  explicit EvaluatorWorld(const ActingConfig& config, Result<bool> answer = true,
                          EvaluatorNode::EvaluatorFactory begin = {})
      : config_(config), coordinator_(hub_.get()) {
    const auto env = MakeEnvironment(config.env.id, EnvOptionsFor(config.env, config.serial));
    const auto module = MakeNetwork(ModelSetup(), (*env)->spec());
    weights_.resize(std::size_t(ParameterCount(**module)));
    InitParameters(**module, 1, weights_);
    server_ = MakeWeightsServer({.parameters = std::int64_t(weights_.size())});
    listener_ = *servers_->Listen("inproc://weights", server_.get());
    coordinator_.AddPeer(Role::kParamServer, "inproc://weights", 2);
    publisher_ = MakeWeightPublisher(*network_->Connect(
        "inproc://weights", {.origin = {.role = Role::kLearner, .incarnation = 1}}));
    member_ = coordinator_.Member(network_.get(), Role::kEvaluator, 3);
    coordinator_.on_beat = [this](const HeartbeatRequest& told, HeartbeatReply*) {
      for (const EvaluationReport& report : told.evaluations) {
        if (std::ranges::find(reports, report) == reports.end()) reports.push_back(report);
      }
      finished = told.finished;
    };
    const auto connect = [this](const EnvSpec&) -> Result<std::unique_ptr<WeightSubscriber>> {
      const std::string endpoint = member_->Endpoint(Role::kParamServer, 0);
      if (endpoint.empty()) return std::unique_ptr<WeightSubscriber>();
      TROOP_ASSIGN_OR_RETURN(
          auto channel,
          network_->Connect(endpoint, {.origin = {.role = Role::kEvaluator, .incarnation = 3}}));
      return MakeWeightSubscriber(std::move(channel));
    };
    const auto keep = [this, answer](const EvaluationReport& report, std::span<const float> value) {
      offered.push_back({report, {value.begin(), value.end()}});
      return answer;
    };
    const ActingContext context{.network = network_.get(),
                                .member = member_.get(),
                                .connect_weights = connect,
                                .keep_best = keep,
                                .executor = &executor};
    node_ = begin ? *EvaluatorNode::Make(config_, context, (*env)->spec(), begin)
                  : *EvaluatorNode::Make(config_, context);
  }
  // All weights are `value`: of a policy with constant actions.
  void Publish(std::uint64_t version, float value) {
    std::ranges::fill(weights_, value);
    publisher_->Publish({version, Buffer::Copy(std::as_bytes(std::span<const float>(weights_)))});
  }
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      now_ += Milliseconds(10);
      network_->Pump(now_);
      coordinator_.Pump(now_);
      servers_->Pump(now_);
      publisher_->Poll(now_);
      if (node_->Step(now_).what == StepStatus::kDone) return;
    }
  }
  void RoundsUntil(const std::function<bool()>& reached) {
    for (int i = 0; i < 2000 && !reached(); ++i) Rounds(1);
    EXPECT_TRUE(reached());
  }
  CoordinatorFake& coordinator() { return coordinator_; }
  double Told(const char* name) const {
    const auto it = coordinator_.told.metrics.find(name);
    return it == coordinator_.told.metrics.end() ? 0 : it->second.value;
  }

  HeldExecutor executor;
  std::vector<Offered> offered;
  std::vector<EvaluationReport> reports;
  bool finished = false;

 private:
  const ActingConfig config_;
  const std::unique_ptr<SimHub> hub_ = MakeSimHub();
  const std::unique_ptr<Network> network_ = hub_->MakeNetwork(), servers_ = hub_->MakeNetwork();
  CoordinatorFake coordinator_;
  std::vector<float> weights_;
  std::unique_ptr<WeightsServer> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<WeightPublisher> publisher_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<EvaluatorNode> node_;
  Time now_{Seconds(1)};
};

ActingConfig ShortEvaluations() {
  ActingConfig config;
  config.env.id = "CartPole-v1";
  config.evaluator.envs = 2;
  config.evaluator.every_s = 0;
  config.evaluator.episodes = 2;
  config.evaluator.final_episodes = 3;
  return config;
}

// The reply of the coordinator gives a peer with newer weights no chance to get into the job.
TEST(BestOfferTest, OffersExactlyTheEvaluatedWeights) {
  EvaluatorWorld world(ShortEvaluations());
  world.Publish(7, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.Publish(8, 0.5f);  // while the job is waiting
  world.Rounds(50);
  world.executor.RunOne();
  ASSERT_EQ(world.offered.size(), 1u);
  EXPECT_EQ(world.offered[0].report.weights_version, 7u);
  for (const float w : world.offered[0].weights) ASSERT_EQ(w, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.executor.RunOne();
  ASSERT_EQ(world.offered.size(), 2u);
  EXPECT_EQ(world.offered[1].report.weights_version, 8u);
  for (const float w : world.offered[1].weights) ASSERT_EQ(w, 0.5f);
  world.RoundsUntil([&] { return world.reports.size() == 2; });
  EXPECT_EQ(world.reports[0], world.offered[0].report);
  EXPECT_EQ(world.reports[1], world.offered[1].report);
}

TEST(BestOfferTest, NextTrialWaitsForTheWrite) {
  EvaluatorWorld world(ShortEvaluations());
  world.Publish(7, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.Publish(8, 0.5f);
  world.Rounds(300);
  EXPECT_EQ(world.executor.held(), 1u);
  ASSERT_EQ(world.reports.size(), 1u) << "the report does not wait for the disk";
}

// The coordinator ends the run when the evaluator is finished; the write would be cut off.
TEST(BestOfferTest, EndIsReportedAfterTheWrite) {
  EvaluatorWorld world(ShortEvaluations());
  world.coordinator().reply.phase = Phase::kEvaluating;
  world.Publish(7, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.Rounds(300);
  ASSERT_EQ(world.reports.size(), 1u);
  EXPECT_TRUE(world.reports[0].final);
  EXPECT_FALSE(world.finished);
  world.executor.RunOne();
  world.RoundsUntil([&] { return world.finished; });
  ASSERT_EQ(world.offered.size(), 1u);
  EXPECT_EQ(world.offered[0].report.episodes, 3);
}

TEST(BestOfferTest, FailedWriteIsCountedAndEvaluationsContinue) {
  EvaluatorWorld world(ShortEvaluations(), ResourceExhausted("the disk is full"));
  world.Publish(7, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.executor.RunOne();
  world.RoundsUntil([&] { return world.Told("evaluator/best_checkpoint_failures") == 1; });
  world.Publish(8, 0.5f);
  world.RoundsUntil([&] { return world.reports.size() == 2; });
}

// An evaluation of examples that is over at once.
class ScriptedEvaluator final : public Evaluator {
 public:
  explicit ScriptedEvaluator(std::uint64_t version) : version_(version) {}
  State Advance(int) override { return State::kOver; }
  const Status& error() const override { return error_; }
  EvaluationReport Report() const override {
    return {.weights_version = version_, .episodes = 100, .return_mean = 90};
  }

 private:
  const std::uint64_t version_;
  const Status error_;
};

// The test examples must not choose the weights of a text model.
TEST(BestOfferTest, FinalAccuracyOfTextModelIsNotOffered) {
  ActingConfig config = ShortEvaluations();
  config.model.algorithm = AlgorithmKind::kClassifier;
  EvaluatorWorld world(config, true,
                       [](const EvaluationRequest& trial, std::span<const float>,
                          std::unique_ptr<Evaluator>) -> Result<std::unique_ptr<Evaluator>> {
                         return std::unique_ptr<Evaluator>(new ScriptedEvaluator(trial.version));
                       });
  world.Publish(7, 0.25f);
  world.RoundsUntil([&] { return world.executor.held() == 1; });
  world.executor.RunOne();
  world.coordinator().reply.phase = Phase::kEvaluating;
  world.RoundsUntil([&] { return world.finished; });
  ASSERT_EQ(world.reports.size(), 2u);
  EXPECT_TRUE(world.reports[1].final);
  EXPECT_EQ(world.executor.held(), 0u);
  ASSERT_EQ(world.offered.size(), 1u);
  EXPECT_FALSE(world.offered[0].report.final);
}

}  // namespace
}  // namespace troop
