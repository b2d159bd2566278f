#pragma once

#include <functional>
#include <map>
#include <string>

#include "net/control/fleet_member.h"
#include "net/control/heartbeat_request.h"
#include "net/control/peer_info.h"
#include "net/transport/sim_network.h"
#include "net/wire/codec.h"

namespace troop {

// Fake coordinator that answers the heartbeats of one role as the test prescribes, and records the
// last one.
class CoordinatorFake final : public Service {
 public:
  explicit CoordinatorFake(SimHub* hub) : network_(hub->MakeNetwork()) {
    listener_ = *network_->Listen("inproc://coordinator", this);
  }
  // on_beat: called with each heartbeat, may change the reply. `reply`: the answer to the next
  // heartbeats.
  HeartbeatReply reply{.issued = std::vector<std::uint64_t>(int(Role::kTool), 1 << 20)};
  std::function<void(const HeartbeatRequest&, HeartbeatReply*)> on_beat;
  HeartbeatRequest told;
  int beats = 0;

  void AddPeer(Role role, const std::string& endpoint, std::uint64_t incarnation) {
    reply.peers[PeerName(role, 0)] = {endpoint, incarnation};
  }
  std::unique_ptr<FleetMember> Member(Network* network, Role role, std::uint64_t incarnation) {
    auto channel = network->Connect("inproc://coordinator",
                                    {.origin = {.role = role, .incarnation = incarnation}});
    return std::make_unique<FleetMember>(
        std::move(*channel), FleetMember::Options{.role = role, .incarnation = incarnation});
  }
  bool Pump(Time now) { return network_->Pump(now); }

  void Handle(Message message, Reply answer) override {
    const auto beat = DecodeBody<HeartbeatRequest>(message.body);
    if (!beat.ok()) return answer.Fail(beat.status());
    told = *beat;
    ++beats;
    if (on_beat) on_beat(told, &reply);
    answer.Send({.type = MessageType::kMemberHeartbeatReply, .body = EncodeBody(reply)});
  }

 private:
  std::unique_ptr<Network> network_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace troop
