#pragma once

#include <memory>
#include <string>

#include "actors/evaluator_node.h"
#include "core/base/event_history.h"
#include "core/base/executor.h"
#include "core/base/node.h"
#include "core/storage/storage.h"
#include "fleet/config/config.h"
#include "learners/sync/rendezvous.h"
#include "net/control/fleet_member.h"
#include "net/control/phase.h"
#include "net/control/register_request.h"

namespace troop {

// Checks that the environment `here` has the same shape and code as the coordinator's (`there`).
// `host`: the machine of `here`. Errors: kInvalidArgument, with both values.
Status CheckSameEnv(const EnvSpec& here, const EnvSpec& there, const std::string& host);

// The life of one role: registers with the coordinator, receives incarnation and config, then runs
// the role's node until it ends. Identical in a process, in serial mode and in the simulator.
// Owner: the node's thread.
class RoleNode final : public Node {
 public:
  struct Options {
    Role role = Role::kNone;
    std::int32_t index = 0;      // -1: external, the coordinator assigns the index
    std::string advertise_host;  // external: address of this machine for other machines
    std::string coordinator;     // endpoint
    std::string host;            // for status
    std::int64_t process = 0;
    std::uint64_t attempt = 1;        // larger in each restarted process of this role
    Duration join_max = Seconds(30);  // time limit for the coordinator's reply
    Duration heartbeat_every{};       // heartbeat interval; 0: FleetMember's default
    Network* network = nullptr;
    Executor* executor = nullptr;      // one thread
    Rendezvous* rendezvous = nullptr;  // rendezvous of learners that share one thread; else null
    // Opens the run folder, once the config is known; the storage outlives the node.
    std::function<Result<Storage*>(const Config&)> storage;
    // Called once config and index are known; may be empty.
    std::function<void(const Config&, std::int32_t)> joined;
    EventHistory* history = nullptr;
  };
  explicit RoleNode(Options options) : options_(std::move(options)) {}

  StepStatus Step(Time now) override;
  void Drain() override;
  Status result() const override { return result_; }
  bool playing() const { return node_ != nullptr; }  // registered; the role's node runs
  // True if the run was stopped before it was done.
  bool sent_away() const {
    return member_ != nullptr && member_->stop() && member_->phase() != Phase::kDone;
  }
  // True if the coordinator did not reply in time: the run has ended, or is unreachable.
  bool unanswered() const { return unanswered_; }
  // The resolved config, after registration.
  const Config& config() const { return config_; }

 private:
  Status Ask(Time now);
  StepStatus SayEnd(Time now);
  Status Join(const RegisterReply& reply);
  Status StartLoading(const RegisterReply& reply);
  StepStatus Load(Time now);
  Status Play(const RegisterReply& reply);
  Result<std::unique_ptr<EvaluatorNode>> MakeReviewEvaluator(const EnvSpec& problem);
  Result<std::unique_ptr<Node>> MakeNode(const RegisterReply& reply);

  const Options options_;
  std::int32_t index_ = 0;
  std::unique_ptr<Channel> registration_;
  Ticket ticket_ = 0;
  std::optional<Time> give_up_;
  Config config_;
  std::unique_ptr<FleetMember> member_;
  // Data that a job reads before the node is made; the job may outlive this object.
  struct Loaded {
    Status status;
    std::shared_ptr<const void> data;
  };
  struct Loading {
    RegisterReply reply;
    Executor::Job job = 0;
    Time give_up{};
    std::shared_ptr<Loaded> loaded;
  };
  std::optional<Loading> loading_;
  std::unique_ptr<Node> node_;
  bool draining_ = false, unanswered_ = false;
  std::optional<Time> say_until_;  // set while the final heartbeat is sent: its deadline
  Status result_;
};

}  // namespace troop
