#pragma once

#include <atomic>
#include <functional>

#include "core/config.h"
#include "core/log.h"
#include "core/node.h"
#include "net/network.h"

namespace troop {

// Runs one node in this thread until it is done: pumps its network, steps it, sleeps while it
// idles. `every_turn` is called after each step (at least every 100 ms); it may be empty.
Status RunNode(Node* node, Network* network, const Clock& clock,
               const std::function<void(Time)>& every_turn);

LogLevel LogLevelOf(const Config& config);  // log.level

// SIGTERM, SIGINT and SIGHUP (the terminal was closed) become a number to look at, and wake
// `network`. Those within half a second of the first are the same request (`timeout` signals the
// process and its group). One user per process at a time. Roles ignore SIGINT and SIGHUP: a
// terminal sends them to the whole group, and the launcher drains the fleet. Their signals stay as
// they are when the watch ends: a SIGTERM that srun repeats while the process exits must not change
// its exit code. Under nohup SIGHUP stays ignored.
class SignalWatch {
 public:
  SignalWatch(Network* network, bool ignore_interrupt);
  ~SignalWatch();
  int count() const;  // requests so far
  // From now on also SIGUSR1: a request to end now and to go on later (the end of a job's time).
  // wants_more(): it was the first.
  void AlsoUsr1();
  bool wants_more() const;

 private:
  const bool is_role_;
  const bool hangup_was_ignored_;
};

}  // namespace troop
