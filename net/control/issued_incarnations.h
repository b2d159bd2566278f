#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "core/base/log_rate_limit.h"
#include "net/control/fleet_member.h"
#include "net/network.h"

namespace troop {

// Validates incarnations, which only the coordinator issues: each heartbeat reply contains the
// newest incarnation of every role. A caller with a higher number is rejected until the coordinator
// has confirmed it, so that an invented number fences no role. Owner: the node's thread. O(log 64)
// per call.
class IssuedIncarnations {
 public:
  explicit IssuedIncarnations(FleetMember* member) : member_(member) {}
  // Checks the incarnation of a caller; tools pass, because they choose their own. Errors:
  // kUnavailable if it is not known to be issued; a heartbeat is then sent early to find out.
  // Callers that stay unconfirmed are counted and logged (LogRateLimit).
  Status Check(const Origin& caller, Time now);
  // True if this number or a newer one was issued to the role (kNone: for any purpose). If not, a
  // heartbeat is sent early.
  bool Has(Role role, std::uint64_t number);
  std::uint64_t invented() const { return invented_.number; }

 private:
  using Caller = std::tuple<Role, std::int32_t, std::uint64_t>;
  FleetMember* const member_;
  std::map<Caller, Time> unknown_;  // time of the first attempt
  LogRateLimit invented_;
  Time next_ask_{};
};

// Forwards to `service` only calls of callers with issued incarnations.
class IncarnationFilter final : public Service {
 public:
  IncarnationFilter(Service* service, IssuedIncarnations* issued)
      : service_(service), issued_(issued) {}
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
  IssuedIncarnations* const issued_;
};

}  // namespace troop
