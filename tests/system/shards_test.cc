// Parameter shards as processes, which die as processes do. The learner is a loop here: it pushes
// gradients that plain loops can repeat.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>

#include "core/base/philox.h"
#include "core/base/version.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "fleet/coordinator/coordinator.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/run/run_directory.h"
#include "net/wire/codec.h"
#include "nn/models/model.h"
#include "paramserver/service/options_from_config.h"
#include "paramserver/service/shard_resolver.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

using Floats = std::vector<float>;

class ShardProcessTest : public testing::Test {
 protected:
  void Begin(int shards, bool backup, SyncMode mode, double save_every_s) {
    config_.name = "shards";
    config_.log.dir = folder_.path();
    config_.env.id = "Catch-v0";
    config_.learner.sync = LearnerSync::kParamServer;
    config_.paramserver.shards = shards;
    config_.paramserver.backup = backup;
    config_.paramserver.mode = mode;
    config_.checkpoint.every_s = save_every_s;
    storage_ = *MakeDiskStorage(RunPath(config_));
    std::filesystem::create_directories(RunPath(config_) + "/logs");
    const EnvSpec env = *FindEnvSpec(config_.env.id, EnvOptionsOf(config_));
    module_ = *MakeNetwork(ModelSetupOf(config_), env);
    map_ = std::make_unique<ShardMap>(*ShardMapFor(config_.paramserver, *module_));
    endpoints_ = *Endpoints::Make(config_);
    network_ = *MakeZmqNetwork();
    learner_network_ = *MakeZmqNetwork();
    coordinator_ = *Coordinator::Make(
        {.config = config_, .run = storage_.get(), .listen = [this](Role role, std::int32_t i) {
           return endpoints_->For(role, i);
         }});
    listener_ = *network_->Listen(endpoints_->For(Role::kCoordinator, 0), coordinator_.get());
    std::vector<FleetRole> roles;
    for (std::int32_t i = 0; i < ParameterServersOf(config_); ++i) {
      roles.push_back({Role::kParamServer, i});
    }
    supervisor_ =
        std::make_unique<Supervisor>(Supervisor::Options{.executable = TROOP_PROGRAM,
                                                         .coordinator = listener_->endpoint(),
                                                         .log_folder = RunPath(config_) + "/logs",
                                                         .config = config_},
                                     roles);
    JoinAsLearner();
  }

