// Rules of SpaceInvaders on bitboards: one bit per cell, one word per row.

#include "envs/minatar/space_invaders.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "envs/minatar/minatar_env.h"

namespace troop {
namespace {

using State = SpaceInvaders::State;
using Board = SpaceInvaders::Board;
constexpr int kSide = SpaceInvaders::kSide, kCannonRow = SpaceInvaders::kCannonRow;
constexpr std::uint16_t kLeftEdge = 1, kRightEdge = 1 << (kSide - 1);

bool Has(const Board& board, int row, int column) {
  return ((board[std::size_t(row)] >> column) & 1) != 0;
}

// Columns that have at least one bit.
std::uint16_t Columns(const Board& board) {
  std::uint16_t columns = 0;
  for (const std::uint16_t row : board) columns |= row;
  return columns;
}

// Moves all objects one row up; those of the top row leave the board.
void MoveUp(Board* board) {
  std::memmove(&(*board)[0], &(*board)[1], sizeof(*board) - sizeof((*board)[0]));
  board->back() = 0;
}

// Moves all objects one row down; those of the lowest row leave the board.
void MoveDown(Board* board) {
  std::memmove(&(*board)[1], &(*board)[0], sizeof(*board) - sizeof((*board)[0]));
  board->front() = 0;
}

// A shot starts in the row of the cannon; it moves in the same step.
void Act(State* s, std::int32_t action) {
  if (action == minatar::kFire && s->shot_timer == 0) {
    s->shots[kCannonRow] |= std::uint16_t(1 << s->x);
    s->shot_timer = SpaceInvaders::kShotInterval;
  } else if (action == minatar::kLeft) {
    s->x = std::int8_t(std::max(s->x - 1, 0));
  } else if (action == minatar::kRight) {
    s->x = std::int8_t(std::min(s->x + 1, kSide - 1));
  }
}

// Moves the aliens sideways, or down at an edge. An alien in the lowest row then ends the episode;
// its row wraps around to the top.
void MoveAliens(State* s, minatar::Outcome* outcome) {
  // Fewer aliens move faster.
  s->move_timer = std::int8_t(std::min(s->alien_count, s->move_interval));
  const std::uint16_t columns = Columns(s->aliens);
  if ((columns & (s->to_the_left ? kLeftEdge : kRightEdge)) != 0) {
    s->to_the_left = !s->to_the_left;
    const std::uint16_t lowest = s->aliens[kCannonRow];
    outcome->lost |= lowest != 0;
    MoveDown(&s->aliens);
    s->aliens[0] = lowest;
  } else {
    for (std::uint16_t& row : s->aliens) {
      row = std::uint16_t(s->to_the_left ? row >> 1 : row << 1);
    }
  }
}

// Fires from the lowest alien of the column nearest to the cannon; a tie goes to the left.
void Shoot(State* s) {
  const std::uint16_t columns = Columns(s->aliens);
  for (int distance = 0; distance < kSide; ++distance) {
    for (const int column : {s->x - distance, s->x + distance}) {
      if (column < 0 || column >= kSide || ((columns >> column) & 1) == 0) continue;
      int row = kSide - 1;
      while (!Has(s->aliens, row, column)) --row;
      s->alien_shots[std::size_t(row)] |= std::uint16_t(1 << column);
      return;
    }
  }
}

// Removes aliens and shots that share a cell; returns the number of aliens.
std::int8_t Hit(State* s) {
  std::int8_t hits = 0;
  for (std::size_t row = 0; row < kSide; ++row) {
    const auto hit = std::uint16_t(s->aliens[row] & s->shots[row]);
    if (hit == 0) continue;
    hits = std::int8_t(hits + std::popcount(hit));
    s->aliens[row] ^= hit;
    s->shots[row] ^= hit;
  }
  s->alien_count = std::int8_t(s->alien_count - hits);
  return hits;
}

// Starts the next wave; with the ramp it moves a step faster.
void NextWave(State* s) {
  if (s->ramping && s->move_interval > SpaceInvaders::kLastMoveInterval) --s->move_interval;
  s->aliens = SpaceInvaders::kWave;
  s->alien_count = SpaceInvaders::State{}.alien_count;
}

// Flips the cells of one channel where the boards differ.
void Toggle(const Board& before, const Board& after, SpaceInvaders::Channel channel,
            std::uint8_t* cells) {
  if (before == after) return;
  for (int row = 0; row < kSide; ++row) {
    unsigned bits = before[std::size_t(row)] ^ after[std::size_t(row)];
    for (; bits != 0; bits &= bits - 1) {
      cells[(row * kSide + std::countr_zero(bits)) * SpaceInvaders::kChannels + channel] ^= 1;
    }
  }
}

// The aliens if they move in that direction, else an empty board.
const Board& Going(const State& s, bool to_the_left) {
  static constexpr Board kNone{};
  return s.to_the_left == to_the_left ? s.aliens : kNone;
}

// Cell of the cannon in an observation.
std::uint8_t* Cannon(const State& s, std::uint8_t* cells) {
  return &cells[(kCannonRow * kSide + s.x) * SpaceInvaders::kChannels + SpaceInvaders::kCannon];
}

}  // namespace

SpaceInvaders::Change SpaceInvaders::Advance(State* state, std::int32_t action, const Luck&) {
  State& s = *state;
  Change change;
  // Order: player, shots, collisions, aliens, aliens' shot, hits, timers, next wave.
  Act(&s, action);
  MoveUp(&s.shots);
  MoveDown(&s.alien_shots);
  // Checked before and after the aliens move, as in MinAtar.
  change.lost |= Has(s.alien_shots, kCannonRow, s.x);
  change.lost |= Has(s.aliens, kCannonRow, s.x);
  if (s.move_timer == 0) {
    MoveAliens(&s, &change);
    change.lost |= Has(s.aliens, kCannonRow, s.x);
  }
  if (s.alien_shot_timer == 0) {
    s.alien_shot_timer = kAlienShotInterval;
    Shoot(&s);
  }
  change.reward = Hit(&s);
  if (s.shot_timer > 0) --s.shot_timer;
  --s.move_timer;
  --s.alien_shot_timer;
  if (s.alien_count == 0) NextWave(&s);
  return change;
}

void SpaceInvaders::Write(const State& state, std::uint8_t* cells) {
  // The observation is the difference from an empty board.
  State nothing{.aliens = {}, .x = state.x};
  std::memset(cells, 0, kSide * kSide * kChannels);
  Update(nothing, state, {}, cells);
}

// Toggles only cells that differ between the two states.
void SpaceInvaders::Update(const State& before, const State& after, const Change&,
                           std::uint8_t* cells) {
  *Cannon(before, cells) = 0;
  *Cannon(after, cells) = 1;
  Toggle(before.aliens, after.aliens, kAlien, cells);
  Toggle(Going(before, true), Going(after, true), kAlienLeft, cells);
  Toggle(Going(before, false), Going(after, false), kAlienRight, cells);
  Toggle(before.shots, after.shots, kShot, cells);
  Toggle(before.alien_shots, after.alien_shots, kAlienShot, cells);
}

Environment::Picture SpaceInvaders::Render(const State& state) {
  constexpr Color kColors[kChannels] = {{70, 140, 220}, {110, 180, 90}, {110, 180, 90},
                                        {110, 180, 90}, {250, 220, 90}, {210, 80, 70}};
  std::array<std::uint8_t, kSide * kSide * kChannels> cells;
  Write(state, cells.data());
  return minatar::DrawCells(cells, kColors);
}

template std::unique_ptr<Environment> MakeMinAtar<SpaceInvaders>(minatar::ActionSet,
                                                                 const EnvOptions&);
template std::unique_ptr<VectorEnv> MakeMinAtarVector<SpaceInvaders>(minatar::ActionSet,
                                                                     const EnvOptions&, int,
                                                                     EpisodeSeeder);

}  // namespace troop
