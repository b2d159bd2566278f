// Common parts of the MinAtar games: sticky actions, spec and pictures.

#include "envs/minatar/game.h"

#include <fmt/format.h>

#include <cmath>

#include "core/base/check.h"
#include "core/graphics/grid_picture.h"
#include "envs/episode_rng.h"

namespace troop::minatar {

// limit_ is the probability times 2^32, so that a comparison with a random word decides.
Chance::Chance(std::uint64_t seed, double sticky_actions)
    : rng_(EpisodeRng(seed)), limit_(std::uint64_t(std::llround(sticky_actions * 0x1p32))) {}

// Spec of a game: [10, 10, channels] u8, and the full or the minimal set of actions.
EnvSpec Spec(std::string_view name, int channels, std::span<const Action> minimal, ActionSet set,
             std::int64_t max_episode_steps) {
  const bool full = set == ActionSet::kFull;
  return {.id = fmt::format("MinAtar/{}-{}", name, full ? "v0" : "v1"),
          .observation = {DType::kU8, {kSide, kSide, channels}},
          .action = {.kind = ActionSpec::Kind::kDiscrete,
                     .count = full ? kFullActions : std::int64_t(minimal.size())},
          .max_episode_steps = max_episode_steps};
}

// Draws each cell in the color of its last channel that is set.
Environment::Picture DrawCells(std::span<const std::uint8_t> cells,
                               std::span<const Color> channel_colors) {
  const std::size_t channels = channel_colors.size();
  TROOP_CHECK(cells.size() == kSide * kSide * channels, "{} bytes for {} channels", cells.size(),
              channels);
  std::vector<Color> colors(kSide * kSide, Color{24, 26, 32});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] != 0) colors[i / channels] = channel_colors[i % channels];
  }
  return DrawBoard(kSide, kSide, colors);
}

}  // namespace troop::minatar