  // One turn of everything that lives in this process.
  void Turn() {
    const Time now = clock_.Now();
    network_->Pump(now);
    coordinator_->Step(now);
    for (const Supervisor::Exit& exit : supervisor_->Tick(now, [](FleetRole) { return true; })) {
      coordinator_->OnMemberExit(exit.role.role, exit.role.index, exit.process);
    }
    EXPECT_TRUE(supervisor_->status().ok()) << supervisor_->status().ToString();
    learner_network_->Pump(now);
    if (member_) member_->Poll(now, metrics_);
    if (client_) {
      EXPECT_TRUE(resolver_->Update(client_.get()).ok());
      client_->Poll(now);
    }
    learner_network_->Wait(now, now + Milliseconds(1));
  }
  bool AwaitTurns(const std::function<bool()>& condition, double seconds = 60) {
    const Time end = clock_.Now() + Seconds(seconds);
    while (!condition() && clock_.Now() < end && !HasFailure()) Turn();
    return condition();
  }
  bool InSync() {
    return AwaitTurns([&] {
      const RunView view = coordinator_->View();
      const auto it = view.metrics.find("paramserver/backups");
      return it != view.metrics.end() && it->second.value == double(config_.paramserver.shards);
    });
  }
  bool Pull() {
    if (!client_->RequestPull(clock_.Now()).ok()) return false;
    std::optional<ShardClient::Pulled> pulled;
    const bool came = AwaitTurns([&] {
      if (!pulled) pulled = client_->TakePull();
      return pulled.has_value() || !client_->error().ok();
    });
    EXPECT_TRUE(client_->error().ok()) << client_->error().ToString();
    if (!came || !pulled) return false;
    version_ = pulled->version;
    value_.assign(pulled->value.begin(), pulled->value.end());
    return true;
  }
  void Push(std::uint64_t step) {
    ASSERT_TRUE(AwaitTurns([&] { return client_->CanPush(); })) << client_->error().ToString();
    const Status status = client_->Push(clock_.Now(), GradientAt(value_, step), kRate, 1);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  static Floats GradientAt(std::span<const float> value, std::uint64_t step) {
    Rng rng({.run_seed = 2, .purpose = Purpose::kTest, .index = step});
    Floats gradient(value.begin(), value.end());
    for (float& g : gradient) g += 0.1f * rng.UniformF32();
    return gradient;
  }
  Floats Plain(std::uint64_t steps) const {
    auto optimizer = *MakeOptimizer(config_.optimizer, map_->parameters());
    Floats value(std::size_t(map_->parameters()));
    InitParameters(*module_, std::uint64_t(config_.seed), value);
    for (std::uint64_t t = 0; t < steps; ++t) {
      optimizer->Step(GradientAt(value, t), 1, kRate, value);
    }
    return value;
  }
  // Kills the current primary of this shard with kill -9.
  void KillPrimary(std::int32_t shard) {
    const std::int32_t seat = member_->Shard(shard).primary;
    for (const Supervisor::Running& running : supervisor_->running()) {
      if (running.role.index == seat) kill(running.process, SIGKILL);
    }
  }

  static constexpr float kRate = 0.01f;
  TempFolder folder_;
  Config config_;
  const SystemClock clock_;
  std::unique_ptr<Storage> storage_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<ShardMap> map_;
  std::unique_ptr<Endpoints> endpoints_;
  std::unique_ptr<Network> network_, learner_network_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<ShardResolver> resolver_;
  std::unique_ptr<ShardClient> client_;
  Metrics metrics_;
  Floats value_;
  std::uint64_t version_ = 0;

 private:
  void JoinAsLearner() {
    auto channel = *learner_network_->Connect(
        listener_->endpoint(), {.origin = {.role = Role::kTool, .index = 7, .incarnation = 1}});
    Message request{
        .type = MessageType::kRegister,
        .body = EncodeBody(RegisterRequest{.role = Role::kLearner, .version = kTroopVersion})};
    const Ticket ticket = *channel->Send(request, clock_.Now() + Seconds(60));
    std::optional<Result<Message>> answer;
    ASSERT_TRUE(AwaitTurns([&] {
      if (!answer) answer = channel->Poll(ticket);
      return answer.has_value();
    }));
    ASSERT_TRUE(answer->ok()) << answer->status().ToString();
    const auto reply = DecodeBody<RegisterReply>((*answer)->body);
    const Origin origin{.role = Role::kLearner, .incarnation = reply->incarnation};
    member_ = std::make_unique<FleetMember>(
        *learner_network_->Connect(listener_->endpoint(), {.origin = origin}),
        FleetMember::Options{.role = Role::kLearner, .incarnation = reply->incarnation});
    resolver_ =
        std::make_unique<ShardResolver>(learner_network_.get(), member_.get(), *map_, origin);
    ASSERT_TRUE(AwaitTurns([&] {
      auto channels = *resolver_->Connect();
      if (channels.empty()) return false;
      client_ = std::make_unique<ShardClient>(resolver_->map(), std::move(channels),
                                              ShardClientOptionsFor(config_.paramserver));
      return true;
    }));
  }
};

TEST_F(ShardProcessTest, LosesNoAcknowledgedPushWhenPrimaryIsKilled) {
  Begin(2, true, SyncMode::kBsp, 0);
  Rng rng({.run_seed = 1, .purpose = Purpose::kTest});
  std::uint64_t step = 0;
  for (int kills = 0; kills < 4; ++kills) {
    ASSERT_TRUE(InSync());
    for (int i = 0; i < 20; ++i, ++step) {
      ASSERT_TRUE(Pull());
      ASSERT_EQ(version_, step + 1);
      Push(step);
      if (i != 10) continue;
      for (std::uint32_t turns = rng.Below(4); turns > 0; --turns) Turn();
      KillPrimary(kills % 2);
      const Time then = clock_.Now();
      ASSERT_TRUE(Pull());
      RecordProperty("takeover_ms_" + std::to_string(kills),
                     std::to_string(1e3 * ToSeconds(clock_.Now() - then)));
    }
  }
  ASSERT_TRUE(Pull());
  EXPECT_EQ(client_->refused(), 0u);
  EXPECT_EQ(std::memcmp(value_.data(), Plain(step).data(), 4 * value_.size()), 0);
}

TEST_F(ShardProcessTest, RestoresFromSnapshotWithoutBackup) {
  Begin(2, false, SyncMode::kBsp, 0.1);
  std::uint64_t step = 0;
  const auto learn = [&](int steps) {
    for (int i = 0; i < steps && !HasFailure(); ++i, ++step) {
      ASSERT_TRUE(Pull());
      Push(step);
    }
  };
  learn(20);
  const std::string saved = RunPath(config_) + "/paramserver/shard-0";
  ASSERT_TRUE(AwaitTurns([&] { return std::filesystem::exists(saved); }));
  KillPrimary(0);
  learn(20);
  ASSERT_TRUE(Pull());
  EXPECT_GE(version_, 21u);  // what was saved may be older than what it had
  learn(5);
  ASSERT_TRUE(Pull());
  const std::uint64_t before = version_;
  learn(1);
  ASSERT_TRUE(Pull());
  EXPECT_EQ(version_, before + 1);
}

}  // namespace
}  // namespace troop
