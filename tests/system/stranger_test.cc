// A run without keys, and a stranger that speaks for its roles.
#include "net/control/heartbeat_request.h"
#include "net/network.h"
#include "net/wire/codec.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

class StrangerTest : public SystemTest {
 protected:
  // Returns the answer's code for a call with this origin; kUnavailable without an answer within
  // 0.5 s.
  Code Say(const std::string& endpoint, const Origin& origin) {
    const SystemClock clock;
    auto channel = network_->Connect(endpoint, {.origin = origin});
    if (!channel.ok()) return channel.status().code();
    Message message{.type = MessageType::kMemberHeartbeat, .body = EncodeBody(HeartbeatRequest{})};
    const auto ticket = (*channel)->Send(message, clock.Now() + Milliseconds(500));
    if (!ticket.ok()) return ticket.status().code();
    for (;;) {
      network_->Pump(clock.Now());
      if (auto answer = (*channel)->Poll(*ticket)) {
        const Code code = answer->status().code();
        return code == Code::kDeadlineExceeded ? Code::kUnavailable : code;
      }
      network_->Wait(clock.Now(), clock.Now() + Milliseconds(20));
    }
  }
  std::unique_ptr<Network> network_ = *MakeZmqNetwork();
};

// One hello with the largest incarnation there is kept the true role out, however often it was
// started again, until the run gave up.
TEST_F(StrangerTest, UnissuedIncarnationFencesNoRole) {
  const auto troop = Train({"run.total_steps=1e9"});
  ASSERT_TRUE(AwaitSteps(2000)) << troop->output();
  const std::string coordinator = Coordinator();
  const std::string folder = coordinator.substr(0, coordinator.rfind('/') + 1);
  constexpr std::uint64_t kLarge = ~std::uint64_t{0};
  for (const Role role : {Role::kActor, Role::kReplay, Role::kLearner, Role::kEvaluator}) {
    EXPECT_EQ(Say(coordinator, {.role = role, .incarnation = kLarge}), Code::kAborted);
  }
  for (const char* service : {"replay-0", "paramserver-0"}) {
    for (const Role role : {Role::kActor, Role::kLearner}) {
      EXPECT_EQ(Say(folder + service + ".sock", {.role = role, .incarnation = kLarge}),
                Code::kUnavailable);
    }
    EXPECT_TRUE(Await([&] {
      return FileHas(run() + "/logs/" + service + ".log", "incarnation 18446744073709551615");
    })) << service;
  }
  EXPECT_TRUE(AwaitSteps(Steps() + 3000)) << troop->output();
  troop->Signal(SIGTERM);
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_EQ(LauncherLog().find("restart 1 of"), std::string::npos) << LauncherLog();
}

}  // namespace
}  // namespace troop
