#include "net/control/fleet_member.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/net/control/fleet_member_fixture.h"

namespace troop {
namespace {

class FleetMemberTest : public FleetMemberFixture {};

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

}  // namespace
}  // namespace troop
