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
#include <limits>
#include <optional>

namespace troop {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "checkpoint.begin",
    "checkpoint.file",
    "checkpoint.manifest",
    "checkpoint.aside",
    "checkpoint.installed",
    "checkpoint.trim",
    "disk.created",
    "disk.half",
    "disk.written",
    "disk.synced",
    "disk.renamed",
    "actor.step",
    "evaluator.step",
    "actor.reward",
    "actor.observation",
    "evaluator.reward",
    "learner.gradient",
    "learner.weight",
});
static_assert(kNames.size() == std::size_t(Failpoint::kLearnerWeight) + 1);

// In the order of FailpointOrder::Act.
constexpr auto kActs = std::to_array<std::string_view>({"kill", "hang", "nan", "inf"});

bool IsOfNumbers(Failpoint at) { return at >= Failpoint::kActorReward; }

std::string_view TakeWord(std::string_view* text) {
  const std::size_t end = std::min(text->find(':'), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

// A test that believes a failpoint armed when it is not would prove nothing: a wrong one aborts.
std::optional<FailpointOrder> ReadOrder() {
  const char* const text = getenv("TROOP_FAILPOINT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  const Result<FailpointOrder> order = ParseFailpoint(text);
  TROOP_CHECK(order.ok(), "{}", order.status().message());
  return *order;
}

struct Armed {
  std::optional<FailpointOrder> order = ReadOrder();
  std::atomic<std::int64_t> reached{0};
  std::atomic<bool> hit{false};
};

Armed& TheArmed() {
  static Armed armed;  // of the process, as its environment is
  return armed;
}

bool FirstToMake(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// Whether it is now that the armed place, which was reached once more, does what it was told.
bool IsHit(Armed* armed) {
  const FailpointOrder& order = *armed->order;
  const std::int64_t times = armed->reached.fetch_add(1) + 1;
  if (times > order.n) return order.on && armed->hit;
  if (times < order.n || (!order.file.empty() && !FirstToMake(order.file))) return false;
  armed->hit = true;
  return true;
}

}  // namespace

std::span<const std::string_view> FailpointNames() { return kNames; }

Result<FailpointOrder> ParseFailpoint(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return InvalidArgument(
        "TROOP_FAILPOINT={}: {}; it is <name>[:<n>[+][:<kill|hang|nan|inf>[:<file>]]], with one of "
        "{}", text, why, fmt::format("{}", fmt::join(kNames, ", ")));
  };
  std::string_view rest = text;
  const std::string_view name = TakeWord(&rest);
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return refuse("no failpoint has this name");
  FailpointOrder order{.at = Failpoint(found - kNames.begin())};
  const bool number = IsOfNumbers(order.at);
  order.act = number ? FailpointOrder::kNan : FailpointOrder::kKill;
  if (std::string_view n = TakeWord(&rest); !n.empty()) {
    order.on = n.ends_with('+');
    if (order.on) n.remove_suffix(1);
    if (order.on && !number) return refuse("only a bad number can come again");
    const auto [stop, error] = std::from_chars(n.data(), n.data() + n.size(), order.n);
    if (error != std::errc() || stop != n.data() + n.size() || order.n < 1) {
      return refuse("n is a number from 1");
    }
  }
  if (const std::string_view what = TakeWord(&rest); !what.empty()) {
    const auto act = std::ranges::find(kActs, what);
    if (act == kActs.end()) return refuse("it can kill or hang, or give nan or inf");
    order.act = FailpointOrder::Act(act - kActs.begin());
    if ((order.act >= FailpointOrder::kNan) != number) {
      return refuse(number ? "this place takes nan or inf" : "this place takes kill or hang");
    }
  }
  order.file = rest;
  return order;
}

void Reach(Failpoint here) {
  Armed& armed = TheArmed();
  if (!armed.order || armed.order->at != here || !IsHit(&armed)) return;
  if (armed.order->act == FailpointOrder::kKill) kill(getpid(), SIGKILL);
  for (;;) pause();
}

std::optional<float> SpoiledNumber(Failpoint here) {
  Armed& armed = TheArmed();
  if (!armed.order || armed.order->at != here || !IsHit(&armed)) return std::nullopt;
  using Limits = std::numeric_limits<float>;
  return armed.order->act == FailpointOrder::kInf ? Limits::infinity() : Limits::quiet_NaN();
}

void RearmFailpoint() {
  TheArmed().order = ReadOrder();
  TheArmed().reached = 0;
  TheArmed().hit = false;
}

}  // namespace troop
