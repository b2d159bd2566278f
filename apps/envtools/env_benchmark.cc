// Measures the speed of an environment.
#include "apps/envtools/env_benchmark.h"

#include <algorithm>

#include "apps/envtools/env_player.h"
#include "core/base/time.h"

namespace troop {
namespace {

// Steps until `end`; returns the number of environment steps. The clock is read every 16 steps.
Result<std::int64_t> PlayUntil(EnvPlayer* player, const Clock& clock, Time end) {
  std::int64_t steps = 0;
  while (clock.Now() < end) {
    for (int i = 0; i < 16; ++i) TROOP_RETURN_IF_ERROR(player->Step());
    steps += 16 * player->env().size();
  }
  return steps;
}

}  // namespace

// Warm-up of a tenth of the time, then kEnvSpeedParts measured parts.
Result<EnvSpeed> MeasureEnvironment(const std::string& id, const EnvOptions& options, int size,
                                    Duration how_long) {
  EnvOptions measured = options;
  measured.measure = true;
  TROOP_ASSIGN_OR_RETURN(const auto player,
                         EnvPlayer::Make({.id = id, .env = measured, .size = size}));
  TROOP_RETURN_IF_ERROR(player->Restart());
  const SystemClock clock;
  TROOP_RETURN_IF_ERROR(PlayUntil(player.get(), clock, clock.Now() + how_long / 10).status());
  EnvSpeed speed;
  const std::optional<Duration> inside = player->env().inside();
  const Time begin = clock.Now();
  std::int64_t steps = 0;
  // Several parts show how much the speed varies.
  for (int part = 0; part < kEnvSpeedParts; ++part) {
    const Time start = clock.Now();
    TROOP_ASSIGN_OR_RETURN(const std::int64_t played,
                           PlayUntil(player.get(), clock, start + how_long / kEnvSpeedParts));
    steps += played;
    speed.steps_per_s.push_back(double(played) / ToSeconds(clock.Now() - start));
  }
  std::ranges::sort(speed.steps_per_s);
  speed.a_step = ToSeconds(clock.Now() - begin) / double(steps);
  // Time inside the environment itself; the rest of a step is the overhead of its process.
  if (inside) {
    speed.inside = ToSeconds(*player->env().inside() - *inside) / double(steps);
  }
  return speed;
}

}  // namespace troop
