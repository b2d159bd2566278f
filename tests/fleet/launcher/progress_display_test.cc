#include "fleet/launcher/progress_display.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <array>

#include "fleet/launcher/terminal_size.h"

namespace troop {
namespace {

// A name with the length of those that tools/quickstart gives its runs.
constexpr char kName[] = "quickstart-20261121-084548";

std::size_t Columns(std::string_view text) {
  return std::size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

RunView LateView(Phase phase) {
  RunView view{.phase = phase, .steps = 9'512'345, .steps_total = 22'500'000};
  view.updates = 97'403;
  view.evaluations.push_back({.return_mean = -12345.6});
  return view;
}

RunThroughput LateRates() {
  return {.elapsed_s = 4321,
          .steps_per_s = 12'345,
          .updates_per_s = 7654,
          .samples_per_insert = 512.25,
          .replay_fill = 1.02,
          .weights_lag = 48'313,
          .episode_return_mean = -12345.6,
          .evaluation_return = -12345.6,
          .left_s = 83,
          .bottleneck = "learner (actors wait for the replay ratio, and so does the replay)"};
}

// A terminal with the functions that the block uses: wrapping, line feeds, cursor up, erase below.
class Screen {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}
  void Write(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        Feed();
      } else if (text.substr(i, 2) == "\x1b[") {
        const std::size_t end = text.find_first_of("FJ", i);
        if (text[end] == 'F') {
          row_ -= std::min(row_, std::size_t(std::stoi(std::string(text.substr(i + 2)))));
          column_ = 0;
        } else {
          rows_.resize(row_ + 1);
          rows_[row_].clear();
        }
        i = end;
      } else {
        const bool begins = (text[i] & 0xC0) != 0x80;
        if (begins && column_ == columns_) Feed(), column_ = 0;
        rows_[row_] += text[i];
        column_ += begins ? 1 : 0;
      }
    }
  }
  std::string text() const {
    std::string all;
    for (const std::string& row : rows_) all += row + "\n";
    return all;
  }

 private:
  void Feed() {
    if (++row_ == rows_.size()) rows_.emplace_back();
  }
  const std::size_t columns_;
  std::vector<std::string> rows_{1};
  std::size_t row_ = 0, column_ = 0;
};

// The two ends of a terminal of that width.
struct Terminal {
  explicit Terminal(int columns) : screen(std::size_t(columns)) {
    const winsize size{.ws_row = 24,
                       .ws_col = static_cast<unsigned short>(columns),
                       .ws_xpixel = 0,
                       .ws_ypixel = 0};
    int end = -1;
    if (openpty(&master, &end, nullptr, nullptr, &size) == 0) out = fdopen(end, "w");
    if (master >= 0) fcntl(master, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    if (out != nullptr) std::fclose(out);
    if (master >= 0) close(master);
  }
  // Returns the screen's current text.
  std::string Text() {
    std::array<char, 4096> bytes{};
    for (ssize_t n = 0; (n = read(master, bytes.data(), bytes.size())) > 0;) {
      screen.Write({bytes.data(), std::size_t(n)});
    }
    return screen.text();
  }
  int master = -1;
  std::FILE* out = nullptr;
  Screen screen;
};

std::ptrdiff_t Occurrences(const std::string& text, const std::string& part) {
  std::ptrdiff_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(ProgressTextTest, BlockFitsTerminalWidth) {
  for (const int columns : {20, 39, 59, 60, 79, 80, 200}) {
    for (const Phase phase : {Phase::kRunning, Phase::kEvaluating}) {
      const std::string block =
          ProgressBlock(kName, LateView(phase), LateRates(), columns,
                        "stopping after a checkpoint (repeat to kill immediately)");
      for (std::size_t at = 0; at < block.size();) {
        const std::size_t end = block.find('\n', at);
        EXPECT_LE(Columns(std::string_view(block).substr(at, end - at)), std::size_t(columns))
            << block;
        at = end + 1;
      }
      EXPECT_EQ(std::ranges::count(block, '\n'), 6) << block;
    }
  }
}

TEST(ProgressTextTest, NarrowBlockKeepsImportantItems) {
  const std::string block = ProgressBlock(kName, LateView(Phase::kRunning), LateRates(), 59);
  for (const char* part :
       {kName, "running", "42 %", "1 min 23 s left", "9512 k of 22.5 M", "12.3 k/s", "97.4 k",
        "102 % full", "512.25", "-12345.6 evaluated", "bottleneck: learner"}) {
    EXPECT_NE(block.find(part), std::string::npos) << part << "\n" << block;
  }
}

// Lines that the terminal wrapped were counted as one, and old ones piled up above the block.
TEST(LiveBlockTest, RedrawsInPlaceOnNarrowTerminals) {
  for (const int columns : {60, 80}) {
    Terminal terminal(columns);
    if (terminal.out == nullptr) GTEST_FAIL() << "no pseudo-terminal";
    ASSERT_EQ(SizeOfTerminal(terminal.master).columns, columns);
    const auto progress = MakeProgress(kName, true, terminal.out);
    for (int i = 0; i < 4; ++i) progress->Show(Time{}, LateView(Phase::kRunning), LateRates());
    const std::string text = terminal.Text();
    EXPECT_EQ(Occurrences(text, kName), 1) << text;
    EXPECT_EQ(Occurrences(text, "bottleneck"), 1) << text;
    EXPECT_EQ(std::ranges::count(text, '\n'), 6) << text;  // five, and the cursor's
  }
}

TEST(LiveBlockTest, KeepsNoticeVisible) {
  Terminal terminal(80);
  if (terminal.out == nullptr) GTEST_FAIL() << "no pseudo-terminal";
  const auto progress = MakeProgress(kName, true, terminal.out);
  progress->Show(Time{}, LateView(Phase::kRunning), LateRates());
  progress->Say("stopping after a checkpoint");
  for (int i = 0; i < 3; ++i) progress->Show(Time{}, LateView(Phase::kRunning), LateRates());
  const std::string text = terminal.Text();
  EXPECT_EQ(Occurrences(text, "stopping after a checkpoint"), 1) << text;
  EXPECT_EQ(Occurrences(text, kName), 1) << text;
}

// Nothing was said of a run whose episodes never end.
TEST(RoleNoticesTest, WarnsOnceThatEpisodesNeverEnd) {
  Config config;
  config.fleet.actors = 2;
  config.actor.envs = 4;
  config.env.max_episode_steps = 0;
  const auto said = [&config](RoleNotices* notices, std::int64_t steps, double episodes) {
    std::FILE* const out = std::tmpfile();
    const auto progress = MakeProgress(kName, false, out);
    RunView view{.steps = 1000 + steps, .steps_at_start = 1000};
    view.metrics["actor/episodes"] = {.kind = MetricKind::kCounter, .value = episodes};
    testing::internal::CaptureStderr();
    notices->SayEndless(view, config, progress.get());
    std::fclose(out);
    return testing::internal::GetCapturedStderr();
  };
  RoleNotices endless, usual;
  EXPECT_EQ(said(&endless, 8 * 29'999, 0), "");
  EXPECT_EQ(said(&endless, 8 * 30'000, 0),
            "troop: no episode has ended after 30000 steps of each environment, so returns are "
            "unknown; set env.max_episode_steps (it is 0) if episodes need a limit\n");
  EXPECT_EQ(said(&endless, 8 * 40'000, 0), "");
  EXPECT_EQ(said(&usual, 8 * 30'000, 1), "");
}

// An evaluation of hours showed nothing.

}  // namespace
}  // namespace troop
