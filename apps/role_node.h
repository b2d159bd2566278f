#pragma once

#include <memory>
#include <string>

#include "actors/evaluator_node.h"
#include "core/config.h"
#include "core/executor.h"
#include "core/history.h"
#include "core/node.h"
#include "core/storage.h"
#include "learners/learner_lobby.h"
#include "net/control.h"

namespace troop {

// Refuses an environment of another shape or other code than the coordinator's, naming both.
// Errors: kInvalidArgument. `host`: whose it is.
Status CheckSameEnv(const EnvSpec& here, const EnvSpec& there, const std::string& host);

// One role from its first word to its last: registers with the coordinator, gets incarnation and
// config, becomes the role's own node. The same in a process, in serial mode and in the simulator.
// Owner: the node's thread.
class RoleNode final : public Node {
 public:
  struct Options {
    Role role = Role::kNone;
    std::int32_t index = 0;   // -1: of one from elsewhere, whose index the coordinator gives
    std::string reach;        // of one from elsewhere: its machine's address for others
    std::string coordinator;  // endpoint
    std::string host;         // for status
    std::int64_t process = 0;
    std::uint64_t attempt = 1;        // grows over the processes that play this role
    Duration join_max = Seconds(30);  // gives up when the coordinator doesn't answer
    Duration beat_every{};            // 0: as FleetMember has it
    Network* network = nullptr;
    Executor* executor = nullptr;   // one thread
    LearnerLobby* lobby = nullptr;  // of a learner that shares its thread with others
    // The run's folder, once the config is known; outlives the node.
    std::function<Result<Storage*>(const Config&)> storage;
    // Once config and index are known; may be empty.
    std::function<void(const Config&, std::int32_t)> joined;
    History* history = nullptr;
  };
  explicit RoleNode(Options options) : options_(std::move(options)) {}

  Turn Step(Time now) override;
  void Drain() override;
  Status result() const override { return result_; }
  bool playing() const { return node_ != nullptr; }  // it became the role's own node
  // The run was stopped before it was done.
  bool sent_away() const {
    return member_ != nullptr && member_->stop() && member_->phase() != Phase::kDone;
  }
  // The coordinator did not answer for too long: its run has ended, or can't be reached.
  bool unanswered() const { return unanswered_; }
  // Joined: the resolved config.
  const Config& config() const { return config_; }

 private:
  Status Ask(Time now);
  Turn SayEnd(Time now);
  Status Join(const RegisterReply& reply);
  Result<std::unique_ptr<EvaluatorNode>> MakeReviewEvaluator(const EnvSpec& problem);
  Result<std::unique_ptr<Node>> MakeNode(const RegisterReply& reply);

  const Options options_;
  std::int32_t index_ = 0;
  std::unique_ptr<Channel> registration_;
  Ticket ticket_ = 0;
  std::optional<Time> give_up_;
  Config config_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<Node> node_;
  bool draining_ = false, unanswered_ = false;
  std::optional<Time> say_until_;  // until then the last beat is sent: this role ends
  Status result_;
};

}  // namespace troop
