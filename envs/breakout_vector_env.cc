#include "core/check.h"
#include "envs/breakout.h"
#include "envs/bytes.h"
#include "envs/native_vector_env.h"

namespace troop {
namespace {

// Keeps each observation in its row and changes only the cells that the step changed.
class BreakoutVectorEnv final : public NativeVectorEnv {
 public:
  BreakoutVectorEnv(breakout::ActionSet set, const EnvOptions& options, int size,
                    EpisodeSeeder seeder)
      : NativeVectorEnv(breakout::Spec(set, options.max_episode_steps), size, std::move(seeder)),
        set_(set),
        sticky_actions_(options.sticky_actions),
        games_(size) {}

  Environment::Picture Render(int index) const override {
    return breakout::Draw(games_.at(index).state);
  }

 private:
  struct Game {
    breakout::State state;
    std::int64_t steps = 0;  // of the episode
    breakout::Chance chance;
  };

  void Start(int index, std::uint64_t seed) override {
    Game& game = games_[index];
    game.chance = breakout::Chance(seed, sticky_actions_);
    game.state = breakout::Start(game.chance.from_the_right());
    game.steps = 0;
    breakout::Write(game.state, Row(index));
  }

  void StepAll(const std::byte* action) override {
    float* const reward = reward_.data<float>();
    std::uint8_t* const terminated = terminated_.data<std::uint8_t>();
    std::uint8_t* const truncated = truncated_.data<std::uint8_t>();
    const auto count = std::int32_t(spec_.action.count);
    for (int i = 0; i < size_; ++i) {
      Game& game = games_[i];
      const std::int32_t wanted = ReadDiscrete({action + i * sizeof(count), sizeof(count)}, count);
      const breakout::State before = game.state;
      const breakout::Change change = breakout::Advance(
          &game.state, game.chance.Play(breakout::FullAction(set_, wanted)));
      breakout::Update(before, game.state, change, Row(i));
      reward[i] = change.brick >= 0 ? 1.0f : 0.0f;
      terminated[i] = change.lost;
      truncated[i] = ++game.steps == spec_.max_episode_steps;
      if (terminated[i] | truncated[i]) EndEpisode(i);
    }
  }

  std::uint8_t* Row(int index) const {
    return reinterpret_cast<std::uint8_t*>(ObservationRow(index).data());
  }

  const breakout::ActionSet set_;
  const double sticky_actions_;
  std::vector<Game> games_;
};

}  // namespace

std::unique_ptr<VectorEnv> MakeBreakoutVectorEnv(breakout::ActionSet set,
                                                 const EnvOptions& options, int size,
                                                 EpisodeSeeder seeder) {
  return std::make_unique<BreakoutVectorEnv>(set, options, size, std::move(seeder));
}

}  // namespace troop
