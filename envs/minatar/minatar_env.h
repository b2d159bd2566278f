#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "envs/minatar/game.h"
#include "envs/observation_io.h"
#include "envs/vector/native_vector_env.h"

// Environments for a game of game.h: single and vector. Included by the games' source files and
// by tests.
namespace troop {

// Maps an agent's action to the full action set.
template <class Game>
std::int32_t FullAction(minatar::ActionSet set, std::int32_t action) {
  return set == minatar::ActionSet::kFull ? action : Game::kActions[std::size_t(action)];
}

template <class Game>
EnvSpec MinAtarSpec(minatar::ActionSet set, std::int64_t max_episode_steps) {
  return minatar::Spec(Game::kName, Game::kChannels, Game::kActions, set, max_episode_steps);
}

// A single game; the slow reference that the vector must match.
template <class Game>
class MinAtarEnv final : public Environment {
 public:
  static constexpr int kCells = minatar::kSide * minatar::kSide * Game::kChannels;
  MinAtarEnv(minatar::ActionSet set, const EnvOptions& options)
      : spec_(MinAtarSpec<Game>(set, options.max_episode_steps)),
        set_(set),
        sticky_actions_(options.sticky_actions),
        ramping_(options.difficulty_ramping) {}

  const EnvSpec& spec() const override { return spec_; }

  void Reset(std::uint64_t seed, std::span<std::byte> observation) override {
    chance_ = minatar::Chance(seed, sticky_actions_);
    state_ = Game::Start(ramping_, chance_.rng());
    steps_ = 0;
    playing_ = true;
    Observe(observation);
  }

  StepResult Step(std::span<const std::byte> action, std::span<std::byte> observation) override {
    TROOP_CHECK(playing_, "no episode is under way: Reset");
    const std::int32_t wanted = ReadDiscrete(action, std::int32_t(spec_.action.count));
    const std::int32_t played = chance_.Play(FullAction<Game>(set_, wanted));
    const auto luck = Game::Draw(state_, played, chance_.rng());
    const minatar::Outcome outcome = Game::Advance(&state_, played, luck);
    playing_ = !outcome.lost;
    Observe(observation);
    return {.reward = float(outcome.reward),
            .terminated = outcome.lost,
            .truncated = ++steps_ == spec_.max_episode_steps};
  }

  Picture Render() const override { return Game::Render(state_); }

  const typename Game::State& state() const { return state_; }
  void set_state(const typename Game::State& state) { state_ = state; }

 private:
  void Observe(std::span<std::byte> observation) const {
    TROOP_CHECK(observation.size() == kCells, "observation of {} bytes, not {}", kCells,
                observation.size());
    Game::Write(state_, reinterpret_cast<std::uint8_t*>(observation.data()));
  }

  const EnvSpec spec_;
  const minatar::ActionSet set_;
  const double sticky_actions_;
  const bool ramping_;
  minatar::Chance chance_;
  typename Game::State state_;
  std::int64_t steps_ = 0;
  bool playing_ = false;
};

// N games; observations stay in their rows. A game with Update writes only the cells that its step
// changed.
template <class Game>
class MinAtarVectorEnv final : public NativeVectorEnv {
 public:
  MinAtarVectorEnv(minatar::ActionSet set, const EnvOptions& options, int size,
                   EpisodeSeeder seeder)
      : NativeVectorEnv(MinAtarSpec<Game>(set, options.max_episode_steps), size, std::move(seeder)),
        set_(set),
        sticky_actions_(options.sticky_actions),
        ramping_(options.difficulty_ramping),
        episodes_(size) {}

  Environment::Picture Render(int index) const override {
    return Game::Render(episodes_.at(index).state);
  }

 private:
  struct Episode {
    typename Game::State state;
    std::int64_t steps = 0;
    minatar::Chance chance;
  };

  void Start(int index, std::uint64_t seed) override {
    Episode& episode = episodes_[index];
    episode.chance = minatar::Chance(seed, sticky_actions_);
    episode.state = Game::Start(ramping_, episode.chance.rng());
    episode.steps = 0;
    Game::Write(episode.state, Row(index));
  }

  void StepAll(const std::byte* action) override {
    float* const reward = reward_.data<float>();
    std::uint8_t* const terminated = terminated_.data<std::uint8_t>();
    std::uint8_t* const truncated = truncated_.data<std::uint8_t>();
    const auto count = std::int32_t(spec_.action.count);
    for (int i = 0; i < size_; ++i) {
      Episode& episode = episodes_[i];
      const std::int32_t wanted = ReadDiscrete({action + i * sizeof(count), sizeof(count)}, count);
      const std::int32_t played = episode.chance.Play(FullAction<Game>(set_, wanted));
      const minatar::Outcome outcome = Play(&episode, played, Row(i));
      reward[i] = float(outcome.reward);
      terminated[i] = outcome.lost;
      truncated[i] = ++episode.steps == spec_.max_episode_steps;
      if (terminated[i] | truncated[i]) EndEpisode(i);
    }
  }

  // Plays one step of a game and writes its observation.
  static minatar::Outcome Play(Episode* episode, std::int32_t action, std::uint8_t* cells) {
    typename Game::State& state = episode->state;
    const auto luck = Game::Draw(state, action, episode->chance.rng());
    if constexpr (requires { &Game::Update; }) {
      const typename Game::State before = state;
      const auto change = Game::Advance(&state, action, luck);
      Game::Update(before, state, change, cells);
      return change;
    } else {
      const auto change = Game::Advance(&state, action, luck);
      Game::Write(state, cells);
      return change;
    }
  }

  std::uint8_t* Row(int index) const {
    return reinterpret_cast<std::uint8_t*>(ObservationRow(index).data());
  }

  const minatar::ActionSet set_;
  const double sticky_actions_;
  const bool ramping_;
  std::vector<Episode> episodes_;
};

template <class Game>
std::unique_ptr<Environment> MakeMinAtar(minatar::ActionSet set, const EnvOptions& options) {
  return std::make_unique<MinAtarEnv<Game>>(set, options);
}

template <class Game>
std::unique_ptr<VectorEnv> MakeMinAtarVector(minatar::ActionSet set, const EnvOptions& options,
                                             int size, EpisodeSeeder seeder) {
  return std::make_unique<MinAtarVectorEnv<Game>>(set, options, size, std::move(seeder));
}

}  // namespace troop
