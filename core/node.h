#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/time.h"

namespace troop {

// What a node says after a step: call me again at once, or when `until` comes or a message or a job
// arrives, or never.
struct Turn {
  enum What { kBusy, kIdle, kDone } what = kIdle;
  Time until = kForever;  // kIdle only
  static Turn Busy() { return {kBusy, Time{}}; }
  static Turn Idle(Time until) { return {kIdle, until}; }
  static Turn Done() { return {kDone, kForever}; }
};

// The logic of one role: a state machine with one owner thread.
// Invariants: Step never waits, reads no clock, opens no file, starts no thread, and does a bounded
// amount of work (aim: 1 ms). Long work goes through Executor, disk through Storage, messages
// through net/. So the same node runs as a process, in serial mode, and in the simulator.
class Node {
 public:
  virtual ~Node() = default;
  virtual Turn Step(Time now) = 0;
  // Ask for an orderly end: the node finishes what it must and then returns kDone. Idempotent.
  virtual void Drain() = 0;
  // Why the node ended, once Step returned kDone. Not ok: the process ends with an error.
  virtual Status result() const { return Status::Ok(); }
};

// Runs long jobs of one node. A job touches only what it was given until it is Done.
//   ThreadExecutor: a pool; the host is woken when a job ends.  InlineExecutor: Submit runs it.
class Executor {
 public:
  using Job = std::uint64_t;  // 0: none
  virtual ~Executor() = default;
  // Errors: kResourceExhausted when too many jobs wait.
  virtual Result<Job> Submit(std::string_view name, std::function<void()> work) = 0;
  // True once, when the job has ended; its writes are visible. REQUIRES: a job of this executor
  // that was not reported done yet.
  virtual bool TakeDone(Job job) = 0;
};

}  // namespace troop
