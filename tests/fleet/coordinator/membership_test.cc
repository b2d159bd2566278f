#include "fleet/coordinator/membership.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

constexpr Time kStart{Seconds(10)};

MemberView Process(Role role, std::int32_t index, std::uint64_t incarnation) {
  return {.role = role, .index = index, .incarnation = incarnation, .process = 7, .host = "here"};
}

class MembershipTest : public testing::Test {
 protected:
  void Admit(Role role, std::int32_t index, std::uint64_t incarnation, bool joined = false) {
    members_.Admit(Process(role, index, incarnation), "", joined, kStart);
  }
  void Beat(Role role, std::int32_t index, HeartbeatRequest beat, Time now = kStart) {
    members_.RecordHeartbeat(members_.Find(role, index), &beat, now);
  }
  void Beat(Role role, std::int32_t index, const char* metric, double value) {
    HeartbeatRequest beat;
    beat.metrics[metric].value = value;
    Beat(role, index, std::move(beat));
  }

  Membership members_{{.silence_max = Seconds(5), .reconnect_max = Seconds(3)}};
};

TEST_F(MembershipTest, AdmissionReplacesOlderIncarnation) {
  EXPECT_EQ(members_.Admit(Process(Role::kReplay, 0, 1), "tcp://a", false, kStart).view.incarnation,
            0u);
  Beat(Role::kReplay, 0, {.endpoint = "tcp://a:4", .blocked = "the disk is full"});
  const MemberRecord before = members_.Admit(Process(Role::kReplay, 0, 2), "tcp://b", true, kStart);
  EXPECT_EQ(before.view.incarnation, 1u);
  EXPECT_EQ(before.endpoint, "tcp://a:4");
  const MemberRecord* const now = members_.Find(Role::kReplay, 0);
  ASSERT_NE(now, nullptr);
  EXPECT_EQ(now->listen, "tcp://b");
  EXPECT_EQ(now->endpoint, "");
  EXPECT_EQ(now->blocked, "");
  EXPECT_TRUE(now->present);
  EXPECT_TRUE(now->joined);
  EXPECT_EQ(members_.HistoryOf(Role::kReplay, 0)->registered, 2);
  EXPECT_EQ(members_.HistoryOf(Role::kReplay, 1), nullptr);
}

TEST_F(MembershipTest, FencesAllButNewestIncarnation) {
  Admit(Role::kActor, 0, 1);
  Admit(Role::kActor, 0, 2);
  const auto check = [&](std::uint64_t incarnation, std::int32_t index = 0) {
    const Origin caller{.role = Role::kActor, .index = index, .incarnation = incarnation};
    EXPECT_EQ(members_.FindCurrent(caller) != nullptr,
              members_.CheckOrigin(caller, 3, kStart).ok());
    return members_.CheckOrigin(caller, 3, kStart).code();
  };
  EXPECT_EQ(check(1), Code::kAborted);
  EXPECT_EQ(check(2), Code::kOk);
  EXPECT_EQ(check(3), Code::kAborted) << "never issued";
  EXPECT_EQ(check(2, 1), Code::kAborted);
}

TEST_F(MembershipTest, IssuedHasNewestIncarnationOfEachRole) {
  Admit(Role::kActor, 0, 1);
  Admit(Role::kActor, 1, 2);
  Admit(Role::kReplay, 0, 3);
  EXPECT_EQ(members_.issued().at(std::size_t(Role::kActor)), 2u);
  EXPECT_EQ(members_.issued().at(std::size_t(Role::kReplay)), 3u);
}

TEST_F(MembershipTest, ExitOfOtherProcessChangesNothing) {
  Admit(Role::kActor, 0, 1);
  EXPECT_EQ(members_.Remove(Role::kActor, 0, 8), nullptr);
  EXPECT_EQ(members_.Remove(Role::kActor, 1, 7), nullptr);
  EXPECT_TRUE(members_.Has(Role::kActor, 0));
  MemberRecord* const gone = members_.Remove(Role::kActor, 0, 7);
  ASSERT_NE(gone, nullptr);
  EXPECT_FALSE(gone->present);
  EXPECT_FALSE(members_.Has(Role::kActor, 0));
  EXPECT_EQ(members_.Find(Role::kActor, 0), gone) << "its record stays";
  EXPECT_EQ(members_.Remove(Role::kActor, 0, 7), gone) << "a second report is harmless";
}

