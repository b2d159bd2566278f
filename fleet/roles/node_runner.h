#pragma once

#include <atomic>
#include <functional>

#include "core/base/log.h"
#include "core/base/node.h"
#include "fleet/config/config.h"
#include "net/network.h"

namespace troop {

// Runs one node in this thread until it is done: pumps its network, steps it, sleeps while it
// idles. `every_turn` is called after each step (at least every 100 ms); it may be empty.
Status RunNode(Node* node, Network* network, const Clock& clock,
               const std::function<void(Time)>& every_turn);

LogLevel LogLevelOf(const Config& config);  // log.level

// Counts SIGTERM, SIGINT and SIGHUP as requests to end, and wakes `network` (may be null). One
// instance per process at a time.
// - Signals within 0.5 s of the first count as one: `timeout` signals the process and its group.
// - Roles ignore SIGINT and SIGHUP (`ignore_interrupt`): a terminal sends them to the whole process
//   group, and the launcher drains the fleet.
// - Roles keep their handlers when the watch ends: a SIGTERM that srun repeats while the process
//   exits must not change its exit code.
// - Under nohup SIGHUP stays ignored.
class SignalWatch {
 public:
  SignalWatch(Network* network, bool ignore_interrupt);
  ~SignalWatch();
  int count() const;  // requests so far
  // Also counts SIGUSR1: a request to end now and to resume later (a job's time limit).
  // requeue_requested() is true if SIGUSR1 was the first signal.
  void HandleRequeueSignal();
  bool requeue_requested() const;

 private:
  const bool is_role_;
  const bool hangup_was_ignored_;
};

}  // namespace troop
