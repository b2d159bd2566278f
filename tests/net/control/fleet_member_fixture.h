#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "net/control/fleet_member.h"
#include "net/wire/codec.h"

namespace troop {

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

// A member whose coordinator the test plays.
class FleetMemberFixture : public testing::Test {
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

}  // namespace troop
