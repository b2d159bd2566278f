#include "net/control/issued_incarnations.h"

#include <utility>
#include <vector>

#include "tests/net/control/fleet_member_fixture.h"

namespace troop {
namespace {

class IssuedNumbersTest : public FleetMemberFixture {
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
