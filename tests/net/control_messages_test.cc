#include "net/control_messages.h"

#include <gtest/gtest.h>

#include "net/rpc/issued_incarnations.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// A channel that answers, or fails permanently, when the test requests it.
class StubChannel final : public Channel {
 public:
  struct State {
    int sent = 0;
    std::optional<Result<Message>> answer;
    Status failed;
    Message last;
  };
  explicit StubChannel(State* state) : state_(state) {}
  Result<Ticket> Send(Message& message, Time) override {
    if (!state_->failed.ok()) return state_->failed;
    state_->last = message;
    return Ticket(++state_->sent);
  }
  std::optional<Result<Message>> Poll(Ticket) override {
    return std::exchange(state_->answer, std::nullopt);
  }
  void Forget(Ticket) override {}
  bool CanSend() const override { return state_->failed.ok(); }
  int in_flight() const override { return 0; }
  PeerState peer() const override { return PeerState::kUp; }

 private:
  State* const state_;
};

class FleetMemberTest : public testing::Test {
 protected:
  void Poll(double seconds) { member_.Poll(Time(Seconds(seconds)), metrics_); }
  void Answer() {
    state_.answer =
        Message{.type = MessageType::kMemberHeartbeatReply, .body = EncodeBody(HeartbeatReply{})};
  }

  StubChannel::State state_;
  Metrics metrics_;
  FleetMember member_{std::make_unique<StubChannel>(&state_), {.role = Role::kActor}};
};

TEST_F(FleetMemberTest, SendsNextHeartbeatOnlyAfterReply) {
  Poll(1);
  Poll(2);
  EXPECT_EQ(state_.sent, 1);
  Answer();
  Poll(3);
  EXPECT_EQ(state_.sent, 2);
  EXPECT_TRUE(member_.lost().ok());
}

// The coordinator got a beat without metrics, and the run's sums lost what the role had counted.
TEST_F(FleetMemberTest, RepeatsLastMetricsInHeartbeatWithoutMetrics) {
  metrics_.Count("actor/steps", 17);
  Poll(1);
  Answer();
  member_.Poll(Time(Seconds(2)));  // takes the answer, and sends the next one
  EXPECT_EQ(state_.sent, 2);
  const auto beat = DecodeBody<HeartbeatRequest>(state_.last.body);
  ASSERT_TRUE(beat.ok());
  EXPECT_EQ(beat->metrics.at("actor/steps").value, 17);
}

TEST_F(FleetMemberTest, LearnerHeartbeatsMoreOftenDuringShardMove) {
  FleetMember learner(std::make_unique<StubChannel>(&state_), {.role = Role::kLearner});
  for (FleetMember* member : {&member_, &learner}) {
    member->Poll(Time(Seconds(1)), metrics_);
    state_.answer =
        Message{.type = MessageType::kMemberHeartbeatReply,
                .body = EncodeBody(HeartbeatReply{.shard_move = {.number = 7, .shards = 3}})};
    member->Poll(Time(Seconds(2)), metrics_);
    Answer();
    const int sent = state_.sent;
    member->Poll(Time(Seconds(2.1)), metrics_);
    EXPECT_EQ(state_.sent - sent, member == &learner ? 1 : 0);
  }
}

TEST_F(FleetMemberTest, AbortedHeartbeatIsFence) {
  Poll(1);
  state_.answer = Aborted("another took its place");
  Poll(2);
  EXPECT_EQ(member_.lost().code(), Code::kAborted);
}

// Regression: a process that was stopped between two heartbeats had no open call that could fail.
// It was fenced everywhere, but never exited.
TEST_F(FleetMemberTest, DetectsFenceBetweenHeartbeats) {
  Poll(1);
  Answer();
  state_.failed = Aborted("actor 0 (incarnation 1) was replaced by incarnation 2");
  Poll(2);
  EXPECT_EQ(member_.lost().code(), Code::kAborted);
  EXPECT_NE(member_.lost().message().find("incarnation 2"), std::string::npos);
}

TEST_F(FleetMemberTest, FullWindowIsNotFence) {
  state_.failed = ResourceExhausted("the window is full");
  Poll(1);
  EXPECT_TRUE(member_.lost().ok());
  state_.failed = Status::Ok();
  Poll(2);
  EXPECT_EQ(state_.sent, 1);
}

