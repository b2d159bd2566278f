#include "apps/progress.h"

#include <algorithm>
#include <cstdio>

namespace troop {
namespace {

constexpr Duration kLineEvery = Seconds(2);

class LiveBlock final : public Progress {
 public:
  explicit LiveBlock(std::string name) : name_(std::move(name)) {}
  void Show(Time, const RunView& view, const RunRates& rates) override { Draw(view, rates); }
  void Finish(const RunView& view, const RunRates& rates) override { Draw(view, rates); }

 private:
  void Draw(const RunView& view, const RunRates& rates) {
    const std::string block = ProgressBlock(name_, view, rates);
    // Back to the block's first line, and erase to the end of the screen.
    if (lines_ > 0) std::fputs(fmt::format("\x1b[{}F\x1b[J", lines_).c_str(), stdout);
    std::fputs(block.c_str(), stdout);
    std::fflush(stdout);
    lines_ = std::ranges::count(block, '\n');
  }
  const std::string name_;
  std::ptrdiff_t lines_ = 0;
};

class PlainLines final : public Progress {
 public:
  void Show(Time now, const RunView& view, const RunRates& rates) override {
    if (now < next_) return;
    next_ = now + kLineEvery;
    Finish(view, rates);
  }
  void Finish(const RunView& view, const RunRates& rates) override {
    std::puts(ProgressLine(view, rates).c_str());
    std::fflush(stdout);
  }

 private:
  Time next_{};
};

}  // namespace

std::unique_ptr<Progress> MakeProgress(const std::string& name, bool live) {
  if (live) return std::make_unique<LiveBlock>(name);
  return std::make_unique<PlainLines>();
}

}  // namespace troop
