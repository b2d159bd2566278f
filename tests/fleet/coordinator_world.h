#pragma once

// A coordinator and its callers, which the test plays message by message.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "core/base/version.h"
#include "core/storage/memory_storage.h"
#include "fleet/coordinator/coordinator.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"

namespace troop {

inline constexpr std::int64_t kProcess = 1;  // of every role

// Talks to a coordinator as the roles do, message by message.
class CoordinatorWorld {
 public:
  explicit CoordinatorWorld(Config config, std::int64_t resume_steps = 0)
      : config_(std::move(config)), resume_steps_(resume_steps) {
    Restart();
  }
  // A new process on the same run folder.
  void Restart() {
    listener_.reset();
    coordinator_.reset();
    hub_ = MakeSimHub();
    network_ = hub_->MakeNetwork();
    auto made = Make();
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    coordinator_ = std::move(*made);
    listener_ = *network_->Listen("inproc://coordinator", coordinator_.get());
  }
  Result<std::unique_ptr<Coordinator>> Make() {
    return Coordinator::Make(
        {.config = config_,
         .run = run_.get(),
         .listen = [](Role role,
                      std::int32_t index) { return "inproc://" + PeerName(role, index); },
         .resume_steps = resume_steps_});
  }
  template <class Reply, class Body>
  Result<Reply> Call(MessageType type, const Body& body, const Origin& origin) {
    const auto client = hub_->MakeNetwork();
    const auto channel = *client->Connect("inproc://coordinator", {.origin = origin});
    Message message{.type = type, .body = EncodeBody(body)};
    const Ticket ticket = *channel->Send(message, kForever);
    for (int i = 0; i < 10; ++i) {
      client->Pump(now_);
      network_->Pump(now_);
      if (auto answer = channel->Poll(ticket)) {
        if (!answer->ok()) return answer->status();
        return DecodeBody<Reply>((*answer)->body);
      }
    }
    return Unavailable("no answer");
  }
  Result<RegisterReply> Register(Role role, std::int32_t index = 0,
                                 const std::string& version = kTroopVersion) {
    return Call<RegisterReply>(
        MessageType::kRegister,
        RegisterRequest{.role = role, .index = index, .version = version, .process = kProcess},
        {.role = Role::kTool, .index = int(role) * 1000 + index, .incarnation = ++calls_});
  }
  std::uint64_t Join(Role role, std::int32_t index = 0) {
    const auto reply = Register(role, index);
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    return reply->incarnation;
  }
  Result<HeartbeatReply> Beat(Role role, std::int32_t index, std::uint64_t incarnation,
                              const HeartbeatRequest& beat = {}) {
    return Call<HeartbeatReply>(MessageType::kMemberHeartbeat, beat,
                                {.role = role, .index = index, .incarnation = incarnation});
  }
  HeartbeatReply ActorBeat(std::int32_t index, std::uint64_t incarnation, std::int64_t done,
                           std::int64_t wanted) {
    const auto reply =
        Beat(Role::kActor, index, incarnation, {.steps_done = done, .steps_wanted = wanted});
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    return *reply;
  }
  // Joins as an external role whose process has this number.
  Result<RegisterReply> JoinAsActor(std::int64_t process) { return JoinAs(Role::kActor, process); }
  Result<RegisterReply> JoinAs(Role role, std::int64_t process, const std::string& reach = "") {
    return Call<RegisterReply>(MessageType::kRegister,
                               RegisterRequest{.role = role,
                                               .index = -1,
                                               .version = kTroopVersion,
                                               .process = process,
                                               .host = "elsewhere",
                                               .reach = reach},
                               {.role = Role::kTool, .index = 77, .incarnation = ++calls_});
  }
  void Advance(Duration d) {
    now_ += d;
    coordinator_->Step(now_);
  }
  Coordinator& coordinator() { return *coordinator_; }
  Storage* run() { return run_.get(); }

 private:
  const Config config_;
  const std::int64_t resume_steps_;
  std::unique_ptr<Storage> run_ = MakeMemoryStorage();
  std::unique_ptr<SimHub> hub_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Listener> listener_;
  std::uint64_t calls_ = 0;
  Time now_{Seconds(10)};
};

inline Config Budget(double steps, std::int64_t actors = 2) {
  Config config;
  config.run.total_steps = steps;
  config.fleet.actors = actors;
  return config;
}

}  // namespace troop
