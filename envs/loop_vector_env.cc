#include "core/check.h"
#include "envs/native_vector_env.h"

namespace troop {
namespace {

class LoopVectorEnv final : public NativeVectorEnv {
 public:
  LoopVectorEnv(std::vector<std::unique_ptr<Environment>> envs, EpisodeSeeder seeder)
      : NativeVectorEnv(envs[0]->spec(), int(envs.size()), std::move(seeder)),
        envs_(std::move(envs)) {}

  Environment::Picture Render(int index) const override { return envs_.at(index)->Render(); }

 private:
  void Start(int index, std::uint64_t seed) override {
    envs_[index]->Reset(seed, ObservationRow(index));
  }

  void StepAll(const std::byte* action) override {
    const std::size_t action_bytes = spec_.action.tensor().bytes();
    for (int i = 0; i < size_; ++i) {
      const StepResult step =
          envs_[i]->Step({action + i * action_bytes, action_bytes}, ObservationRow(i));
      reward_.data<float>()[i] = step.reward;
      terminated_.data<std::uint8_t>()[i] = step.terminated;
      truncated_.data<std::uint8_t>()[i] = step.truncated;
      if (step.terminated || step.truncated) EndEpisode(i);
    }
  }

  std::vector<std::unique_ptr<Environment>> envs_;
};

}  // namespace

std::unique_ptr<VectorEnv> MakeLoopVectorEnv(std::vector<std::unique_ptr<Environment>> envs,
                                             EpisodeSeeder seeder) {
  TROOP_CHECK(!envs.empty(), "a vector of no environments");
  return std::make_unique<LoopVectorEnv>(std::move(envs), std::move(seeder));
}

}  // namespace troop
