// The two displays of a run's progress, and the messages next to them.
#include "fleet/launcher/progress_display.h"

#include <algorithm>

#include "fleet/launcher/terminal_size.h"

namespace troop {
namespace {

constexpr Duration kLineEvery = Seconds(2);  // period of plain lines

// A block of lines on a terminal, redrawn in place.
class LiveBlock final : public Progress {
 public:
  LiveBlock(std::string name, std::FILE* out) : name_(std::move(name)), out_(out) {}
  void Show(Time, const RunView& view, const RunThroughput& rates) override {
    view_ = view;
    rates_ = rates;
    Draw();
  }
  void Finish(const RunView& view, const RunThroughput& rates) override { Show({}, view, rates); }
  // The notice is part of the block: a separate line would be erased by the next redraw.
  void Say(const std::string& notice) override {
    notice_ = notice;
    Draw();
  }

 private:
  void Draw() {
    // Wrapped lines would make the block taller than its counted lines. The last column stays free,
    // as some terminals wrap when it is written.
    const int columns = SizeOfTerminal(fileno(out_)).columns - 1;
    const std::string block = ProgressBlock(name_, view_, rates_, columns, notice_);
    // Move to the block's first line and erase to the end of the screen.
    if (lines_ > 0) std::fputs(fmt::format("\x1b[{}F\x1b[J", lines_).c_str(), out_);
    std::fputs(block.c_str(), out_);
    std::fflush(out_);
    lines_ = std::ranges::count(block, '\n');
  }
  const std::string name_;
  std::FILE* const out_;
  std::string notice_;
  RunView view_;
  RunThroughput rates_;
  std::ptrdiff_t lines_ = 0;
};

// One line per period, for log files and pipes. Messages go to standard error.
class PlainLines final : public Progress {
 public:
  explicit PlainLines(std::FILE* out) : out_(out) {}
  void Show(Time now, const RunView& view, const RunThroughput& rates) override {
    if (now < next_) return;
    next_ = now + kLineEvery;
    Finish(view, rates);
  }
  void Finish(const RunView& view, const RunThroughput& rates) override {
    std::fputs((ProgressLine(view, rates) + "\n").c_str(), out_);
    std::fflush(out_);
  }
  void Say(const std::string& notice) override { fmt::print(stderr, "{}\n", notice); }

 private:
  std::FILE* const out_;
  Time next_{};
};

}  // namespace

void RoleNotices::SayEndless(const RunView& view, const Config& config, Progress* progress) {
  // Above the usual limits: an Atari episode of 108,000 frames has 27,000 agent steps.
  constexpr std::int64_t kManySteps = 30'000;
  if (endless_said_ || view.supervised || view.offline) return;
  const std::int64_t environments = std::int64_t{config.fleet.actors} * config.actor.envs;
  const std::int64_t steps =
      (view.steps - view.steps_at_start) / std::max<std::int64_t>(1, environments);
  if (steps < kManySteps) return;
  endless_said_ = true;  // also if episodes end: checked only once
  const auto episodes = view.metrics.find("actor/episodes");
  if (episodes != view.metrics.end() && episodes->second.value > 0) return;
  progress->Say(
      fmt::format("troop: no episode has ended after {} steps of each environment, so returns are "
                  "unknown; set env.max_episode_steps (it is {}) if episodes need a limit",
                  steps, config.env.max_episode_steps));
}

// Compares with the roles that were blocked at the previous call.
void RoleNotices::SayBlocked(const RunView& view, Progress* progress) {
  std::set<std::string> now;
  for (const RoleCondition& c : view.conditions) {
    if (c.state != RoleView::State::kBlocked) continue;
    const std::string name = PeerName(c.role, c.index);
    now.insert(name);
    if (blocked_.contains(name)) continue;
    progress->Say(fmt::format("troop: {} is blocked: {}", name, c.reason));
  }
  blocked_.swap(now);
}

// Roles that ended for good have no restart text, and are reported elsewhere.
void RoleNotices::SayEnded(Time now, const Supervisor::Exit& exit, const std::string& why,
                           Progress* progress) {
  if (exit.restart.empty() || !ended_.Next(now)) return;
  progress->Say(fmt::format("troop: {} ended: {}; {}", PeerName(exit.role.role, exit.role.index),
                            why, exit.restart));
}

std::unique_ptr<Progress> MakeProgress(const std::string& name, bool live, std::FILE* out) {
  if (live) return std::make_unique<LiveBlock>(name, out);
  return std::make_unique<PlainLines>(out);
}

}  // namespace troop
