#include "fleet/coordinator/admission_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/version.h"

namespace troop {
namespace {

using testing::HasSubstr;

Config TwoActors(const std::vector<std::string>& external = {}) {
  Config config;
  config.fleet.actors = 2;
  config.replay.shards = 2;
  config.fleet.external_roles = external;
  return config;
}

// A gate with the other parts that it reads.
struct Gate {
  explicit Gate(Config given) : config(std::move(given)) {}
  DesiredRoles desired() const {
    return DesiredRoles({.config = &config, .lifecycle = &lifecycle, .slots = &slots});
  }
  Status Register(const RegisterRequest& request, Role key = Role::kNone) const {
    return admission.CheckRegister(request, key, desired());
  }
  Status Join(const JoinRequest& request, Role key = Role::kNone) const {
    return admission.CheckJoin(request, key, desired());
  }
  Result<std::int32_t> Choose(Role role) const {
    return admission.ChooseIndex(role, desired(), members);
  }
  void Admit(Role role, std::int32_t index, bool joined) {
    members.Admit({.role = role, .index = index, .incarnation = ++incarnation}, "", joined, Time());
  }

  const Config config;
  RunLifecycle lifecycle{&config, 0};
  RoleSlots slots{config};
  Membership members{{.silence_max = Seconds(5)}};
  AdmissionControl admission{
      &config, [](Role role, std::int32_t index) { return "inproc://" + PeerName(role, index); }};
  std::uint64_t incarnation = 0;
};

TEST(AdmissionControlTest, RegistersOnlySlotsOfSameVersion) {
  const Gate gate(TwoActors({"replay"}));
  RegisterRequest request{.role = Role::kActor, .index = 1, .version = kTroopVersion};
  EXPECT_TRUE(gate.Register(request).ok());
  request.index = 2;
  EXPECT_THAT(gate.Register(request).message(), HasSubstr("this run has 2 roles of this kind"));
  request.index = -1;
  EXPECT_TRUE(gate.Register(request).ok()) << "actors may always join";
  request.role = Role::kReplay;
  EXPECT_TRUE(gate.Register(request).ok());
  request.role = Role::kLearner;
  EXPECT_THAT(gate.Register(request).message(), HasSubstr("fleet.external_roles"));
  request.index = -2;
  EXPECT_EQ(gate.Register(request).code(), Code::kInvalidArgument);
  request.version = "99.0";
  EXPECT_EQ(gate.Register(request).code(), Code::kFailedPrecondition);
}

TEST(AdmissionControlTest, KeyRegistersOnlyItsRole) {
  const Gate gate(TwoActors());
  const RegisterRequest request{.role = Role::kLearner, .version = kTroopVersion};
  EXPECT_TRUE(gate.Register(request, Role::kNone).ok()) << "a run without keys";
  EXPECT_TRUE(gate.Register(request, Role::kLearner).ok());
  EXPECT_EQ(gate.Register(request, Role::kActor).code(), Code::kFailedPrecondition);
  EXPECT_EQ(gate.Register(request, Role::kTool).code(), Code::kFailedPrecondition);
}

TEST(AdmissionControlTest, JoinIsRefusedWithFirstReason) {
  Gate gate(TwoActors({"replay"}));
  JoinRequest request{.role = Role::kLearner, .count = 3, .version = "9.9.9", .host = "elsewhere"};
  EXPECT_THAT(gate.Join(request, Role::kActor).message(), HasSubstr("version 9.9.9"));
  request.version = kTroopVersion;
  EXPECT_THAT(gate.Join(request, Role::kActor).message(), HasSubstr("fleet.external_roles"));
  request.role = Role::kReplay;
  EXPECT_THAT(gate.Join(request, Role::kActor).message(), HasSubstr("a key of the role actor"));
  EXPECT_THAT(gate.Join(request).message(), HasSubstr("must be 1 to 2"));
  request.count = 2;
  EXPECT_TRUE(gate.Join(request).ok());
  gate.lifecycle.Stop();
  EXPECT_THAT(gate.Join(request).message(), HasSubstr("needs no more processes"));
}

TEST(AdmissionControlTest, JoinedActorsGetLowestFreeIndexAfterLocalOnes) {
  Gate gate(TwoActors());
  EXPECT_EQ(*gate.Choose(Role::kActor), 2);
  gate.Admit(Role::kActor, 2, true);
  gate.Admit(Role::kActor, 3, true);
  EXPECT_EQ(*gate.Choose(Role::kActor), 4);
  gate.members.Remove(Role::kActor, 2, 0);
  EXPECT_EQ(*gate.Choose(Role::kActor), 2);
  gate.slots.SetActors(3, gate.members.joined_actors());
  EXPECT_EQ(*gate.Choose(Role::kActor), 4) << "2 is a slot of the launcher now";
  EXPECT_EQ(*Gate(TwoActors({"actor"})).Choose(Role::kActor), 0) << "there are no local ones";
}

TEST(AdmissionControlTest, OtherRolesGetLowestEmptySlot) {
  Gate gate(TwoActors({"replay"}));
  gate.Admit(Role::kReplay, 0, true);
  EXPECT_EQ(*gate.Choose(Role::kReplay), 1);
  gate.Admit(Role::kReplay, 1, true);
  EXPECT_EQ(gate.Choose(Role::kReplay).status().code(), Code::kResourceExhausted);
  gate.members.Remove(Role::kReplay, 0, 0);
  EXPECT_EQ(*gate.Choose(Role::kReplay), 0);
}

TEST(AdmissionControlTest, RestartedRoleKeepsItsAddressUnlessMachineChanges) {
  const Gate gate(TwoActors());
  const RegisterRequest local{.role = Role::kReplay, .index = 1};
  const auto listen = [&](RegisterRequest request, const std::string& reach,
                          const MemberRecord* before) {
    request.reach = reach;
    return gate.admission.ListenFor(request, before);
  };
  EXPECT_EQ(listen(local, "", nullptr), "inproc://replay-1");
  EXPECT_EQ(listen(local, "10.0.0.1", nullptr), "tcp://10.0.0.1:0");
  MemberRecord before;
  before.listen = "tcp://10.0.0.1:0";
  EXPECT_EQ(listen(local, "", &before), "tcp://10.0.0.1:0") << "it died before it was bound";
  before.endpoint = "tcp://10.0.0.1:4711";
  EXPECT_EQ(listen(local, "", &before), "tcp://10.0.0.1:4711");
  EXPECT_EQ(listen(local, "10.0.0.1", &before), "tcp://10.0.0.1:4711");
  EXPECT_EQ(listen(local, "10.0.0.2", &before), "tcp://10.0.0.2:0");
}

TEST(AdmissionControlTest, OnlyLearnersOfRunWithKeysShareSecret) {
  Config config = TwoActors();
  EXPECT_EQ(Gate(config).admission.SecretFor(Role::kLearner), "");
  config.security.keys = "keys";
  Gate gate(config);
  const std::string secret = gate.admission.SecretFor(Role::kLearner);
  EXPECT_EQ(secret.size(), 32u);
  EXPECT_EQ(gate.admission.SecretFor(Role::kLearner), secret);
  EXPECT_EQ(gate.admission.SecretFor(Role::kActor), "");
  EXPECT_NE(Gate(config).admission.SecretFor(Role::kLearner), secret);
}

}  // namespace
}  // namespace troop