TEST_F(MembershipTest, RemovesSilentMembers) {
  Admit(Role::kActor, 0, 1);
  Admit(Role::kActor, 1, 2);
  EXPECT_TRUE(members_.RemoveLost(kStart + Seconds(5)).empty());
  Beat(Role::kActor, 1, {}, kStart + Seconds(5));
  EXPECT_TRUE(members_.RemoveLost(kStart + Seconds(5.1)).empty()) << "the next look comes later";
  const std::vector<MemberRecord*> lost = members_.RemoveLost(kStart + Seconds(5.2));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0]->view.index, 0);
  EXPECT_FALSE(lost[0]->present);
  EXPECT_EQ(members_.HistoryOf(Role::kActor, 0)->last_error,
            "silent for 5.2 s, removed (fleet.stall_timeout_s)");
  EXPECT_TRUE(members_.RemoveLost(kStart + Seconds(6)).empty()) << "each is lost once";
  EXPECT_EQ(members_.CountPresent(Role::kActor), 1);
}

TEST_F(MembershipTest, RemovesOnlyExternalMembersWithoutConnection) {
  Admit(Role::kActor, 0, 1);
  Admit(Role::kActor, 1, 2, true);
  Admit(Role::kActor, 2, 3, true);
  for (std::int32_t i = 0; i < 3; ++i) {
    const Origin peer{.role = Role::kActor, .index = i, .incarnation = std::uint64_t(i) + 1};
    EXPECT_NE(members_.RecordConnection(peer, PeerState::kDown, kStart), nullptr);
    if (i == 2) members_.RecordConnection(peer, PeerState::kUp, kStart + Seconds(1));
  }
  EXPECT_EQ(members_.CountConnectedExternal(), 1);
  const std::vector<MemberRecord*> lost = members_.RemoveLost(kStart + Seconds(3.1));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0]->view.index, 1);
  EXPECT_EQ(members_.joined_actors(), std::vector<std::int32_t>{2});
}

TEST_F(MembershipTest, IgnoresConnectionsOfOlderIncarnations) {
  Admit(Role::kReplay, 0, 1, true);
  Admit(Role::kReplay, 0, 2, true);
  const Origin old{.role = Role::kReplay, .index = 0, .incarnation = 1};
  EXPECT_EQ(members_.RecordConnection(old, PeerState::kDown, kStart), nullptr);
  EXPECT_EQ(members_.CountConnectedExternal(), 1);
}

TEST_F(MembershipTest, OwnPauseIsNotSilence) {
  Admit(Role::kActor, 0, 1, true);
  members_.RecordConnection({.role = Role::kActor, .index = 0, .incarnation = 1}, PeerState::kDown,
                            kStart);
  members_.ExtendLeases(Seconds(60));
  EXPECT_TRUE(members_.RemoveLost(kStart + Seconds(62)).empty());
  EXPECT_EQ(members_.Views(kStart + Seconds(62)).at(0).heartbeat_age_s, 2);
  EXPECT_EQ(members_.Views(kStart + Seconds(62)).at(0).down_s, 2);
}

TEST_F(MembershipTest, JoinedActorsAreSortedAndPresent) {
  Admit(Role::kActor, 0, 1);
  Admit(Role::kActor, 5, 2, true);
  Admit(Role::kActor, 3, 3, true);
  Admit(Role::kReplay, 0, 4, true);
  EXPECT_EQ(members_.joined_actors(), (std::vector<std::int32_t>{3, 5}));
  EXPECT_FALSE(members_.Find(Role::kActor, 3)->has_slot());
  EXPECT_TRUE(members_.Find(Role::kActor, 0)->has_slot());
  EXPECT_TRUE(members_.Find(Role::kReplay, 0)->has_slot());
  members_.Remove(Role::kActor, 3, 7);
  EXPECT_EQ(members_.joined_actors(), std::vector<std::int32_t>{5});
}

