#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/nccl.h"
#include "core/node.h"
#include "learners/group_round.h"
#include "learners/learner_lobby.h"
#include "net/control.h"

namespace troop {

// The learners of a run as ranks in step. Finds those that are there by the coordinator's list,
// makes them a group, gives them one state, and does all of it anew when one dies, hangs, comes or
// goes. For those who are missing it waits as long as a restart takes; then who is there goes on.
// Owner: the node's thread; the group itself belongs to the jobs.
class LearnerGroup {
 public:
  struct Options {
    int learners = 1;            // until the coordinator has said how many there are by now
    Duration wait = Seconds(5);  // for those who are missing
    // Learners that have a model together, each its part: all are waited for, and none goes on
    // without the others.
    int parts = 1;
    // Of parts: the algorithm's state as the newest checkpoint has it, or a new run's. In a job.
    std::function<Status()> go_back;
    // Of parts: this model's alone, whose parts get a state with each update; -1: all models.
    int model = -1;
    // Gradients on devices are summed there, where all learners have them there; nullopt: never.
    std::optional<NcclOptions> nccl;
    LearnerLobby* lobby = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;
    Algorithm* algorithm = nullptr;
  };
  explicit LearnerGroup(const Options& options) : options_(options) {}

  // REQUIRES: no job has the group, or it is in step.
  void Poll(Time now);
  Time next_poll() const { return next_poll_; }
  // All have the same state: rounds may be made. Else nullptr.
  Collective* in_step() const { return state_ == State::kInStep ? group_.get() : nullptr; }
  // Of them, those who have the same part of the model; nullptr: all have the whole.
  Collective* same_part() const { return axes_.same_part.get(); }
  // Of the same ranks, for device tensors; nullptr: gradients go through the host.
  Collective* devices() const { return axes_.devices.get(); }
  // A job changes the algorithm's state.
  bool joining() const { return state_ == State::kJoining; }
  // A learner waits for a new group: the one in step is to end at the next round. Thread safe.
  bool wanted() const { return regroup_; }
  // What no retry mends.
  const Status& failure() const { return failure_; }
  void Regroup() { regroup_ = true; }
  // What a round said of the group, or that it was ended because it was wanted().
  // REQUIRES: no job has it any more.
  void Ended(const Status& why);
  // Of the group in step, or the last one.
  bool leads() const { return leads_; }
  int size() const { return size_; }
  std::uint64_t generation() const { return generation_; }

 private:
  enum class State { kApart, kMeeting, kJoining, kInStep };
  // Groups of some of the ranks, or for other tensors. Where ranks have parts of the model rank r
  // has part r % parts.
  struct Axes {
    std::unique_ptr<Collective> same_part, same_model;
    // Over NCCL: of those who agree on gradients, and of same_model.
    std::unique_ptr<Collective> devices, model_devices;
  };
  struct JoinJob {
    Executor::Job id = 0;
    Status status;
    std::unique_ptr<Collective> group;
    Axes axes;
    bool hopeless = false;  // no retry mends it
  };
  struct Seat {
    std::uint64_t incarnation = 0;
    std::string address;
    bool operator==(const Seat&) const = default;
  };

  int learners() const;
  void Open(Time now);
  // Who waits for a group, ourselves among them, by index; whether those are all.
  std::vector<Seat> Present(bool* all) const;
  void Meet(Time now);
  void Join();
  Status BecomeParts(JoinJob* job) const;
  Status JoinDevices(JoinJob* job) const;
  Status MakeDeviceGroup(Collective* from, std::unique_ptr<Collective>* made) const;
  bool has_parts() const { return options_.parts > 1 && options_.model < 0; }
  void CollectJoin(Time now);
  void Enter(Status status);

  const Options options_;
  State state_ = State::kApart;
  std::string address_;             // ours
  std::set<std::string> used_up_;   // addresses of groups that were tried
  std::vector<Seat> seen_, seats_;  // as of the last look; of the group
  Time opened_{}, seen_since_{}, retry_{}, next_ask_{}, next_look_{};
  std::unique_ptr<JoinJob> join_;
  std::unique_ptr<StateExchange> exchange_;  // where nobody waits
  Time exchanging_since_{};
  std::unique_ptr<Collective> group_;
  Axes axes_;
  std::vector<Executor::Job> left_;  // that end groups on devices
  std::uint64_t generation_ = 0;
  std::atomic<bool> regroup_ = false;
  Status failure_;
  bool leads_ = false;
  int size_ = 1;
  Time next_poll_ = kForever;
};

}  // namespace troop
