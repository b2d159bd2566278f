#include "envs/bsuite/catch.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "core/base/philox.h"

namespace troop {
namespace {

using Board = std::array<float, Catch::kRows * Catch::kColumns>;

// The column of the only 1 in a row; -1: none.
int ColumnIn(const Board& board, int row) {
  int found = -1;
  for (int column = 0; column < Catch::kColumns; ++column) {
    if (board[row * Catch::kColumns + column] == 1) found = column;
  }
  return found;
}

struct Game {
  Catch env;
  Board board{};
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(board)); }
  StepResult Step(std::int32_t action) {
    return env.Step(std::as_bytes(std::span(&action, 1)), bytes());
  }
};

TEST(CatchTest, BallStartsInAnyColumnAndPaddleInMiddle) {
  Game game;
  std::set<int> columns;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    game.env.Reset(seed, game.bytes());
    const int ball = ColumnIn(game.board, 0);
    columns.insert(ball);
    EXPECT_EQ(ColumnIn(game.board, 9), 2);
    game.Step(1);
    EXPECT_EQ(ColumnIn(game.board, 0), -1);
    EXPECT_EQ(ColumnIn(game.board, 1), ball);
  }
  EXPECT_EQ(columns, (std::set<int>{0, 1, 2, 3, 4}));
}

TEST(CatchTest, EndsAfterNineStepsWithPlusOrMinusOne) {
  Game game;
  Rng rng({});
  std::set<float> rewards;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    game.env.Reset(seed, game.bytes());
    const int ball = ColumnIn(game.board, 0);
    int paddle = 2;
    for (int t = 1; t <= 9; ++t) {
      const auto action = std::int32_t(rng.Below(3));
      paddle = std::clamp(paddle + action - 1, 0, 4);
      const StepResult step = game.Step(action);
      EXPECT_EQ(step.terminated, t == 9);
      EXPECT_FALSE(step.truncated);
      EXPECT_EQ(step.reward, t < 9 ? 0 : paddle == ball ? 1 : -1);
      if (t == 9) rewards.insert(step.reward);
    }
    EXPECT_EQ(game.board[45 + ball], 1);
    EXPECT_EQ(game.board[45 + paddle], 1);
  }
  EXPECT_EQ(rewards, (std::set<float>{-1, 1}));
}

TEST(CatchTest, EndOnLastAllowedStepTerminatesAndTruncates) {
  Game game{.env = Catch(9)};
  game.env.Reset(1, game.bytes());
  StepResult step;
  for (int t = 0; t < 9; ++t) step = game.Step(1);
  EXPECT_TRUE(step.terminated);
  EXPECT_TRUE(step.truncated);
}

}  // namespace
}  // namespace troop
