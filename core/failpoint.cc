#include "core/failpoint.h"

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

constexpr auto kNames = std::to_array<std::string_view>({
    "checkpoint.begin",     "checkpoint.file", "checkpoint.manifest", "checkpoint.aside",
    "checkpoint.installed", "checkpoint.trim", "disk.created",        "disk.half",
    "disk.written",         "disk.synced",     "disk.renamed",        "actor.step",
    "evaluator.step",       "actor.reward",    "actor.observation",   "evaluator.reward",
    "learner.gradient",     "learner.weight",  "learner.device",      "learner.pace",
    "learner.push",
});
static_assert(kNames.size() == std::size_t(Failpoint::kLearnerPush) + 1);

// In the order of FailpointOrder::Act.
constexpr auto kActs =
    std::to_array<std::string_view>({"kill", "hang", "nan", "inf", "fail", "slow", "wild", "sly"});

// What can be ordered at a place, the default first.
struct ActsOfPlace {
  FailpointOrder::Act first, last;
  std::string_view what;
};
ActsOfPlace ActsAt(Failpoint at) {
  using Order = FailpointOrder;
  if (at == Failpoint::kLearnerDevice) return {Order::kFail, Order::kFail, "fail"};
  if (at == Failpoint::kLearnerPace) return {Order::kSlow, Order::kSlow, "slow"};
  if (at == Failpoint::kLearnerPush) return {Order::kWild, Order::kSly, "wild or sly"};
  if (at >= Failpoint::kActorReward) return {Order::kNan, Order::kInf, "nan or inf"};
  return {Order::kKill, Order::kHang, "kill or hang"};
}

std::string_view TakeWord(std::string_view* text, char end_mark = ':') {
  const std::size_t end = std::min(text->find(end_mark), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

struct Armed {
  explicit Armed(FailpointOrder o) : order(std::move(o)) {}
  const FailpointOrder order;
  std::atomic<std::int64_t> reached{0};
  std::atomic<bool> hit{false};
};

// A test that believes a failpoint armed when it is not would prove nothing: a wrong one aborts.
std::deque<Armed> ReadOrders() {
  std::deque<Armed> armed;
  const char* const text = getenv("TROOP_FAILPOINT");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const Result<FailpointOrder> order = ParseFailpoint(TakeWord(&rest, ';'));
    TROOP_CHECK(order.ok(), "{}", order.status().message());
    armed.emplace_back(*order);
  }
  return armed;
}

std::deque<Armed>& AllArmed() {
  static std::deque<Armed> armed = ReadOrders();  // of the process, as its environment is
  return armed;
}

Armed* ArmedAt(Failpoint here) {
  for (Armed& armed : AllArmed()) {
    if (armed.order.at == here) return &armed;
  }
  return nullptr;
}

bool FirstToMake(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Whether it is now that the armed place, which was reached once more, does what it was told.
bool IsHit(Armed* armed) {
  const FailpointOrder& order = armed->order;
  const std::int64_t times = armed->reached.fetch_add(1) + 1;
  if (times > order.n) return order.on && armed->hit;
  if (times < order.n || (!order.file.empty() && !FirstToMake(order.file))) return false;
  armed->hit = true;
  return true;
}

// Whether this process is the one, from the first time that it gets to the place.
bool IsChosen(Armed* armed) {
  if (armed->reached.fetch_add(1) > 0) return armed->hit;
  armed->hit = armed->order.file.empty() || FirstToMake(armed->order.file);
  return armed->hit;
}

}  // namespace

std::span<const std::string_view> FailpointNames() { return kNames; }

Result<FailpointOrder> ParseFailpoint(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return InvalidArgument(
        "TROOP_FAILPOINT={}: {}; it is <name>[:<n>[+][:<act>[:<file>]]], with one of {}", text, why,
        fmt::format("{}", fmt::join(kNames, ", ")));
  };
  std::string_view rest = text;
  const std::string_view name = TakeWord(&rest);
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return refuse("no failpoint has this name");
  FailpointOrder order{.at = Failpoint(found - kNames.begin())};
  const ActsOfPlace acts = ActsAt(order.at);
  order.act = acts.first;
  if (std::string_view n = TakeWord(&rest); !n.empty()) {
    order.on = n.ends_with('+');
    if (order.on) n.remove_suffix(1);
    if (order.on && acts.first != FailpointOrder::kNan) {
      return refuse("only a bad number can come again");
    }
    const auto [stop, error] = std::from_chars(n.data(), n.data() + n.size(), order.n);
    if (error != std::errc() || stop != n.data() + n.size() || order.n < 1) {
      return refuse("n is a number from 1");
    }
  }
  if (const std::string_view what = TakeWord(&rest); !what.empty()) {
    const auto act = std::ranges::find(kActs, what);
    order.act = FailpointOrder::Act(act - kActs.begin());
    if (act == kActs.end() || order.act < acts.first || order.act > acts.last) {
      return refuse(fmt::format("this place takes {}", acts.what));
    }
  }
  order.file = rest;
  return order;
}

void Reach(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsHit(armed)) return;
  if (armed->order.act == FailpointOrder::kKill) kill(getpid(), SIGKILL);
  for (;;) pause();
}

std::optional<float> SpoiledNumber(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsHit(armed)) return std::nullopt;
  using Limits = std::numeric_limits<float>;
  return armed->order.act == FailpointOrder::kInf ? Limits::infinity() : Limits::quiet_NaN();
}

bool Fails(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  return armed != nullptr && IsHit(armed);
}

std::int64_t SlowedBy(Failpoint here) {
  Armed* const armed = ArmedAt(here);
  return armed != nullptr && IsChosen(armed) ? armed->order.n : 1;
}

Spoilt DrawSpoilt(Failpoint here, const RngKey& key) {
  Armed* const armed = ArmedAt(here);
  if (armed == nullptr || !IsChosen(armed)) return Spoilt::kNo;
  if (Rng(key).Uniform() * double(armed->order.n) >= 1) return Spoilt::kNo;
  return armed->order.act == FailpointOrder::kWild ? Spoilt::kGradientAndLoss : Spoilt::kGradient;
}

void RearmFailpoint() { AllArmed() = ReadOrders(); }

}  // namespace troop
