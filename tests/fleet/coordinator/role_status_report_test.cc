#include "fleet/coordinator/role_status_report.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

using State = RoleView::State;

constexpr Time kStart{Seconds(10)};

class RoleStatusReportTest : public testing::Test {
 protected:
  static Config Small() {
    Config config;
    config.run.total_steps = 100;
    config.fleet.actors = 1;
    config.fleet.external_roles = {"replay"};
    config.fleet.heartbeat_timeout_s = 1.5;
    config.fleet.restart_window_s = 20;
    return config;
  }
  RoleStatusReport Report(Duration later = {}) const {
    return {&config_, &members_,
            DesiredRoles({.config = &config_,
                          .lifecycle = &lifecycle_,
                          .slots = &slots_,
                          .parameter_servers = 0}),
            kStart + later};
  }
  RoleView View(Role role, std::int32_t index, Duration later = {}) const {
    for (const RoleView& view : Report(later).Roles()) {
      if (view.role == role && view.index == index) return view;
    }
    ADD_FAILURE() << PeerName(role, index) << " is not listed";
    return {};
  }
  void Admit(Role role, std::int32_t index, bool joined = false) {
    members_.Admit({.role = role, .index = index, .incarnation = ++incarnation_}, "", joined,
                   kStart);
  }
  void Beat(Role role, std::int32_t index, const char* metric, double value) {
    HeartbeatRequest beat;
    beat.metrics[metric].value = value;
    members_.RecordHeartbeat(members_.Find(role, index), &beat, kStart);
  }

  const Config config_ = Small();
  RunLifecycle lifecycle_{&config_, 0};
  RoleSlots slots_{config_};
  Membership members_{{.silence_max = Seconds(5)}};
  std::uint64_t incarnation_ = 0;
};

TEST_F(RoleStatusReportTest, EmptySlotsAreMissingAwaitedOrFinished) {
  EXPECT_EQ(View(Role::kLearner, 0).state, State::kMissing);
  EXPECT_EQ(View(Role::kReplay, 0).state, State::kAwaited) << "another machine starts it";
  lifecycle_.Stop();
  EXPECT_EQ(View(Role::kLearner, 0).state, State::kFinished);
  EXPECT_EQ(View(Role::kReplay, 0).state, State::kFinished);
}

TEST_F(RoleStatusReportTest, SilentAfterHeartbeatTimeoutOrLostConnection) {
  Admit(Role::kActor, 0);
  EXPECT_EQ(View(Role::kActor, 0, Seconds(1.4)).state, State::kAlive);
  EXPECT_EQ(View(Role::kActor, 0, Seconds(1.5)).state, State::kSilent);
  members_.RecordConnection({.role = Role::kActor, .index = 0, .incarnation = 1}, PeerState::kDown,
                            kStart);
  EXPECT_EQ(View(Role::kActor, 0).state, State::kSilent);
}

TEST_F(RoleStatusReportTest, AbsentRolesAreDeadAwaitedOrFinished) {
  for (const Role role : {Role::kActor, Role::kLearner, Role::kReplay}) {
    Admit(role, 0);
    members_.Remove(role, 0, 0);
  }
  EXPECT_EQ(View(Role::kActor, 0).state, State::kDead);
  EXPECT_EQ(View(Role::kReplay, 0).state, State::kAwaited);
  lifecycle_.Advance({.learner_finished = true});
  EXPECT_EQ(View(Role::kActor, 0).state, State::kFinished);
  EXPECT_EQ(View(Role::kLearner, 0).state, State::kDead);
}

