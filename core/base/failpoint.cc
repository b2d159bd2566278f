// Implements failpoints: parsing of TROOP_FAILPOINT and counting of hits.
#include "core/base/failpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

namespace troop {
namespace {

// In the order of Failpoint, whose value is the index.
constexpr auto kNames = std::to_array<std::string_view>({
    "checkpoint.begin",     "checkpoint.file", "checkpoint.manifest", "checkpoint.aside",
    "checkpoint.installed", "checkpoint.trim", "disk.created",        "disk.half",
    "disk.written",         "disk.synced",     "disk.renamed",        "actor.step",
    "evaluator.step",       "actor.reward",    "actor.observation",   "evaluator.reward",
    "learner.gradient",     "learner.weight",  "learner.device",      "learner.pace",
    "learner.push",
});
static_assert(kNames.size() == std::size_t(Failpoint::kLearnerPush) + 1);

// Names in the order of FailpointSpec::Act.
constexpr auto kActs =
    std::to_array<std::string_view>({"kill", "hang", "nan", "inf", "fail", "slow", "wild", "sly"});

// The permitted actions of a place, the default first.
struct ActsOfPlace {
  FailpointSpec::Act first, last;
  std::string_view what;
};
ActsOfPlace ActsAt(Failpoint at) {
  using Order = FailpointSpec;
  if (at == Failpoint::kLearnerDevice) return {Order::kFail, Order::kFail, "fail"};
  if (at == Failpoint::kLearnerPace) return {Order::kSlow, Order::kSlow, "slow"};
  if (at == Failpoint::kLearnerPush)
    return {Order::kCorruptGradientAndLoss, Order::kCorruptGradient, "wild or sly"};
  if (at >= Failpoint::kActorReward) return {Order::kNan, Order::kInf, "nan or inf"};
  return {Order::kKill, Order::kHang, "kill or hang"};
}

// Removes and returns the text up to the next separator.
std::string_view TakeWord(std::string_view* text, char end_mark = ':') {
  const std::size_t end = std::min(text->find(end_mark), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

// A failpoint of this process. Atomic, because any thread may reach it.
struct Armed {
  explicit Armed(FailpointSpec o) : order(std::move(o)) {}
  const FailpointSpec order;
  std::atomic<std::int64_t> reached{0};
  std::atomic<bool> hit{false};
};

// An invalid failpoint aborts: a test that runs without its fault would prove nothing.
std::deque<Armed> ReadOrders() {
  std::deque<Armed> armed;
  const char* const text = getenv("TROOP_FAILPOINT");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const Result<FailpointSpec> order = ParseFailpoint(TakeWord(&rest, ';'));
    TROOP_CHECK(order.ok(), "{}", order.status().message());
    armed.emplace_back(*order);
  }
  return armed;
}

std::deque<Armed>& AllArmed() {
  static std::deque<Armed> armed = ReadOrders();  // per process, like its environment
  return armed;
}

// Null in normal runs: there the list is empty, so a place costs almost nothing.
Armed* ArmedAt(Failpoint here) {
  for (Armed& armed : AllArmed()) {
    if (armed.order.at == here) return &armed;
  }
  return nullptr;
}

// True if this process created the file, which exactly one process can.
bool FirstToMake(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Counts a hit of the place; true if the fault must be injected now.
bool IsHit(Armed* armed) {
  const FailpointSpec& order = armed->order;
  const std::int64_t times = armed->reached.fetch_add(1) + 1;
  // Later hits count only with +, and only in the process that was affected first.
  if (times > order.n) return order.on && armed->hit;
  if (times < order.n || (!order.file.empty() && !FirstToMake(order.file))) return false;
  armed->hit = true;
  return true;
}

// True if this process was chosen when it first reached the place.
bool IsChosen(Armed* armed) {
  if (armed->reached.fetch_add(1) > 0) return armed->hit;
  armed->hit = armed->order.file.empty() || FirstToMake(armed->order.file);
  return armed->hit;
}

}  // namespace

std::span<const std::string_view> FailpointNames() { return kNames; }

// Parses <name>[:<n>[+][:<act>[:<file>]]].
Result<FailpointSpec> ParseFailpoint(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return InvalidArgument(
        "TROOP_FAILPOINT={}: {}; use <name>[:<n>[+][:<act>[:<file>]]] with one of {}", text, why,
        fmt::format("{}", fmt::join(kNames, ", ")));
  };
  std::string_view rest = text;
  const std::string_view name = TakeWord(&rest);
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return refuse("unknown failpoint");
  FailpointSpec order{.at = Failpoint(found - kNames.begin())};
  const ActsOfPlace acts = ActsAt(order.at);
  order.act = acts.first;
  // Part 2: the number of the hit, or a factor for the learner's pace.
  if (std::string_view n = TakeWord(&rest); !n.empty()) {
    order.on = n.ends_with('+');
    if (order.on) n.remove_suffix(1);
    if (order.on && acts.first != FailpointSpec::kNan) {
      return refuse("+ requires the action nan or inf");
    }
    const auto [stop, error] = std::from_chars(n.data(), n.data() + n.size(), order.n);
    if (error != std::errc() || stop != n.data() + n.size() || order.n < 1) {
      return refuse("n must be an integer >= 1");
    }
  }
  // Part 3: an action that this place supports.
  if (const std::string_view what = TakeWord(&rest); !what.empty()) {
    const auto act = std::ranges::find(kActs, what);
    order.act = FailpointSpec::Act(act - kActs.begin());
    if (act == kActs.end() || order.act < acts.first || order.act > acts.last) {
      return refuse(fmt::format("this place supports {}", acts.what));
    }
  }
  // The file is the rest of the text, because it may contain colons.
  order.file = rest;
  return order;
}

// Does not return if the fault is due: the process is killed, or hangs.
void HitFailpoint(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsHit(armed)) return;
  // SIGKILL, so that no destructor or handler runs.
  if (armed->order.act == FailpointSpec::kKill) kill(getpid(), SIGKILL);
  for (;;) pause();
}

std::optional<float> InjectedValue(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsHit(armed)) return std::nullopt;
  using Limits = std::numeric_limits<float>;
  return armed->order.act == FailpointSpec::kInf ? Limits::infinity() : Limits::quiet_NaN();
}

bool ShouldFail(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  return armed != nullptr && IsHit(armed);
}

// 1 for a process that is not chosen; the choice never changes.
std::int64_t SlowdownFactor(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  return armed != nullptr && IsChosen(armed) ? armed->order.n : 1;
}

// One of n gradients is corrupted on average; the key makes the choice reproducible.
GradientCorruption DrawGradientCorruption(Failpoint here, const RngKey& key) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsChosen(armed)) return GradientCorruption::kNone;
  if (Rng(key).Uniform() * double(armed->order.n) >= 1) return GradientCorruption::kNone;
  return armed->order.act == FailpointSpec::kCorruptGradientAndLoss
             ? GradientCorruption::kGradientAndLoss
             : GradientCorruption::kGradient;
}

// For tests that change the environment variable. REQUIRES: no other thread is at a failpoint.
void ReloadFailpoint() { AllArmed() = ReadOrders(); }

}  // namespace troop
