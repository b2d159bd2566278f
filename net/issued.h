#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "net/control.h"
#include "net/log_gate.h"
#include "net/network.h"

namespace troop {

// Numbers of roles that only the coordinator issues, as a member of the fleet receives them: each
// beat answers with the newest incarnation of every role. A caller whose number lies above it is
// turned away until the coordinator has confirmed that number, so that an invented one fences no
// role. Owner: the node's thread. O(log of 64) a call.
class IssuedNumbers {
 public:
  explicit IssuedNumbers(FleetMember* member) : member_(member) {}
  // Errors: kUnavailable: not issued, as far as is known; the coordinator is asked at once. A
  // caller that it does not confirm is counted, and logged (LogGate). Tools number themselves.
  Status Check(const Origin& caller, Time now);
  // True if this number or a newer one was issued to such a role, kNone: for whatever; if not,
  // asks.
  bool Has(Role role, std::uint64_t number);
  std::uint64_t invented() const { return invented_.number; }

 private:
  using Caller = std::tuple<Role, std::int32_t, std::uint64_t>;
  FleetMember* const member_;
  std::map<Caller, Time> unknown_;  // since when
  LogGate invented_;
  Time next_ask_{};
};

// Passes on to `service` the calls of those whose incarnations were issued.
class IssuedOnly final : public Service {
 public:
  IssuedOnly(Service* service, IssuedNumbers* issued) : service_(service), issued_(issued) {}
  Status CheckOrigin(const Origin& caller, Time now) override {
    return issued_->Check(caller, now);
  }
  void Handle(Message message, Reply reply) override {
    service_->Handle(std::move(message), std::move(reply));
  }
  void PeerChanged(const Origin& peer, PeerState state) override {
    service_->PeerChanged(peer, state);
  }

 private:
  Service* const service_;
  IssuedNumbers* const issued_;
};

}  // namespace troop
