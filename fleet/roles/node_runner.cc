// The main loop of a process that runs one node, and its signal handlers.
#include "fleet/roles/node_runner.h"

#include <signal.h>
#include <time.h>

#include <algorithm>

namespace troop {
namespace {

// State of the signal handler: lock-free atomics only.
std::atomic<int> signal_count{0};
std::atomic<std::int64_t> first_signal_ns{0};
std::atomic<Network*> signal_network{nullptr};
std::atomic<int> first_signal{0};

// Signals within this time of the first are one request.
constexpr std::int64_t kSameWishNs = 500'000'000;

// Async-signal-safe: atomics, clock_gettime and one write.
void OnSignal(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);  // async-signal-safe (POSIX.1-2008)
  const std::int64_t now = std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  std::int64_t first = 0;
  if (!first_signal_ns.compare_exchange_strong(first, now) && now - first < kSameWishNs) return;
  signal_count.fetch_add(1);
  if (Network* network = signal_network.load()) network->Wake();  // one write to an eventfd
}

void Install(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

// nohup sets SIGHUP to SIG_IGN, which must be kept.
bool HangupIsIgnored() {
  struct sigaction action {};
  sigaction(SIGHUP, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

}  // namespace

// SIGPIPE is ignored: writes to closed sockets report EPIPE.
SignalWatch::SignalWatch(Network* network, bool ignore_interrupt)
    : is_role_(ignore_interrupt), hangup_was_ignored_(HangupIsIgnored()) {
  signal_count = 0;
  first_signal = 0;
  first_signal_ns = 0;
  signal_network = network;
  Install(SIGTERM, OnSignal);
  Install(SIGINT, ignore_interrupt ? SIG_IGN : OnSignal);
  if (!hangup_was_ignored_) Install(SIGHUP, ignore_interrupt ? SIG_IGN : OnSignal);
  Install(SIGPIPE, SIG_IGN);
}

SignalWatch::~SignalWatch() {
  signal_network = nullptr;
  // A role process exits next, so it keeps its handlers.
  if (is_role_) return;
  Install(SIGTERM, SIG_DFL);
  Install(SIGINT, SIG_DFL);
  if (!hangup_was_ignored_) Install(SIGHUP, SIG_DFL);
}

void SignalWatch::HandleRequeueSignal() { Install(SIGUSR1, OnSignal); }

bool SignalWatch::requeue_requested() const { return first_signal.load() == SIGUSR1; }

int SignalWatch::count() const { return signal_count.load(); }

LogLevel LogLevelOf(const Config& config) {
  if (config.log.level == LogLevel::kDebug) return LogLevel::kDebug;
  if (config.log.level == LogLevel::kWarning) return LogLevel::kWarning;
  return config.log.level == LogLevel::kError ? LogLevel::kError : LogLevel::kInfo;
}

Status RunNode(Node* node, Network* network, const Clock& clock,
               const std::function<void(Time)>& every_turn) {
  // Waits at most 100 ms, so that every_turn runs regularly.
  for (;;) {
    const Time now = clock.Now();
    network->Pump(now);
    const StepStatus turn = node->Step(now);
    if (every_turn) every_turn(now);
    if (turn.what == StepStatus::kDone) break;
    if (turn.what == StepStatus::kIdle) {
      const Time after = clock.Now();
      const Time until = std::min(turn.until, after + Milliseconds(100));
      if (until > after) network->Wait(after, until);
    }
  }
  // Flushes messages that the node sent last.
  const Time end = clock.Now() + Milliseconds(20);
  while (network->Pump(clock.Now()) && clock.Now() < end) {
  }
  return node->result();
}

}  // namespace troop