TEST_F(RoleStatusReportTest, BlockedRoleHasReasonWhileItIsAlive) {
  Admit(Role::kReplay, 0);
  HeartbeatRequest beat{.blocked = "the disk is full"};
  members_.RecordHeartbeat(members_.Find(Role::kReplay, 0), &beat, kStart);
  EXPECT_EQ(View(Role::kReplay, 0).state, State::kBlocked);
  EXPECT_EQ(View(Role::kReplay, 0).reason, "the disk is full");
  EXPECT_EQ(Report().Conditions().at(0).state, State::kBlocked);
  EXPECT_EQ(View(Role::kReplay, 0, Seconds(3)).state, State::kSilent);
  members_.Remove(Role::kReplay, 0, 0);
  EXPECT_TRUE(Report().Conditions().empty());
}

TEST_F(RoleStatusReportTest, RestartLoopEndsAfterWindow) {
  Admit(Role::kActor, 0);
  members_.Remove(Role::kActor, 0, 0);
  members_.RecordFailure(Role::kActor, 0, "exit code 1", 1, kStart);
  EXPECT_EQ(View(Role::kActor, 0).state, State::kRestarting);
  EXPECT_EQ(View(Role::kActor, 0).reason, "exit code 1");
  Admit(Role::kActor, 0);
  EXPECT_EQ(View(Role::kActor, 0).state, State::kAlive) << "one failure with a rejoin";
  EXPECT_EQ(View(Role::kActor, 0).restarts, 1);
  members_.RecordFailure(Role::kActor, 0, "exit code 1", 2, kStart);
  EXPECT_EQ(View(Role::kActor, 0, Seconds(19)).state, State::kRestarting);
  EXPECT_EQ(View(Role::kActor, 0, Seconds(20)).state, State::kSilent);
  EXPECT_EQ(View(Role::kActor, 0, Seconds(20)).last_error, "exit code 1");
  lifecycle_.Stop();
  EXPECT_EQ(View(Role::kActor, 0).reason, "") << "no restart follows";
}

TEST_F(RoleStatusReportTest, ConditionsOfEvaluatorsComeLast) {
  Admit(Role::kReplay, 0);
  HeartbeatRequest beat{.blocked = "the disk is full"};
  members_.RecordHeartbeat(members_.Find(Role::kReplay, 0), &beat, kStart);
  members_.RecordFailure(Role::kEvaluator, 0, "exit code 1", 1, kStart);
  members_.RecordFailure(Role::kLearner, 0, "exit code 2", 1, kStart);
  std::vector<Role> roles;
  for (const RoleCondition& condition : Report().Conditions()) roles.push_back(condition.role);
  EXPECT_EQ(roles, (std::vector<Role>{Role::kLearner, Role::kReplay, Role::kEvaluator}));
}

TEST_F(RoleStatusReportTest, ActorsLagBehindNewestWeights) {
  Admit(Role::kLearner, 0);
  Admit(Role::kActor, 0);
  EXPECT_FALSE(View(Role::kActor, 0).lag_updates) << "it has no weights yet";
  Beat(Role::kLearner, 0, "learner/version", 100);
  Beat(Role::kActor, 0, "actor/weights_version", 60);
  EXPECT_EQ(View(Role::kActor, 0).lag_updates, 40);
  Beat(Role::kActor, 0, "actor/weights_version", 101);
  EXPECT_EQ(View(Role::kActor, 0).lag_updates, 0);
  EXPECT_FALSE(View(Role::kLearner, 0).lag_updates);
}

TEST_F(RoleStatusReportTest, ExternalActorsAreListedWhileTheyMatter) {
  const auto listed = [&](Duration later) { return Report(later).Roles().back().index; };
  Admit(Role::kActor, 5, true);
  EXPECT_EQ(listed({}), 5);
  EXPECT_TRUE(View(Role::kActor, 5).joined);
  members_.Remove(Role::kActor, 5, 0);
  EXPECT_EQ(listed({}), 0) << "it left without an error";
  members_.RecordFailure(Role::kActor, 5, "its connection ended", 0, kStart);
  EXPECT_EQ(listed(Seconds(299)), 5);
  EXPECT_EQ(listed(Seconds(300)), 0);
  lifecycle_.Stop();
  EXPECT_EQ(listed({}), 0);
}

}  // namespace
}  // namespace troop
