#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Result of a step: call again at once; or at `until` or when a message or a job arrives; or never.
struct StepStatus {
  enum What { kBusy, kIdle, kDone } what = kIdle;
  Time until = kForever;  // kIdle only
  static StepStatus Busy() { return {kBusy, Time{}}; }
  static StepStatus Idle(Time until) { return {kIdle, until}; }
  static StepStatus Done() { return {kDone, kForever}; }
};

// The logic of one role: a state machine with one owner thread.
//
// Invariants: Step never waits, reads no clock, opens no file, starts no thread, and does a bounded
// amount of work (goal: 1 ms). Long work goes through Executor, disk access through Storage,
// messages through net/. So the same node runs as a process, in serial mode, and in the simulator.
class Node {
 public:
  virtual ~Node() = default;
  virtual StepStatus Step(Time now) = 0;
  // Requests a clean shutdown: the node completes pending work and then returns kDone. Idempotent.
  virtual void Drain() = 0;
  // Reason of the end, after Step returned kDone. If not ok, the process exits with an error.
  virtual Status result() const { return Status::Ok(); }
};

// Runs long jobs of one node. A job accesses only its own data until TakeDone returns true.
//   ThreadExecutor: a thread pool, which wakes the host when a job ends.
//   InlineExecutor: runs the job in Submit.
class Executor {
 public:
  using Job = std::uint64_t;  // 0: none
  virtual ~Executor() = default;
  // Starts a job. Errors: kResourceExhausted if too many jobs are queued.
  virtual Result<Job> Submit(std::string_view name, std::function<void()> work) = 0;
  // Returns true once after the job has ended; its writes are then visible. REQUIRES: a job of this
  // executor that was not reported yet.
  virtual bool TakeDone(Job job) = 0;
};

}  // namespace troop
