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
});
static_assert(kNames.size() == std::size_t(Failpoint::kEvaluatorStep) + 1);

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

}  // namespace

std::span<const std::string_view> FailpointNames() { return kNames; }

Result<FailpointOrder> ParseFailpoint(std::string_view text) {
  const auto refuse = [text](std::string_view why) {
    return InvalidArgument(
        "TROOP_FAILPOINT={}: {}; it is <name>[:<n>[:<kill|hang>[:<file>]]], with one of {}", text,
        why, fmt::format("{}", fmt::join(kNames, ", ")));
  };
  std::string_view rest = text;
  const std::string_view name = TakeWord(&rest);
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return refuse("no failpoint has this name");
  FailpointOrder order{.at = Failpoint(found - kNames.begin())};
  if (const std::string_view n = TakeWord(&rest); !n.empty()) {
    const auto [stop, error] = std::from_chars(n.data(), n.data() + n.size(), order.n);
    if (error != std::errc() || stop != n.data() + n.size() || order.n < 1) {
      return refuse("n is a number from 1");
    }
  }
  const std::string_view what = TakeWord(&rest);
  order.hang = what == "hang";
  if (!what.empty() && what != "kill" && !order.hang) return refuse("it can kill or hang");
  order.file = rest;
  return order;
}

void Reach(Failpoint here) {
  Armed& armed = TheArmed();
  if (!armed.order || armed.order->at != here) return;
  if (armed.reached.fetch_add(1) + 1 != armed.order->n) return;
  if (!armed.order->file.empty() && !FirstToMake(armed.order->file)) return;
  if (!armed.order->hang) kill(getpid(), SIGKILL);
  for (;;) pause();
}

void RearmFailpoint() {
  TheArmed().order = ReadOrder();
  TheArmed().reached = 0;
}

}  // namespace troop
