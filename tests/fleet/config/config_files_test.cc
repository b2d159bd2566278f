// The files in configs/.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fleet/config/config.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

TEST(ConfigFilesTest, ShippedConfigsAreValidAndNamedAfterTheirRun) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TROOP_SOURCE_DIR "/configs")) {
    const Result<Config> config = LoadConfigFile(entry.path().string(), {});
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->name, entry.path().stem().string());
    ++files;
  }
  EXPECT_GE(files, 6);
}

TEST(ConfigFilesTest, ResolvesInterpreterRelativeToConfigFolder) {
  const TempFolder folder;
  const std::string config_file = folder.path() + "/own/run.toml";
  const auto path = std::filesystem::path(folder.path() + "/own/venv/bin/python");
  const std::string python = path.lexically_normal().string();
  std::filesystem::create_directories(folder.path() + "/own/venv/bin");
  std::filesystem::create_symlink("/bin/true", python);
  const auto python_of = [&](const std::string& text, std::vector<std::string> overrides) {
    std::ofstream(config_file) << "[env]\npython = \"" << text << "\"\n";
    const auto config = LoadConfigFile(config_file, overrides);
    return config.ok() ? config->env.python : config.status().ToString();
  };
  EXPECT_EQ(python_of("venv/bin/python", {}), python);
  EXPECT_EQ(python_of("./venv/../venv/bin/python", {}), python);
  EXPECT_EQ(python_of("python3", {}), "python3");
  EXPECT_EQ(python_of("/usr/bin/python3", {}), "/usr/bin/python3");
  EXPECT_EQ(python_of("none/bin/python", {}), "none/bin/python");
  EXPECT_EQ(python_of("x", {"env.python=venv/bin/python"}), "venv/bin/python");
  EXPECT_EQ(python_of("venv/bin/python", {"fleet.engine=kubernetes"}), "venv/bin/python");
  const auto here =
      std::filesystem::path(python).lexically_relative(std::filesystem::current_path()).string();
  EXPECT_EQ(python_of(here, {}), python);
  EXPECT_EQ(python_of("x", {"env.python=" + here}), python);
}

TEST(ConfigFilesTest, MinAtarConfigsDifferOnlyInGameAndTunedKeys) {
  Config first;
  for (const std::string game : {"Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders"}) {
    std::string name = "apex_" + game;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto config = LoadConfigFile(TROOP_SOURCE_DIR "/configs/" + name + ".toml", {});
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->env.id, "MinAtar/" + game + "-v1");
    EXPECT_EQ(config->replay.samples_per_insert, double(config->learner.batch_size))
        << "one batch per agent step";
    if (game == "Breakout") first = *config;
    Config expected = first;
    expected.name = config->name;
    expected.env.id = config->env.id;
    expected.actor.n_step = config->actor.n_step;
    expected.replay.alpha = config->replay.alpha;
    expected.optimizer.learning_rate = config->optimizer.learning_rate;
    expected.optimizer.final_lr_fraction = config->optimizer.final_lr_fraction;
    EXPECT_EQ(*config, expected) << game;
  }
}

// Horgan et al. 2018 (arXiv:1803.00933), sections 3 and 4.1 and the appendix on Atari.
TEST(ConfigFilesTest, ApexPaperConfigMatchesPaper) {
  const auto loaded = LoadConfigFile(TROOP_SOURCE_DIR "/configs/apex_atari_paper.toml", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  Config expected;
  expected.name = "apex_atari_paper";
  expected.env = {.id = "ALE/Pong-v5",
                  .max_episode_steps = 50000 / 4,
                  .sticky_actions = 0,
                  .reward_clip = 1,
                  .action_repeat = 4,
                  .frame_stack = 4,
                  .noop_max = 30};
  expected.network.layers = {{.type = LayerType::kConv2d, .filters = 32, .kernel = 8, .stride = 4},
                             {.type = LayerType::kConv2d, .filters = 64, .kernel = 4, .stride = 2},
                             {.type = LayerType::kConv2d, .filters = 64, .kernel = 3, .stride = 1}};
  expected.network.dueling_units = 512;
  expected.fleet.actors = 360;
  expected.fleet.transport = FleetTransport::kTcp;
  expected.actor = {.envs = 1,
                    .epsilon_base = 0.4,
                    .epsilon_alpha = 7,
                    .n_step = 3,
                    .weight_sync_steps = 400 / 4,
                    .insert_batch_size = 50,
                    .max_inflight_inserts = 100 / 50};
  expected.replay = {.capacity_items = 2000000,
                     .min_items = 50000,
                     .alpha = 0.6,
                     .beta = 0.4,
                     .trim_every_updates = 100,
                     .samples_per_insert = 0};
  expected.run.total_steps = 22.8e9 / 4;
  expected.learner = {.batch_size = 512,
                      .gamma = 0.99,
                      .double_q = true,
                      .loss = TdLoss::kMse,
                      .target_update_every_updates = 2500,
                      .max_grad_norm = 40,
                      .prefetch = 16,
                      .publish_every_updates = 10};
  expected.optimizer = {.type = OptimizerType::kRmsProp,
                        .learning_rate = 0.00025 / 4,
                        .decay = 0.95,
                        .centered = true,
                        .epsilon = 1.5e-7};
  EXPECT_EQ(*loaded, expected) << ToToml(*loaded);
}

// Horgan et al. 2018, section 4.2 and appendix D.
TEST(ConfigFilesTest, DpgPaperConfigMatchesPaper) {
  const auto loaded = LoadConfigFile(TROOP_SOURCE_DIR "/configs/apex_dpg_paper.toml", {});
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  Config expected;
  expected.name = "apex_dpg_paper";
  expected.env.id = "gymnasium:Humanoid-v5";
  expected.network.layers = {
      {.type = LayerType::kLinear, .units = 300, .activation = Activation::kTanh},
      {.type = LayerType::kLinear, .units = 200, .activation = Activation::kTanh}};
  expected.network.critic_layers = {
      {.type = LayerType::kLinear, .units = 400, .activation = Activation::kTanh},
      {.type = LayerType::kLinear, .units = 300, .activation = Activation::kTanh}};
  expected.fleet.actors = 64;
  expected.fleet.transport = FleetTransport::kTcp;
  expected.actor = {.envs = 1,
                    .noise_sigma = 0.3,
                    .n_step = 5,
                    .weight_sync_steps = 100,
                    .insert_batch_size = 50,
                    .max_inflight_inserts = 100 / 50};
  expected.replay = {.capacity_items = 1000000,
                     .min_items = 50000,
                     .alpha = 0.6,
                     .beta = 0.4,
                     .trim_every_updates = 100,
                     .samples_per_insert = 0,
                     .remover = RemoverKind::kPrioritized,
                     .evict_alpha = -0.4};
  expected.run.total_steps = 1.2e9;
  expected.learner = {.algorithm = AlgorithmKind::kDpg,
                      .batch_size = 256,
                      .gamma = 0.99,
                      .loss = TdLoss::kMse,
                      .target_update_every_updates = 100,
                      .max_grad_norm = 0,
                      .action_gradient_clip = 1,
                      .prefetch = 16,
                      .publish_every_updates = 40};
  expected.optimizer = {.type = OptimizerType::kAdam, .learning_rate = 1e-4};
  EXPECT_EQ(*loaded, expected) << ToToml(*loaded);
}

}  // namespace
}  // namespace troop
