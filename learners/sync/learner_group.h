#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/nccl/nccl.h"
#include "core/base/node.h"
#include "learners/sync/allreduce_step.h"
#include "learners/sync/rendezvous.h"
#include "net/control/fleet_member.h"

namespace troop {

// The learners of a run as a synchronous group of ranks. It finds the registered learners in the
// coordinator's member list, forms a group, gives all ranks one state, and repeats this when a
// learner dies, hangs, joins or leaves. It waits for missing learners as long as a restart takes,
// then continues with those present. Owner: the node's thread; the group itself belongs to the
// jobs.
class LearnerGroup {
 public:
  struct Options {
    int learners = 1;            // until the coordinator reports the current number
    Duration wait = Seconds(5);  // for missing learners
    // Tensor-parallel learners per model. If above 1, all learners must be present.
    int parts = 1;
    // With tensor parallelism: loads the state of the newest checkpoint, or of a new run. Runs in a
    // job.
    std::function<Status()> go_back;
    // With tensor parallelism: only this model's parts form the group, and receive a state with
    // each update; -1: the parts of all models.
    int model = -1;
    // All-reduce device gradients by NCCL, if all learners have them; nullopt: never.
    std::optional<NcclOptions> nccl;
    Rendezvous* rendezvous = nullptr;
    FleetMember* member = nullptr;
    Executor* executor = nullptr;
    Algorithm* algorithm = nullptr;  // with parts > 1: a TensorParallelMember
  };
  explicit LearnerGroup(const Options& options);

  // Advances the state machine. REQUIRES: no job uses the group, or the group is formed.
  void Poll(Time now);
  Time next_poll() const { return next_poll_; }
  // The group while all ranks have the same state, so that rounds may run; otherwise nullptr.
  Collective* in_step() const { return state_ == State::kInStep ? group_.get() : nullptr; }
  // Its ranks that hold the same part of the model; nullptr: every rank holds the whole model.
  Collective* same_part() const { return axes_.same_part.get(); }
  // Device group of these ranks; nullptr: gradients go through the host.
  Collective* devices() const { return axes_.devices.get(); }
  // True while a job changes the algorithm's state.
  bool joining() const { return state_ == State::kJoining; }
  // True if a learner waits for a new group, so that the current one must end at the next round.
  // Thread-safe.
  bool wanted() const { return regroup_; }
  // An error that a retry does not fix.
  const Status& failure() const { return failure_; }
  // Requests a new group after the current round.
  void Regroup() { regroup_ = true; }
  // Drops the group. why: the error of a round, or Aborted because of wanted(). REQUIRES: no job
  // uses the group.
  void Ended(const Status& why);
  // True on rank 0. These three describe the current group, or the last one.
  bool is_leader() const { return is_leader_; }
  int size() const { return size_; }
  std::uint64_t generation() const { return generation_; }

 private:
  enum class State { kApart, kMeeting, kJoining, kInStep };
  // Subgroups, and groups for device tensors. With tensor parallelism rank r holds part r % parts.
  struct Axes {
    std::unique_ptr<Collective> same_part, same_model;
    // Over NCCL: the ranks that all-reduce gradients, and those of same_model.
    std::unique_ptr<Collective> devices, model_devices;
    // The ranks that share a batch, for BatchPartition::SetGroup.
    std::unique_ptr<Collective> batch;
  };
  struct JoinJob {
    Executor::Job id = 0;
    Status status;
    std::unique_ptr<Collective> group;
    Axes axes;
    bool hopeless = false;  // a retry does not fix it
  };
  // A learner as a candidate rank.
  struct Slot {
    std::uint64_t incarnation = 0;
    std::string address;
    bool operator==(const Slot&) const = default;
  };

  int learners() const;
  void Open(Time now);
  // Learners that wait for a group, including this one, in order of their index. *all: none is
  // missing.
  std::vector<Slot> Present(bool* all) const;
  // The steps: compare member lists until they are stable, then join in a job.
  void Meet(Time now);
  void Join();
  // Parts of a Join job: subgroups with one state, and device groups.
  Status BecomeParts(JoinJob* job) const;
  Status JoinDevices(JoinJob* job) const;
  Status JoinBatch(JoinJob* job) const;
  Status MakeDeviceGroup(Collective* from, std::unique_ptr<Collective>* made) const;
  bool has_parts() const { return options_.parts > 1 && options_.model < 0; }
  void ReduceOnDevice(bool there) const;
  void CollectJoin(Time now);
  void Enter(Status status);

  const Options options_;
  // Interfaces of options_.algorithm; nullptr: not supported.
  DeviceGradient* const device_gradient_;
  TensorParallelMember* const member_;
  State state_ = State::kApart;
  std::string address_;             // this learner's
  std::set<std::string> used_up_;   // addresses of groups that were tried
  std::vector<Slot> seen_, slots_;  // at the last poll; in the group
  Time opened_{}, seen_since_{}, retry_{}, next_ask_{}, next_look_{};
  std::unique_ptr<JoinJob> join_;
  std::unique_ptr<StateExchange> exchange_;  // if the rendezvous does not wait()
  Time exchanging_since_{};
  std::unique_ptr<Collective> group_;
  Axes axes_;
  std::vector<Executor::Job> left_;  // jobs that destroy device groups
  std::uint64_t generation_ = 0;
  std::atomic<bool> regroup_ = false;
  Status failure_;
  bool is_leader_ = false;
  int size_ = 1;
  Time next_poll_ = kForever;
};

}  // namespace troop
