#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/config.h"
#include "core/history.h"
#include "core/node.h"
#include "core/spec.h"
#include "net/control.h"
#include "net/issued.h"
#include "paramserver/server.h"
#include "replay/server.h"

namespace troop {

// A role that only answers: binds its service and reports its endpoint and metrics until the run
// ends. Owner: the node's thread.
class ServiceNode final : public Node {
 public:
  struct Duty {
    std::unique_ptr<Service> service;
    std::function<Time(Time)> tick;           // at each step, and when it says; may be empty
    std::function<void(Metrics*)> report;     // before each beat
    std::function<void()> drain;              // once, at the end; may be empty
    std::function<bool()> drained;            // whether it may leave then
    std::function<Status()> status;           // not ok: it can't go on; may be empty
    std::function<std::string()> blocked{};   // why it makes no progress; may be empty
    std::shared_ptr<IssuedNumbers> issued{};  // empty: made of the member
  };
  static Result<std::unique_ptr<ServiceNode>> Make(Duty duty, Network* network, FleetMember* member,
                                                   const std::string& listen);
  Turn Step(Time now) override;
  void Drain() override { draining_ = true; }
  Status result() const override { return result_; }

 private:
  explicit ServiceNode(FleetMember* member) : member_(member) {}
  FleetMember* const member_;
  Duty duty_;
  std::optional<IssuedOnly> service_;   // the duty's
  std::unique_ptr<Listener> listener_;  // after duty_: unbound before the service goes
  Metrics metrics_;
  bool draining_ = false, ending_ = false;
  Status result_;
};

// One shard of the replay. `run`: the run's folder, where it is kept if the config says so; it and
// the executor outlive the duty.
struct ReplayDutyOptions {
  std::int32_t index = 0;
  std::uint64_t incarnation = 0;
  Executor* executor = nullptr;
  Storage* run = nullptr;
  History* history = nullptr;
  FleetMember* member = nullptr;  // outlives the duty
};
Result<ServiceNode::Duty> MakeReplayDuty(const Config& config, const EnvSpec& env,
                                         const ReplayDutyOptions& duty);
// The member outlives the duty.
Result<ServiceNode::Duty> MakeParameterServerDuty(const Config& config, const EnvSpec& env,
                                                  FleetMember* member);
// The three outlive the duty.
Result<ServiceNode::Duty> MakeInferenceDuty(const Config& config, const EnvSpec& env,
                                            Network* network, const FleetMember* member,
                                            Executor* executor);

}  // namespace troop