TEST_F(FleetMemberTest, ReportsLostAfterTimeoutWithoutReply) {
  Poll(1);
  Poll(60);
  EXPECT_TRUE(member_.lost().ok());
  Poll(62);
  EXPECT_EQ(member_.lost().code(), Code::kUnavailable);
}

TEST_F(FleetMemberTest, ReportsMovedPeerOnce) {
  const auto hear = [this](const std::map<std::string, PeerInfo>& peers, double seconds) {
    Poll(seconds);
    state_.answer = Message{.type = MessageType::kMemberHeartbeatReply,
                            .body = EncodeBody(HeartbeatReply{.peers = peers})};
    Poll(seconds + 0.5);
    return member_.TakeMoved();
  };
  using Moves = std::vector<std::pair<std::string, std::string>>;
  const std::string here = "tcp://10.0.0.1:1", there = "tcp://10.0.0.2:1";
  EXPECT_EQ(hear({{"replay-0", {here, 1}}, {"learner-0", {"group-1", 1}}}, 1), Moves{});
  EXPECT_EQ(hear({}, 2), Moves{}) << "it was lost";
  EXPECT_EQ(hear({{"replay-0", {there, 2}}, {"learner-0", {"group-2", 2}}}, 3),
            (Moves{{here, there}}));
  EXPECT_EQ(hear({{"replay-0", {there, 2}}}, 4), Moves{});
  EXPECT_EQ(hear({{"replay-0", {here, 3}}}, 5), (Moves{{there, here}})) << "and back";
}

class IssuedNumbersTest : public FleetMemberTest {
 protected:
  Code Check(Role role, std::uint64_t incarnation, double seconds) {
    return issued_
        .Check({.role = role, .index = 3, .incarnation = incarnation}, Time(Seconds(seconds)))
        .code();
  }
  void Receive(std::vector<std::uint64_t> issued, double seconds) {
    Poll(seconds);
    state_.answer = Message{.type = MessageType::kMemberHeartbeatReply,
                            .body = EncodeBody(HeartbeatReply{.issued = std::move(issued)})};
    Poll(seconds);
  }
  IssuedIncarnations issued_{&member_};
};

TEST_F(IssuedNumbersTest, AdmitsOnlyIssuedIncarnations) {
  EXPECT_EQ(Check(Role::kLearner, 1, 1), Code::kUnavailable) << "no beat has been answered yet";
  EXPECT_EQ(Check(Role::kTool, 1000, 1), Code::kOk);
  Receive({0, 0, 9, 0, 5}, 2);
  EXPECT_EQ(Check(Role::kLearner, 5, 3), Code::kOk);
  EXPECT_EQ(Check(Role::kLearner, 6, 3), Code::kUnavailable) << "of an actor, but of no learner";
  EXPECT_EQ(Check(Role::kActor, 6, 3), Code::kOk);
  EXPECT_EQ(Check(Role::kEvaluator, 1, 3), Code::kUnavailable);
  EXPECT_TRUE(issued_.Has(Role::kLearner, 5));
  EXPECT_FALSE(issued_.Has(Role::kLearner, 6));
}

TEST_F(IssuedNumbersTest, QueriesUnknownIncarnationsAndCountsInventedOnes) {
  Receive({0, 0, 9}, 1);
  const int sent = state_.sent;
  EXPECT_EQ(Check(Role::kActor, 10, 1.01), Code::kUnavailable);
  EXPECT_EQ(Check(Role::kActor, 1 << 20, 1.01), Code::kUnavailable);
  Receive({0, 0, 10}, 1.02);
  EXPECT_GT(state_.sent, sent) << "it was not asked";
  EXPECT_EQ(Check(Role::kActor, 10, 1.03), Code::kOk);
  EXPECT_EQ(issued_.invented(), 0u);
  EXPECT_EQ(Check(Role::kActor, 1 << 20, 1.04), Code::kUnavailable);
  EXPECT_EQ(issued_.invented(), 1u);
  for (int i = 0; i < 1000; ++i) Check(Role::kActor, 100 + i, 1.05);
  EXPECT_GT(issued_.invented(), 900u) << "what is remembered of callers is bounded";
}

}  // namespace
}  // namespace troop
