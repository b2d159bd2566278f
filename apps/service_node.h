#pragma once

#include <functional>
#include <memory>

#include "core/config.h"
#include "core/node.h"
#include "core/spec.h"
#include "net/control.h"
#include "paramserver/server.h"
#include "replay/server.h"

namespace troop {

// A role that only answers: binds its service and reports its endpoint and metrics until the run
// ends. Owner: the node's thread.
class ServiceNode final : public Node {
 public:
  struct Duty {
    std::unique_ptr<Service> service;
    std::function<void(Time)> tick;        // at each step; may be empty
    std::function<void(Metrics*)> report;  // before each beat
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
  std::unique_ptr<Listener> listener_;  // after duty_: unbound before the service goes
  Metrics metrics_;
  bool draining_ = false;
  Status result_;
};

ReplayServer::Options ReplayOptionsFor(const Config& config, const EnvSpec& env);
Result<ServiceNode::Duty> MakeReplayDuty(const Config& config, const EnvSpec& env,
                                         std::uint64_t incarnation);
Result<ServiceNode::Duty> MakeParameterServerDuty(const Config& config, const EnvSpec& env);

}  // namespace troop
