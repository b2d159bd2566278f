#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/base/event_history.h"
#include "core/base/node.h"
#include "core/tensor/spec.h"
#include "fleet/config/config.h"
#include "net/control/fleet_member.h"
#include "net/control/issued_incarnations.h"
#include "paramserver/weights/weights_server.h"
#include "replay/service/server.h"

namespace troop {

// A role that only serves requests: binds its service, and reports its endpoint and metrics until
// the run ends. Owner: the node's thread.
class ServiceNode final : public Node {
 public:
  // The service and its hooks.
  struct Duty {
    std::unique_ptr<Service> service;
    std::function<Time(Time)> tick;                // each step; returns the next due time; optional
    std::function<void(Metrics*)> report;          // before each heartbeat
    std::function<void()> drain;                   // once, at the end of the run; optional
    std::function<bool()> drained;                 // true when the role may exit after drain
    std::function<Status()> status;                // a failure ends the role; optional
    std::function<std::string()> blocked{};        // reason for no progress, or empty; optional
    std::shared_ptr<IssuedIncarnations> issued{};  // fencing of callers; null: made from the member
  };
  // Binds duty.service at `listen`. The member outlives the node. Errors: those of Listen.
  static Result<std::unique_ptr<ServiceNode>> Make(Duty duty, Network* network, FleetMember* member,
                                                   const std::string& listen);
  StepStatus Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  explicit ServiceNode(FleetMember* member) : member_(member) {}
  FleetMember* const member_;
  Duty duty_;
  std::optional<IncarnationFilter> service_;  // wraps duty_.service, rejects fenced callers
  std::unique_ptr<Listener> listener_;  // after duty_: unbound before the service is destroyed
  Metrics metrics_;
  bool draining_ = false, ending_ = false;
  Status result_;
};

// Options of one replay shard. `run` (the run folder, used with replay.persist), the executor and
// the member outlive the duty.
struct ReplayDutyOptions {
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;
  Executor* executor = nullptr;
  Storage* run = nullptr;
  EventHistory* history = nullptr;
  FleetMember* member = nullptr;
};
// A replay shard's service.
Result<ServiceNode::Duty> MakeReplayDuty(const Config& config, const EnvSpec& env,
                                         const ReplayDutyOptions& duty);
// The unsharded parameter server, which publishes weights. The member outlives the duty.
Result<ServiceNode::Duty> MakeParameterServerDuty(const Config& config, const EnvSpec& env,
                                                  FleetMember* member);
// An inference server. Network, member and executor outlive the duty.
Result<ServiceNode::Duty> MakeInferenceDuty(const Config& config, const EnvSpec& env,
                                            Network* network, const FleetMember* member,
                                            Executor* executor);

}  // namespace troop
