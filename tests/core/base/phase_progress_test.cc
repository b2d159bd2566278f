#include "core/base/phase_progress.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace troop {
namespace {

std::vector<std::string>& Lines() {
  static std::vector<std::string> lines;
  return lines;
}

TEST(PhaseProgressTest, ShowsProgressAndTimeLeftAfterTwoSeconds) {
  SetPhaseSink([](const std::string& line) { Lines().push_back(line); });
  ManualClock clock;
  PhaseProgress progress("tokenizing", "reviews", 100, &clock);
  for (const int done : {0, 10, 20, 30, 40}) {
    clock.Advance(Milliseconds(1500));
    progress.Show(done);
  }
  SetPhaseSink(nullptr);
  clock.Advance(Seconds(60));
  progress.Show(50);
  EXPECT_EQ(Lines(), (std::vector<std::string>{
                         "tokenizing: 10 of 100 reviews, 3 s so far, about 27 s left",
                         "tokenizing: 30 of 100 reviews, 6 s so far, about 14 s left"}));
}

}  // namespace
}  // namespace troop
