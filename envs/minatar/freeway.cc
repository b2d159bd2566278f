// Rules of Freeway, and observations that change only the affected cells.

#include "envs/minatar/freeway.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "envs/minatar/minatar_env.h"

namespace troop {
namespace {

using minatar::kSide;
using State = Freeway::State;

std::int8_t Magnitude(std::int8_t speed) { return std::int8_t(std::abs(speed)); }

// The next cell in that direction; the board wraps around.
std::int8_t Along(std::int8_t x, bool to_the_right) {
  if (to_the_right) return std::int8_t(x == kSide - 1 ? 0 : x + 1);
  return std::int8_t(x == 0 ? kSide - 1 : x - 1);
}

// New speeds take effect at once: the timers restart.
void SetSpeeds(State* s, const Freeway::Speeds& speed) {
  s->speed = speed;
  std::ranges::transform(speed, s->timer.begin(), &Magnitude);
}

// Moves the chicken if its timer has expired; only a move restarts the timer.
void MoveChicken(State* s, std::int32_t action) {
  if (s->move_timer != 0 || (action != minatar::kUp && action != minatar::kDown)) return;
  s->move_timer = Freeway::kMoveInterval;
  const int row = s->row + (action == minatar::kUp ? -1 : 1);
  s->row = std::int8_t(std::clamp(row, 0, int(Freeway::kBottom)));
}

// Checks for collisions before and after each car moves. Lanes are processed in order; the row to
// which a hit chicken returns has no car.
void MoveCars(State* s) {
  for (int i = 0; i < Freeway::kLanes; ++i) {
    const auto car = std::size_t(i);
    const auto meet = [&] {
      if (s->x[car] == Freeway::kColumn && s->row == i + 1) s->row = Freeway::kBottom;
    };
    meet();
    if (s->timer[car] != 0) {
      --s->timer[car];
      continue;
    }
    s->timer[car] = Magnitude(s->speed[car]);
    s->x[car] = Along(s->x[car], s->speed[car] > 0);
    meet();
  }
}

// Observations are [row, column, channel] u8.
std::uint8_t* CellOf(int row, int column, int channel, std::uint8_t* cells) {
  return &cells[(row * kSide + column) * Freeway::kChannels + channel];
}

std::uint8_t* Chicken(const State& s, std::uint8_t* cells) {
  return CellOf(s.row, Freeway::kColumn, Freeway::kChicken, cells);
}

// Writes the cells of car i: its position, and the cell at its rear in the channel of its speed.
void PutCar(const State& s, int i, std::uint8_t value, std::uint8_t* cells) {
  const auto car = std::size_t(i);
  const std::int8_t speed = s.speed[car];
  const int channel = Freeway::kFastest - 1 + Magnitude(speed);
  *CellOf(i + 1, s.x[car], Freeway::kCar, cells) = value;
  *CellOf(i + 1, Along(s.x[car], speed < 0), channel, cells) = value;
}

}  // namespace

// Uniform over 1 to 5 in both directions; a larger magnitude is a slower car.
Freeway::Speeds Freeway::DrawSpeeds(Rng* rng) {
  Speeds speeds;
  for (std::int8_t& speed : speeds) {
    const auto drawn = std::int8_t(rng->Below(10));  // 0 to 4: to the left
    speed = std::int8_t(drawn < 5 ? -1 - drawn : drawn - 4);
  }
  return speeds;
}

Freeway::State Freeway::Start(const Speeds& speed) {
  State state;
  SetSpeeds(&state, speed);
  return state;
}

// Order: chicken, reward and new speeds at the top, cars, timers.
Freeway::Change Freeway::Advance(State* state, std::int32_t action, const Luck& luck) {
  State& s = *state;
  Change change;
  MoveChicken(&s, action);
  if (s.row == 0) {
    ++change.reward;
    SetSpeeds(&s, luck.speed);
    s.row = kBottom;
  }
  MoveCars(&s);
  if (s.move_timer > 0) --s.move_timer;
  change.lost = --s.steps_left < 0;
  return change;
}

void Freeway::Write(const State& state, std::uint8_t* cells) {
  std::memset(cells, 0, kSide * kSide * kChannels);
  *Chicken(state, cells) = 1;
  for (int i = 0; i < kLanes; ++i) PutCar(state, i, 1, cells);
}

// Rewrites the chicken and the cars that moved or turned.
void Freeway::Update(const State& before, const State& after, const Change&, std::uint8_t* cells) {
  *Chicken(before, cells) = 0;
  *Chicken(after, cells) = 1;
  // Most steps move few cars.
  if (before.x == after.x && before.speed == after.speed) return;
  for (int i = 0; i < kLanes; ++i) {
    const auto car = std::size_t(i);
    if (before.x[car] == after.x[car] && before.speed[car] == after.speed[car]) continue;
    PutCar(before, i, 0, cells);
    PutCar(after, i, 1, cells);
  }
}

Environment::Picture Freeway::Render(const State& state) {
  // In the order of the channels: chicken, car, then the trails from fast to slow.
  constexpr Color kColors[kChannels] = {{250, 220, 90}, {210, 80, 70}, {150, 60, 55}, {125, 55, 50},
                                        {100, 50, 48},  {80, 46, 46},  {60, 42, 44}};
  std::array<std::uint8_t, kSide * kSide * kChannels> cells;
  Write(state, cells.data());
  return minatar::DrawCells(cells, kColors);
}

template std::unique_ptr<Environment> MakeMinAtar<Freeway>(minatar::ActionSet, const EnvOptions&);
template std::unique_ptr<VectorEnv> MakeMinAtarVector<Freeway>(minatar::ActionSet,
                                                               const EnvOptions&, int,
                                                               EpisodeSeeder);

}  // namespace troop
