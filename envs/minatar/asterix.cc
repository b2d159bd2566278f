// Rules of Asterix; the order of events within a step is MinAtar's.

#include "envs/minatar/asterix.h"

#include <algorithm>
#include <cstring>

#include "envs/minatar/minatar_env.h"

namespace troop {
namespace {

using minatar::kSide;
using State = Asterix::State;

// Moves the player within the board; the first and last rows are not lanes.
void Move(State* s, std::int32_t action) {
  // The player's column may be any; its row is limited to the lanes.
  const auto within = [](int at, int low, int high) {
    return std::int8_t(std::clamp(at, low, high));
  };
  switch (action) {
    case minatar::kLeft:
      s->x = within(s->x - 1, 0, kSide - 1);
      break;
    case minatar::kRight:
      s->x = within(s->x + 1, 0, kSide - 1);
      break;
    case minatar::kUp:
      s->y = within(s->y - 1, 1, Asterix::kLanes);
      break;
    case minatar::kDown:
      s->y = within(s->y + 1, 1, Asterix::kLanes);
      break;
    default:
      break;
  }
}

// Puts a being into the lane with the given rank among the free ones.
void Spawn(State* s, const Asterix::Luck& luck) {
  int rank = luck.rank;
  for (Asterix::Being& lane : s->lanes) {
    if (lane.x != Asterix::kNothing || rank-- > 0) continue;
    lane = {.x = std::int8_t(luck.from_the_left ? 0 : kSide - 1),
            .to_the_right = luck.from_the_left,
            .gold = luck.gold};
    return;
  }
}

// Resolves a meeting in the player's cell: gold is taken, an enemy ends the episode.
void Meet(State* s, minatar::Outcome* outcome) {
  Asterix::Being& lane = s->lanes[std::size_t(s->y - 1)];
  if (lane.x != s->x) return;
  if (!lane.gold) {
    outcome->lost = true;
    return;
  }
  lane.x = Asterix::kNothing;
  ++outcome->reward;
}

// Moves every being one cell; one that leaves the board frees its lane.
void MoveBeings(State* s) {
  for (Asterix::Being& lane : s->lanes) {
    if (lane.x == Asterix::kNothing) continue;
    lane.x = std::int8_t(lane.x + (lane.to_the_right ? 1 : -1));
    if (lane.x >= kSide) lane.x = Asterix::kNothing;  // x = -1 at the left is kNothing already
  }
}

// Shortens the intervals. The timer runs from kRampInterval to -1: a ramp every 102 steps.
void Ramp(State* s) {
  if (!s->ramping || (s->spawn_interval <= 1 && s->move_interval <= 1)) return;
  if (s->ramp_timer >= 0) {
    --s->ramp_timer;
    return;
  }
  // Every second ramp also speeds up the moves.
  if (s->move_interval > 1 && s->moves_ramp_next) --s->move_interval;
  if (s->spawn_interval > 1) --s->spawn_interval;
  s->moves_ramp_next = !s->moves_ramp_next;
  s->ramp_timer = Asterix::kRampInterval;
}

}  // namespace

// A third of the beings is gold. The lane is uniform among the free ones.
Asterix::Luck Asterix::Draw(const State& state, std::int32_t, Rng* rng) {
  // Takes random numbers only if this step spawns.
  if (state.spawn_timer != 0) return {};
  const auto free = std::ranges::count(state.lanes, kNothing, &Being::x);
  if (free == 0) return {};
  const bool from_the_left = (rng->NextU32() & 1) != 0;
  const bool gold = rng->Below(3) == 0;
  return {true, from_the_left, gold, std::int8_t(rng->Below(std::uint32_t(free)))};
}

Asterix::Change Asterix::Advance(State* state, std::int32_t action, const Luck& luck) {
  State& s = *state;
  Change change;
  // Order: spawn, player, meeting, beings, meeting again, timers and ramp.
  if (s.spawn_timer == 0) {
    if (luck.spawn) Spawn(&s, luck);
    s.spawn_timer = s.spawn_interval;
  }
  Move(&s, action);
  Meet(&s, &change);
  if (s.move_timer == 0) {
    s.move_timer = s.move_interval;
    MoveBeings(&s);
    Meet(&s, &change);
  }
  --s.spawn_timer;
  --s.move_timer;
  Ramp(&s);
  return change;
}

// The trail cell shows the direction of a being.
void Asterix::Write(const State& state, std::uint8_t* cells) {
  const auto cell = [cells](int row, int column, Channel channel) -> std::uint8_t& {
    return cells[(row * kSide + column) * kChannels + channel];
  };
  std::memset(cells, 0, kSide * kSide * kChannels);
  cell(state.y, state.x, kPlayer) = 1;
  for (int i = 0; i < kLanes; ++i) {
    const Being& lane = state.lanes[std::size_t(i)];
    if (lane.x == kNothing) continue;
    cell(i + 1, lane.x, lane.gold ? kGold : kEnemy) = 1;
    // A being at the edge it came from has no trail cell.
    const int behind = lane.x + (lane.to_the_right ? -1 : 1);
    if (behind >= 0 && behind < kSide) cell(i + 1, behind, kTrail) = 1;
  }
}

Environment::Picture Asterix::Render(const State& state) {
  constexpr Color kColors[kChannels] = {
      {70, 140, 220}, {210, 80, 70}, {90, 80, 80}, {250, 220, 90}};
  std::array<std::uint8_t, kSide * kSide * kChannels> cells;
  Write(state, cells.data());
  return minatar::DrawCells(cells, kColors);
}

template std::unique_ptr<Environment> MakeMinAtar<Asterix>(minatar::ActionSet, const EnvOptions&);
template std::unique_ptr<VectorEnv> MakeMinAtarVector<Asterix>(minatar::ActionSet,
                                                               const EnvOptions&, int,
                                                               EpisodeSeeder);

}  // namespace troop
