// Rules of Seaquest; the order of events within a step is MinAtar's.

#include "envs/minatar/seaquest.h"

#include <cstring>

#include "envs/minatar/minatar_env.h"

namespace troop {
namespace {

using State = Seaquest::State;
using Swimmer = Seaquest::Swimmer;
using Swimmers = Seaquest::Swimmers;
using minatar::Outcome;
constexpr int kSide = Seaquest::kSide;

bool Together(const Swimmer& a, const Swimmer& b) { return a.x == b.x && a.y == b.y; }
bool AtPlayer(const State& s, const Swimmer& a) { return a.x == s.x && a.y == s.y; }

// Moves one cell forward; false if the object left the board.
bool Swim(Swimmer* swimmer) {
  swimmer->x = std::int8_t(swimmer->x + (swimmer->to_the_right ? 1 : -1));
  return swimmer->x >= 0 && swimmer->x < kSide;
}

// A new object at the edge from which it comes.
Swimmer Enter(const Seaquest::Newcomer& newcomer, std::int8_t move_timer, std::int8_t shot_timer) {
  return {std::int8_t(newcomer.from_the_left ? 0 : kSide - 1), newcomer.row, newcomer.from_the_left,
          move_timer, shot_timer};
}

// Enemies of one row all swim in the same direction; others are not spawned.
void SpawnEnemy(State* s, const Seaquest::Newcomer& enemy) {
  // Enemies with opposite directions in one row would pass through each other.
  const auto in_the_way = [&](const Swimmer& other) {
    return other.y == enemy.row && other.to_the_right != enemy.from_the_left;
  };
  if (std::ranges::any_of(s->fish.all(), in_the_way) ||
      std::ranges::any_of(s->submarines.all(), in_the_way)) {
    return;
  }
  Swimmers& kind = enemy.submarine ? s->submarines : s->fish;
  kind.Add(Enter(enemy, s->move_interval, Seaquest::kEnemyShotInterval));
}

// Restarts each timer that has expired, also if its enemy was discarded.
void Spawn(State* s, const Seaquest::Luck& luck) {
  if (s->spawn_timer == 0) {
    if (luck.enemy.comes) SpawnEnemy(s, luck.enemy);
    s->spawn_timer = s->spawn_interval;
  }
  if (s->diver_timer == 0) {
    if (luck.diver.comes) s->divers.Add(Enter(luck.diver, Seaquest::kDiverMoveInterval, 0));
    s->diver_timer = Seaquest::kDiverSpawnInterval;
  }
}

// Moves or fires. The submarine faces the direction of its last horizontal move.
void Act(State* s, std::int32_t action) {
  switch (action) {
    case minatar::kFire:
      if (s->shot_timer != 0) break;
      s->shots.Add({s->x, s->y, s->to_the_right, 0, 0});
      s->shot_timer = Seaquest::kShotInterval;
      break;
    case minatar::kLeft:
      s->x = std::int8_t(std::max(s->x - 1, 0));
      s->to_the_right = false;
      break;
    case minatar::kRight:
      s->x = std::int8_t(std::min(s->x + 1, kSide - 1));
      s->to_the_right = true;
      break;
    case minatar::kUp:
      s->y = std::int8_t(std::max(s->y - 1, 0));
      break;
    case minatar::kDown:
      s->y = std::int8_t(std::min(s->y + 1, Seaquest::kLowestRow));
      break;
    default:
      break;
  }
}

// Removes the first of `others` that shares a cell with `swimmer`.
bool RemoveAt(const Swimmer& swimmer, Swimmers* others) {
  for (int i = 0; i < others->size(); ++i) {
    if (!Together((*others)[i], swimmer)) continue;
    others->Remove(i);
    return true;
  }
  return false;
}

// Moves shots from the newest to the oldest, like all Move functions, so that Remove keeps indices.
void MoveShots(State* s, Outcome* outcome) {
  for (int i = s->shots.size() - 1; i >= 0; --i) {
    Swimmer& shot = s->shots[i];
    const bool stays = Swim(&shot);
    const bool hits = stays && (RemoveAt(shot, &s->fish) || RemoveAt(shot, &s->submarines));
    outcome->reward = std::int8_t(outcome->reward + hits);
    if (!stays || hits) s->shots.Remove(i);
  }
}

// Divers board before or after they move, if there is room.
void MoveDivers(State* s) {
  const auto boards = [s](const Swimmer& diver) {
    return AtPlayer(*s, diver) && s->divers_on_board < Seaquest::kDiversMax;
  };
  for (int i = s->divers.size() - 1; i >= 0; --i) {
    Swimmer& diver = s->divers[i];
    bool on_board = boards(diver);
    bool stays = true;
    if (!on_board && diver.move_timer == 0) {
      diver.move_timer = Seaquest::kDiverMoveInterval;
      stays = Swim(&diver);
      on_board = stays && boards(diver);
    } else if (!on_board) {
      --diver.move_timer;
    }
    s->divers_on_board = std::int8_t(s->divers_on_board + on_board);
    if (on_board || !stays) s->divers.Remove(i);
  }
}

// Moves one enemy; false if it left the board or swam into a shot.
bool MoveEnemy(State* s, Swimmer* enemy, Outcome* outcome) {
  outcome->lost |= AtPlayer(*s, *enemy);
  if (enemy->move_timer != 0) {
    --enemy->move_timer;
    return true;
  }
  enemy->move_timer = s->move_interval;
  if (!Swim(enemy)) return false;
  if (AtPlayer(*s, *enemy)) {
    outcome->lost = true;
    return true;
  }
  const bool hit = RemoveAt(*enemy, &s->shots);
  outcome->reward = std::int8_t(outcome->reward + hit);
  return !hit;
}

// A submarine that leaves the board still fires if its timer has expired; MoveEnemyShots then
// removes that shot in the same step.
void MoveSubmarines(State* s, Outcome* outcome) {
  for (int i = s->submarines.size() - 1; i >= 0; --i) {
    Swimmer& enemy = s->submarines[i];
    const bool stays = MoveEnemy(s, &enemy, outcome);
    if (enemy.shot_timer == 0) {
      enemy.shot_timer = Seaquest::kEnemyShotInterval;
      s->enemy_shots.Add({enemy.x, enemy.y, enemy.to_the_right, 0, 0});
    } else {
      --enemy.shot_timer;
    }
    if (!stays) s->submarines.Remove(i);
  }
}

// A shot hits the player before or after it moves, so that neither passes through the other.
void MoveEnemyShots(State* s, Outcome* outcome) {
  for (int i = s->enemy_shots.size() - 1; i >= 0; --i) {
    Swimmer& shot = s->enemy_shots[i];
    outcome->lost |= AtPlayer(*s, shot);
    const bool stays = Swim(&shot);
    outcome->lost |= stays && AtPlayer(*s, shot);
    if (!stays) s->enemy_shots.Remove(i);
  }
}

// Fish have no shots; otherwise they are like submarines.
void MoveFish(State* s, Outcome* outcome) {
  for (int i = s->fish.size() - 1; i >= 0; --i) {
    if (!MoveEnemy(s, &s->fish[i], outcome)) s->fish.Remove(i);
  }
}

// Called at each surfacing.
void Ramp(State* s) {
  if (!s->ramping) return;
  if (s->spawn_interval <= 1 && s->move_interval <= Seaquest::kLastMoveInterval) return;
  // Every second ramp also speeds up the moves.
  if (s->move_interval > Seaquest::kLastMoveInterval && s->moves_ramp_next) --s->move_interval;
  if (s->spawn_interval > 1) --s->spawn_interval;
  s->moves_ramp_next = !s->moves_ramp_next;
}

// Surfaces with at least one diver, and returns the reward for a full load and the remaining
// oxygen.
// The reward is proportional to the remaining oxygen, up to 10.
int Surface(State* s) {
  s->at_surface = true;
  const bool full = s->divers_on_board == Seaquest::kDiversMax;
  const int reward = full ? s->oxygen * 10 / Seaquest::kOxygenMax : 0;
  s->divers_on_board = std::int8_t((full ? 0 : s->divers_on_board) - 1);
  s->oxygen = Seaquest::kOxygenMax;
  Ramp(s);
  return reward;
}

// Oxygen falls below the surface; surfacing without a diver ends the episode.
void Breathe(State* s, Outcome* outcome) {
  outcome->lost |= s->oxygen <= 0;
  if (s->y > 0) {
    --s->oxygen;
    s->at_surface = false;
  } else if (!s->at_surface) {
    if (s->divers_on_board == 0) {
      outcome->lost = true;
    } else {
      outcome->reward = std::int8_t(outcome->reward + Surface(s));
    }
  }
}

}  // namespace

// Draws numbers only if a timer has expired; their order decides the result of a seed.
Seaquest::Luck Seaquest::Draw(const State& state, std::int32_t, Rng* rng) {
  const auto side = [rng] { return (rng->NextU32() & 1) != 0; };
  const auto row = [rng] { return std::int8_t(1 + rng->Below(kLowestRow)); };
  Luck luck;
  if (state.spawn_timer == 0) {
    // Drawn even if the enemy is then discarded.
    luck.enemy = {
        .comes = true, .from_the_left = side(), .submarine = rng->Below(3) == 0, .row = row()};
  }
  if (state.diver_timer == 0) luck.diver = {.comes = true, .from_the_left = side(), .row = row()};
  return luck;
}

Seaquest::Change Seaquest::Advance(State* state, std::int32_t action, const Luck& luck) {
  State& s = *state;
  Change change;
  // Order: spawn, player, shots, divers, submarines, their shots, fish, timers, oxygen.
  Spawn(&s, luck);
  Act(&s, action);
  MoveShots(&s, &change);
  MoveDivers(&s);
  MoveSubmarines(&s, &change);
  MoveEnemyShots(&s, &change);
  MoveFish(&s, &change);
  --s.spawn_timer;
  --s.diver_timer;
  if (s.shot_timer > 0) --s.shot_timer;
  Breathe(&s, &change);
  return change;
}

// The gauge row shows oxygen from the left and divers on board from the right.
void Seaquest::Write(const State& state, std::uint8_t* cells) {
  const auto set = [cells](int row, int column, Channel channel) {
    cells[(row * kSide + column) * kChannels + channel] = 1;
  };
  const auto put = [&](const Swimmers& swimmers, Channel channel, bool trails) {
    for (const Swimmer& swimmer : swimmers.all()) {
      set(swimmer.y, swimmer.x, channel);
      const int behind = swimmer.x + (swimmer.to_the_right ? -1 : 1);
      if (trails && behind >= 0 && behind < kSide) set(swimmer.y, behind, kTrail);
    }
  };
  std::memset(cells, 0, kSide * kSide * kChannels);
  set(state.y, state.x, kFront);
  // The submarine turns only by moving, so its back is always on the board.
  set(state.y, state.x + (state.to_the_right ? -1 : 1), kBack);
  for (int i = 0; i < state.oxygen * kSide / kOxygenMax; ++i) set(kGaugeRow, i, kOxygen);
  for (int i = 1; i <= state.divers_on_board; ++i) set(kGaugeRow, kSide - 1 - i, kDiversOnBoard);
  put(state.shots, kShot, false);
  put(state.enemy_shots, kEnemyShot, false);
  put(state.fish, kFish, true);
  put(state.submarines, kEnemySubmarine, true);
  put(state.divers, kDiver, true);
}

Environment::Picture Seaquest::Render(const State& state) {
  // In the order of Channel.
  constexpr Color kColors[kChannels] = {
      {70, 140, 220}, {50, 100, 160}, {250, 220, 90},  {50, 60, 80},    {225, 150, 60},
      {110, 180, 90}, {210, 80, 70},  {120, 190, 230}, {230, 230, 230}, {230, 230, 230}};
  std::array<std::uint8_t, kSide * kSide * kChannels> cells;
  Write(state, cells.data());
  return minatar::DrawCells(cells, kColors);
}

template std::unique_ptr<Environment> MakeMinAtar<Seaquest>(minatar::ActionSet, const EnvOptions&);
template std::unique_ptr<VectorEnv> MakeMinAtarVector<Seaquest>(minatar::ActionSet,
                                                                const EnvOptions&, int,
                                                                EpisodeSeeder);

}  // namespace troop