TEST_F(MembershipTest, PeersArePresentMembersWithEndpoint) {
  Admit(Role::kReplay, 0, 1);
  Admit(Role::kReplay, 1, 2);
  Admit(Role::kActor, 0, 3);
  EXPECT_TRUE(members_.Peers().empty());
  Beat(Role::kReplay, 0, {.endpoint = "tcp://a"});
  Beat(Role::kReplay, 1, {.endpoint = "tcp://b"});
  EXPECT_EQ(members_.Peers().size(), 2u);
  EXPECT_EQ(members_.Peers().at("replay-1").endpoint, "tcp://b");
  EXPECT_EQ(members_.Peers().at("replay-1").incarnation, 2u);
  members_.Remove(Role::kReplay, 1, 7);
  EXPECT_EQ(members_.Peers().size(), 1u);
  Beat(Role::kReplay, 0, {.endpoint = "tcp://c"});
  EXPECT_EQ(members_.Peers().at("replay-0").endpoint, "tcp://c");
}

TEST_F(MembershipTest, AllAreInformedByFinalPhaseOrStop) {
  EXPECT_TRUE(members_.AllInformedOfEnd(false)) << "there is no member";
  Admit(Role::kActor, 0, 1);
  EXPECT_FALSE(members_.AllInformedOfEnd(true));
  members_.Find(Role::kActor, 0)->told_stop = true;
  EXPECT_TRUE(members_.AllInformedOfEnd(true));
  EXPECT_FALSE(members_.AllInformedOfEnd(false)) << "without a stop request only the phase counts";
  members_.Find(Role::kActor, 0)->told = Phase::kDone;
  EXPECT_TRUE(members_.AllInformedOfEnd(false));
  Admit(Role::kActor, 1, 2);
  EXPECT_FALSE(members_.AllInformedOfEnd(false));
  members_.Remove(Role::kActor, 1, 7);
  EXPECT_TRUE(members_.AllInformedOfEnd(false));
}

TEST_F(MembershipTest, ReadsMetricsOfPresentMembersOnly) {
  EXPECT_EQ(members_.NewestVersion(), -1);
  Admit(Role::kLearner, 0, 1);
  Admit(Role::kLearner, 1, 2);
  EXPECT_EQ(members_.NewestVersion(), -1);
  Beat(Role::kLearner, 0, "learner/version", 40);
  Beat(Role::kLearner, 1, "learner/version", 50);
  EXPECT_EQ(members_.NewestVersion(), 50);
  EXPECT_EQ(members_.MetricOf(Role::kLearner, 1, "learner/version"), 50);
  EXPECT_EQ(members_.MetricOf(Role::kLearner, 1, "learner/loss"), 0);
  EXPECT_EQ(members_.MetricOf(Role::kLearner, 2, "learner/version"), 0);
  members_.Remove(Role::kLearner, 1, 7);
  EXPECT_EQ(members_.NewestVersion(), 40);
  EXPECT_EQ(members_.MetricOf(Role::kLearner, 1, "learner/version"), 0);
}

TEST_F(MembershipTest, AbsentMembersKeepCountersAndOnRequestRatios) {
  Metrics metrics;
  metrics.Count("learner/updates", 5);
  metrics.Gauge("learner/version", 3, MetricKind::kGaugeMax);
  metrics.Ratio("learner/loss", 1, 4);
  Admit(Role::kLearner, 0, 1);
  Beat(Role::kLearner, 0, {.metrics = metrics.snapshot()});
  EXPECT_EQ(members_.Metrics(false).at(0).size(), 3u);
  members_.Remove(Role::kLearner, 0, 7);
  ASSERT_EQ(members_.Metrics(false).size(), 1u);
  EXPECT_EQ(members_.Metrics(false)[0].size(), 1u);
  EXPECT_TRUE(members_.Metrics(false)[0].contains("learner/updates"));
  EXPECT_TRUE(members_.Metrics(true)[0].contains("learner/loss"));
  EXPECT_FALSE(members_.Metrics(true)[0].contains("learner/version"));
}

TEST_F(MembershipTest, MessagesOfRolesBecomeShortLines) {
  EXPECT_EQ(OneLineOf("a\nb\x1b[31m\x7f"), "a b [31m ");
  EXPECT_EQ(OneLineOf(std::string(1000, 'x')).size(), 400u);
  members_.RecordFailure(Role::kActor, 0, std::string(1000, 'x'), 2, kStart);
  const RoleHistory* const history = members_.HistoryOf(Role::kActor, 0);
  ASSERT_NE(history, nullptr);
  EXPECT_EQ(history->last_error.size(), 400u);
  EXPECT_EQ(history->failures, 2);
  EXPECT_EQ(history->registered, 0);
  EXPECT_EQ(members_.Find(Role::kActor, 0), nullptr) << "a failure does not register it";
}

}  // namespace
}  // namespace troop
