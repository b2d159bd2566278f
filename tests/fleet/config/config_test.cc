#include "fleet/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/edit_distance.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/key_hint.h"
#include "tests/fleet/config/random_config.h"

namespace troop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

Result<Config> Parse(std::string_view text, std::vector<std::string> overrides = {}) {
  return ParseConfig(text, "run.toml", overrides);
}

std::vector<std::string> Errors(std::string_view text, std::vector<std::string> overrides = {}) {
  const Result<Config> config = Parse(text, std::move(overrides));
  if (config.ok()) return {};
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  std::vector<std::string> lines;
  std::istringstream stream(config.status().message());
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string OneError(std::string_view text, std::vector<std::string> overrides = {}) {
  const std::vector<std::string> lines = Errors(text, std::move(overrides));
  EXPECT_EQ(lines.size(), 1u) << testing::PrintToString(lines);
  return lines.empty() ? "" : lines[0];
}

std::string ReadText(const std::string& path) {
  std::ifstream file(std::string(TROOP_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ConfigTest, ReturnsDefaultsForEmptyFile) {
  const Result<Config> config = Parse("");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(*config, Config{});
}

TEST(ConfigTest, ReadsKeysInEveryTomlSpelling) {
  const Result<Config> config = Parse(R"(
seed = 7
learner.gamma = 0.5
[replay]
alpha = 1          # an integer where a number is wanted
[actor]
"n_step" = 5
[network]
dueling = false
layers = [{type = "conv2d", filters = 32, kernel = 8, stride = 4},
          {type = "linear", units = 512, activation = "tanh"}]
)");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  Config expected;
  expected.seed = 7;
  expected.learner.gamma = 0.5;
  expected.replay.alpha = 1;
  expected.actor.n_step = 5;
  expected.network.dueling = false;
  expected.network.layers = {
      {.type = LayerType::kConv2d, .filters = 32, .kernel = 8, .stride = 4},
      {.type = LayerType::kLinear, .units = 512, .activation = Activation::kTanh}};
  EXPECT_EQ(*config, expected);
}

TEST(ConfigTest, ReadsLayersAsArrayOfTables) {
  const Result<Config> config = Parse(
      "[[network.layers]]\ntype = \"linear\"\nunits = 3\n[[network.layers]]\ntype = "
      "\"linear\"\nunits = 4\n");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  ASSERT_EQ(config->network.layers.size(), 2u);
  EXPECT_EQ(config->network.layers[1].units, 4);
}

TEST(ConfigTest, AcceptsWholeFloatsAsIntegers) {
  const Result<Config> config = Parse(
      "[run]\ntotal_steps = 1e6\n[learner]\nbatch_size = 1.28e2\n[replay]\ncapacity_items = 2e6");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->run.total_steps, 1e6);
  EXPECT_EQ(config->learner.batch_size, 128);
  EXPECT_EQ(config->replay.capacity_items, 2000000);
}

TEST(ConfigTest, RejectsFractionWhereIntegerIsExpected) {
  EXPECT_EQ(OneError("[learner]\nbatch_size = 2.5"),
            "run.toml:2: learner.batch_size: 2.5 is not an integer; give an integer in [1, 65536]");
  EXPECT_EQ(OneError("[run]\ntotal_steps = 5000.5"),
            "run.toml:2: run.total_steps: 5000.5 is not an integer; give an integer >= 1");
}

TEST(ConfigTest, UnknownKeyErrorNamesFileLineAndNearestKey) {
  EXPECT_EQ(OneError("seed = 1\n[learner]\nbacth_size = 3"),
            "run.toml:3: learner.bacth_size: unknown key; the nearest is learner.batch_size");
  EXPECT_EQ(OneError("batch_size = 3"),
            "run.toml:1: batch_size: unknown key; the nearest is learner.batch_size");
  EXPECT_EQ(OneError("[actor]\nalpha = 0.5"),
            "run.toml:2: actor.alpha: unknown key; the nearest is replay.alpha");
  EXPECT_EQ(OneError("\n[lerner]\ngamma = 0.5\nbatch_size = 7"),
            "run.toml:2: lerner: unknown section; the nearest is learner");
}

// frame_skip was answered with env.frame_stack, which is another thing.
TEST(ConfigTest, SuggestsKeyForOtherLibrariesSettingNames) {
  EXPECT_EQ(OneError("[env]\nframe_skip = 4"),
            "run.toml:2: env.frame_skip: unknown key; its name here is env.action_repeat");
  EXPECT_EQ(OneError("lr = 1e-3"),
            "run.toml:1: lr: unknown key; its name here is optimizer.learning_rate");
  EXPECT_EQ(OneError("[learner]\nsgd_stepsize = 1"),
            "run.toml:2: learner.sgd_stepsize: unknown key; its name here is "
            "optimizer.learning_rate");
  EXPECT_EQ(OneError("[learner]\nbuffer_size = 1000"),
            "run.toml:2: learner.buffer_size: unknown key; its name here is replay.capacity_items");
}

TEST(ConfigTest, OtherLibrariesNamesMapToKeysAndAreNotKeys) {
  std::set<std::string> keys, leaves;
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string name(key.name);
    keys.insert(name);
    leaves.insert(name.substr(name.rfind('.') + 1));
  }
  ASSERT_GT(KeyAliases().size(), 50u);
  for (const KeyAlias& other : KeyAliases()) {
    EXPECT_TRUE(keys.contains(std::string(other.key))) << other.name << " " << other.key;
    EXPECT_EQ(FindKeyAlias(other.name), other.key);
    EXPECT_FALSE(leaves.contains(std::string(other.name))) << other.name;
  }
}

TEST(ConfigTest, SuggestsNothingWhenNoKeyIsNear) {
  EXPECT_EQ(OneError("[learner]\nfooled = 1"),
            "run.toml:2: learner.fooled: unknown key; `troop config` lists all");
}

// Its second line named no place, and a terminal obeyed it.
TEST(ConfigTest, EscapesErrorsToOneLine) {
  EXPECT_EQ(OneError("\"a\\nb\\u001b[2J\" = 1"),
            "run.toml:1: a\\nb\\x1b[2J: unknown key; `troop config` lists all");
}

TEST(ConfigTest, WrongTypeErrorNamesGivenAndExpectedType) {
  EXPECT_EQ(OneError("[replay]\nalpha = \"much\""),
            "run.toml:2: replay.alpha: \"much\" is not a number; give a number in [0, 2]");
  EXPECT_EQ(OneError("[learner]\ndouble_q = 1"),
            "run.toml:2: learner.double_q: 1 is not true or false; give true or false");
  EXPECT_EQ(OneError("name = [1]"), "run.toml:1: name: a list is not a string; give a string");
  EXPECT_EQ(OneError("replay = 3"),
            "run.toml:1: replay: is a section; write [replay] and then its keys");
  EXPECT_EQ(OneError("[replay.alpha]\nx = 1"),
            "run.toml:1: replay.alpha: a table is not a number; give a number in [0, 2]");
  EXPECT_EQ(OneError("seed = 2026-11-21"),
            "run.toml:1: seed: a date or time is not an integer; give an integer >= 0");
  EXPECT_THAT(OneError("network.layers = 3"),
              HasSubstr("network.layers: 3 is not a list; write [{"));
}

TEST(ConfigTest, OutOfRangeErrorNamesRange) {
  EXPECT_EQ(OneError("seed = -1"), "run.toml:1: seed: -1 is out of range; give an integer >= 0");
  EXPECT_EQ(OneError("[actor]\nn_step = 0"),
            "run.toml:2: actor.n_step: 0 is out of range; give an integer in [1, 1024]");
  EXPECT_EQ(OneError("[optimizer]\nlearning_rate = 0"),
            "run.toml:2: optimizer.learning_rate: 0 is out of range; give a number > 0");
  EXPECT_EQ(OneError("[optimizer]\nbeta1 = 1"),
            "run.toml:2: optimizer.beta1: 1 is out of range; give a number in [0, 1)");
  EXPECT_EQ(OneError("[learner]\nloss = \"hubert\""),
            "run.toml:2: learner.loss: \"hubert\" is unknown; use one of \"huber\", \"mse\"");
}

TEST(ConfigTest, RejectsNonFiniteNumbers) {
  EXPECT_THAT(OneError("[evaluator]\nstop_at_return = nan"), HasSubstr("not finite"));
  EXPECT_THAT(OneError("[learner]\nmax_grad_norm = inf"), HasSubstr("not finite"));
  EXPECT_THAT(OneError("[actor]\ninsert_batch_size = inf"), HasSubstr("not an integer"));
}

TEST(ConfigTest, ReportsAllErrorsInLineOrder) {
  EXPECT_THAT(
      Errors("seed = -1\n[learner]\ngama = 1\nbatch_size = \"x\"\n[replay]\nmin_items = 10\n",
             {"env.idd=3", "actor.n_step=0"}),
      ElementsAre(StartsWith("run.toml:1: seed"), StartsWith("run.toml:3: learner.gama"),
                  StartsWith("run.toml:4: learner.batch_size"),
                  StartsWith("command line: env.idd=3: unknown key; the nearest is env.id"),
                  StartsWith("command line: actor.n_step=0: 0 is out of range")));
}

// A table of data in place of a config was answered with 20,000 lines, and a key of a megabyte with
// a line of one.
TEST(ConfigTest, TruncatesLongErrorsAndErrorLists) {
  std::string file;
  for (int i = 0; i < 60; ++i) file += fmt::format("k{} = 1\n", i);
  std::string said = Parse(file).status().message();
  EXPECT_EQ(std::ranges::count(said, '\n'), 50) << said;
  EXPECT_TRUE(said.ends_with("\nand 10 more like these")) << said;
  said = OneError(std::string(5000, 'k') + " = 1");
  EXPECT_LE(said.size(), 1003u);
  EXPECT_TRUE(said.starts_with("run.toml:1: kkk")) << said;
}

// The rest of such a path was passed over: the file "vocab.txt" was read.
TEST(ConfigTest, RejectsZeroByte) {
  EXPECT_EQ(OneError("data.vocabulary = \"vocab.txt\\u0000.old\""),
            "run.toml:1: data.vocabulary: contains a null byte, which no name or path may have");
}

TEST(ConfigTest, ReportsTomlSyntaxErrorWithLineAndColumn) {
  EXPECT_THAT(OneError("seed = 1\nname = \"x"), StartsWith("run.toml:2:10: not TOML: "));
  EXPECT_THAT(OneError("a = 1\na = 2"), StartsWith("run.toml:2:"));
  EXPECT_THAT(OneError("[learner\ngamma = 1"), StartsWith("run.toml:1:"));
  EXPECT_THAT(OneError(std::string("\xff\xfe\0x", 4)), StartsWith("run.toml:1:1: not TOML: "));
  EXPECT_THAT(OneError("a = " + std::string(5000, '[')), StartsWith("run.toml:1:"));
}

// toml++ 3.3 called them unreachable: undefined behaviour.
TEST(ConfigTest, DoesNotTreatNonAsciiLettersAsWhitespace) {
  EXPECT_THAT(OneError("s\u00e9ed = 1"), StartsWith("run.toml:1:2: not TOML: "));
  EXPECT_THAT(OneError("[\u02db]"), StartsWith("run.toml:1:2: not TOML: "));
  EXPECT_EQ(Parse("# \u00e9\nlog.dir = \"\"\"\\\n  \u00e9\"\"\"")->log.dir, "\u00e9");
}

TEST(ConfigTest, RejectsGarbageWithoutCrashing) {
  const std::string seed_text = ToToml(Config{});
  Rng rng({.run_seed = 5, .purpose = Purpose::kTest});
  for (int i = 0; i < 300; ++i) {
    std::string text = seed_text;
    for (int j = 0; j < 3; ++j) text[rng.Below(std::uint32_t(text.size()))] = char(rng.Below(256));
    const Result<Config> config = Parse(text);
    if (!config.ok()) {
      EXPECT_FALSE(config.status().message().empty());
    }
  }
}

TEST(ConfigTest, RejectsNewerVersionNamingBothVersions) {
  EXPECT_EQ(
      OneError("version = 3\n[brand_new]\nx = 1"),
      "run.toml:1: version: the file has version 3, but this program supports up to version 2; "
      "use a newer troop");
  EXPECT_THAT(OneError("version = 0"), HasSubstr("0 is out of range"));
}

TEST(ConfigTest, OverridesWinOverFileAndLastOverrideWins) {
  const Result<Config> config =
      Parse("seed = 1\n[replay]\nalpha = 0.1",
            {"replay.alpha=0.2", "seed = 9", "replay.alpha=0.3", "name=try-2", "env.id=Acrobot-v1",
             "learner.double_q=false", "run.total_steps=1e6", "log.dir=", "log.dir=\"a b\"",
             "network.layers=[{type=\"linear\", units=8}]"});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->replay.alpha, 0.3);
  EXPECT_EQ(config->seed, 9);
  EXPECT_EQ(config->name, "try-2");
  EXPECT_EQ(config->env.id, "Acrobot-v1");
  EXPECT_FALSE(config->learner.double_q);
  EXPECT_EQ(config->run.total_steps, 1e6);
  EXPECT_EQ(config->log.dir, "a b");
  ASSERT_EQ(config->network.layers.size(), 1u);
}

TEST(ConfigTest, ReadsBareOverrideOfStringKeyAsString) {
  EXPECT_EQ(Parse("", {"name=123"})->name, "123");
  EXPECT_EQ(Parse("", {"name=2026-11-21"})->name, "2026-11-21");
  EXPECT_EQ(Parse("", {"name=true"})->name, "true");
}

TEST(ConfigTest, AcceptsUnquotedIpv6AddressOnCommandLine) {
  EXPECT_EQ(Parse("", {"fleet.metrics=[::1]:9464"})->fleet.metrics, "[::1]:9464");
  EXPECT_THAT(OneError("", {"fleet.metrics=[1]"}), HasSubstr("fleet.metrics"));
}

TEST(ConfigTest, OverrideErrorsNameCommandLine) {
  EXPECT_EQ(OneError("", {"seed"}),
            "command line: seed: is not an override; write key=value, for example seed=7");
  EXPECT_EQ(OneError("", {"replay.alpha=lots"}),
            "command line: replay.alpha=lots: \"lots\" is not a number; give a number in [0, 2]");
  EXPECT_EQ(OneError("", {"batch_size=3"}),
            "command line: batch_size=3: unknown key; the nearest is learner.batch_size");
  EXPECT_THAT(OneError("", {"network.layers=[{type="}),
              StartsWith("command line: network.layers=[{type=: the value is not TOML: "));
  EXPECT_THAT(OneError("", {"seed=1\nx=2"}),
              HasSubstr("\"seed=1\\u000Ax=2\": has more than one line"));
  EXPECT_THAT(OneError("", {"name=\xff"}), HasSubstr("the value is not TOML"));
  EXPECT_THAT(OneError("", {"network.layers=[{type=\"linear\", units=0}]"}),
              HasSubstr("network.layers[0].units: 0 is out of range"));
}

TEST(ConfigTest, LayerErrorNamesLineAndLayerNumber) {
  EXPECT_EQ(OneError("[network]\nlayers = [\n  {type = \"linear\", units = 4},\n"
                     "  {type = \"linear\", unit = 4}]"),
            "run.toml:4: network.layers[1].unit: unknown key; the nearest is units");
  EXPECT_EQ(OneError("network.layers = [{type = \"linear\", units = 4, activation = \"gelu\"}]"),
            "run.toml:1: network.layers[0].activation: \"gelu\" is unknown; use one of \"none\", "
            "\"relu\", \"tanh\"");
  EXPECT_THAT(OneError("network.layers = [{units = 4}]"),
              HasSubstr("network.layers[0]: has no type"));
  EXPECT_THAT(OneError("network.layers = [4]"), HasSubstr("network.layers[0]: 4 is not a layer"));
}

struct Conflict {
  std::vector<std::string> keys;
  std::string error;
};

TEST(ConfigTest, RejectsImpossibleCombinations) {
  const std::string linear = "{type=\"linear\", units=4}",
                    conv = "{type=\"conv2d\", filters=4, kernel=3}";
  const std::vector<Conflict> conflicts = {
      {{"replay.capacity_items=2000", "learner.batch_size=4096", "replay.min_items=2000"},
       "learner.batch_size=4096: 4096 exceeds replay.capacity_items = 2000"},
      {{"replay.capacity_items=500"}, "replay.min_items: 1000 exceeds replay.capacity_items = 500"},
      {{"learner.batch_size=1024"},
       "replay.min_items: 1000 is less than learner.batch_size = 1024"},
      {{"run.total_steps=900"}, "replay.min_items: 1000 exceeds run.total_steps = 900"},
      {{"replay.capacity_items=100", "replay.min_items=64", "actor.envs=64"},
       "replay.capacity_items=100: 100 is less than the largest insert of an actor, 305 items "
       "(actor.insert_batch_size - 1 + actor.envs x (actor.n_step + 1) x actor.insert_copies)"},
      {{"actor.insert_batch_size=65536", "replay.capacity_items=100000"},
       "actor.insert_batch_size=65536: 65536 leads to inserts of up to 131143 frames, but "
       "the replay accepts 50000; raise replay.capacity_items to 262286"},
      {{"actor.warmup_steps=1e6"}, "actor.warmup_steps=1e6: 1000000 exceeds run.total_steps"},
      {{"replay.samples_per_insert=1e300"},
       "replay.samples_per_insert=1e300: 1e+300 x replay.min_items (1000) x (1 + "},
      {{"replay.samples_per_insert_tolerance_rate=1e6"},
       "replay.samples_per_insert_tolerance_rate=1e6: 1000000 x replay.min_items (1000) is an "
       "error buffer of more items "
       "than "
       "the run has steps (run.total_steps = 50000)"},
      {{"replay.final_beta=0.3"},
       "replay.final_beta=0.3: 0.3 is less than replay.beta = 0.4, the start of the linear rise"},
      {{"replay.final_beta=1", "replay.sampler=uniform"},
       "replay.final_beta=1: only replay.sampler = \"prioritized\" has importance weights"},
      {{"learner.critic=quantile", "learner.loss=mse"}, "quantiles require the Huber loss"},
      {{"learner.critic=categorical", "learner.v_min=200"},
       "learner.v_min=200: 200 is not less than learner.v_max = 150"},
      {{"learner.algorithm=dpg", "network.critic_layers=[" + linear + "," + conv + "]"},
       "network.critic_layers[1]: a conv2d layer can't follow"},
      {{"optimizer.type=rmsprop", "optimizer.weight_decay=0.1"},
       "is supported by optimizer.type = \"adam\", \"radam\" and \"sgd\" only"},
      {{"optimizer.type=sgd", "optimizer.weight_decay=0.1", "learner.sync=paramserver",
        "paramserver.mode=local_sgd"},
       "optimizer.weight_decay=0.1: \"local_sgd\" requires plain SGD"},
      {{"optimizer.type=radam", "optimizer.beta2=0.66"},
       "optimizer.beta2=0.66: 0.66 is at most 2/3, so RAdam would never divide"},
      {{"optimizer.type=rmsprop", "optimizer.momentum=0.9"},
       "is supported by optimizer.type = \"sgd\" only"},
      {{"network.dueling=false", "network.dueling_units=8"}, "network.dueling = false disables"},
      {{"evaluator.enabled=false", "evaluator.stop_at_return=475"}, "can't be reached"},
      {{"fleet.backoff_initial_s=20"}, "exceeds fleet.backoff_max_s = 10"},
      {{"fleet.stall_timeout_s=1"}, "is less than fleet.heartbeat_timeout_s = 1.5"},
      {{"fleet.mode=serial", "fleet.actors=300"}, "300 actors exceed the limit"},
      {{"learner.hogwild_threads=2", "fleet.learners=3"},
       "2 threads per learner are not supported with 3 learners"},
      {{"learner.hogwild_threads=2", "learner.sync=paramserver"},
       "parameter shards apply the updates"},
      {{"learner.hogwild_threads=2", "fleet.mode=serial"}, "2 threads are not deterministic"},
      {{"paramserver.hogwild_threads=2"}, "requires a mode in which each push is an update"},
      {{"paramserver.hogwild_threads=2", "paramserver.mode=async", "paramserver.backup=true"},
       "2 threads apply updates in an order that a backup can't repeat"},
      {{"paramserver.hogwild_threads=2", "paramserver.mode=async", "fleet.mode=serial"},
       "paramserver.hogwild_threads=2: 2 threads are not deterministic"},
      {{"learner.hogwild_threads=2", "network.normalize_observations=true"},
       "2 threads would each have separate statistics"},
      {{"paramserver.k=2"}, "paramserver.k=2: is supported by paramserver.mode = \"k_of_n\" only"},
      {{"paramserver.k=2", "paramserver.mode=k_of_n"},
       "paramserver.k=2: 2 exceeds fleet.learners = 1 with one push each; lower it"},
      {{"paramserver.cancel=true"},
       "is supported by paramserver.mode = \"k_of_n\" only, not by \"bsp\""},
      {{"paramserver.per_batch=true", "paramserver.mode=async"},
       "\"k_of_n\" only, not by \"async\""},
      {{"paramserver.staleness=3"},
       "is supported by paramserver.mode = \"ssp\" only, not by \"bsp\"; set 0"},
      {{"paramserver.warm_start_updates=3"}, "is supported by paramserver.mode = \"async\" only"},
      {{"paramserver.staleness_discount=true"}, "no gradient is stale with \"bsp\""},
      {{"paramserver.pull_every=4", "paramserver.push_every=2"},
       "paramserver.pull_every=4: 4 differs from paramserver.push_every = 2, but in \"bsp\" a "
       "pull follows"},
      {{"paramserver.mode=local_sgd", "paramserver.push_every=2"},
       "paramserver.pull_every: 1 differs from paramserver.push_every = 2, but in \"local_sgd\""},
      {{"paramserver.mode=local_sgd", "paramserver.compression=bf16"},
       "paramserver.compression=bf16: \"bf16\" compresses gradients"},
      {{"paramserver.push_every=0", "paramserver.pull_every=0"},
       "paramserver.push_every=0: 0 means one pass over the examples"},
      {{"paramserver.mode=local_sgd", "learner.sync=paramserver"},
       "\"local_sgd\" requires plain SGD for the steps of a learner"},
      {{"paramserver.mode=local_sgd", "learner.sync=paramserver", "optimizer.type=sgd",
        "optimizer.momentum=0.9"},
       "optimizer.momentum=0.9: \"local_sgd\" requires plain SGD"},
      {{"replay.placement=gpu", "learner.algorithm=dpg"},
       "learner.algorithm=dpg: replay.placement = \"gpu\" requires \"dqn\" here"},
      {{"replay.placement=gpu", "learner.device=cpu"}, "requires \"cuda\" or \"auto\" here"},
      {{"replay.placement=gpu", "fleet.learners=2"}, "fleet.learners=2: replay.placement"},
      {{"replay.placement=gpu", "learner.sync=paramserver"}, "requires \"allreduce\" here"},
      {{"replay.placement=gpu", "learner.hogwild_threads=2"}, "learner.hogwild_threads=2: replay"},
      {{"replay.placement=gpu", "replay.shards=2"}, "replay.shards=2: replay.placement"},
      {{"replay.placement=gpu", "replay.sampler=uniform"}, "requires \"prioritized\" here"},
      {{"replay.placement=gpu", "replay.remover=lowest"}, "requires \"fifo\" here"},
      {{"evaluator.video_every=2", "evaluator.enabled=false"},
       "evaluator.video_every=2: is 2, but only evaluations that play episodes have videos; set 0"},
      {{"replay.placement=gpu", "env.normalize_rewards=true"},
       "env.normalize_rewards=true: replay.placement = \"gpu\" requires false here"},
      {{"replay.placement=gpu", "replay.max_times_sampled=8"},
       "replay.max_times_sampled=8: replay"},
      {{"replay.placement=gpu", "replay.max_policy_age=3"},
       "replay.max_policy_age=3: replay.placement = \"gpu\" requires 0 here"},
      {{"name=../up"}, "is not a valid folder name"},
      {{"name="}, "is not a valid folder name"},
      {{"env.id="}, "name an environment"},
      {{"log.dir="}, "name a folder"},
      {{"env.sticky_actions=-0.5"}, "neither a probability nor -1"},
      {{"env.id=envpool:Pong-v5", "fleet.mode=serial"},
       "\"serial\" guarantees identical bytes for the same seed, but EnvPool takes one seed per "
       "pool; use \"processes\", or \"gymnasium:...\" or \"ALE/...\""},
      {{"env.difficulty_ramping=false"},
       "env.difficulty_ramping=false: is supported for MinAtar games only, not for "
       "\"CartPole-v1\""},
      {{"env.plugin=mine.so", "env.wrappers=[\"a:b\"]"},
       "apply to Python environments only, not to a plug-in"},
      {{"env.noop_max=4"},
       "is supported for Atari games (\"ALE/...\") only, not for \"CartPole-v1\"; set 0"},
  };
  for (const Conflict& conflict : conflicts)
    EXPECT_THAT(OneError("", conflict.keys), HasSubstr(conflict.error));
}

TEST(ConfigTest, ReportsConflictAtLineOfChangedKey) {
  EXPECT_EQ(
      OneError("[replay]\ncapacity_items = 500"),
      "run.toml:2: replay.min_items: 1000 exceeds replay.capacity_items = 500, so no batch would "
      "ever be sampled; lower it");
  EXPECT_THAT(OneError("[replay]\ncapacity_items = 500\nmin_items = 600"),
              StartsWith("run.toml:3: "));
}

TEST(ConfigTest, InvalidKeyCausesNoConflictErrors) {
  EXPECT_THAT(
      OneError("[replay]\nmin_items = \"few\"\ncapacity_items = 100\n[learner]\nbatch_size=64"),
      StartsWith("run.toml:2: replay.min_items: \"few\" is not an integer"));
}

TEST(ConfigTest, DumpedConfigRoundTrips) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Config config;
    Randomizer randomizer(seed);
    VisitConfig(config, randomizer);
    config.version = kConfigVersion;
    Repair(&config);
    const Result<Config> again = Parse(ToToml(config));
    ASSERT_TRUE(again.ok()) << again.status().ToString() << "\n" << ToToml(config);
    ASSERT_EQ(*again, config) << ToToml(config);
  }
}

TEST(ConfigTest, ReadsEnvironmentOptionsOfScalarTypes) {
  const std::vector<std::string> overrides = {"env.options.size=9", "env.options.map=maze",
                                              "env.wrappers=[\"m:A\", \"m:B\"]"};
  const Result<Config> config =
      ParseConfig("[env.options]\nsize = 5\nslippery = true\nwind = 0.5\n", "run.toml", overrides);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const std::vector<EnvOption> want = {
      {"map", std::string("maze")}, {"size", std::int64_t{9}}, {"slippery", true}, {"wind", 0.5}};
  EXPECT_EQ(config->env.options, want);
  EXPECT_EQ(config->env.wrappers, (std::vector<std::string>{"m:A", "m:B"}));
}

TEST(ConfigTest, ReadsListAndTableOptions) {
  const Result<Config> config = ParseConfig(
      "[env.options]\ngoal = [1, 2.0, [\"é\\n\"]]\nmap = {b = {}, a = [true]}\nmass = 2.0\n",
      "run.toml", std::vector<std::string>{"env.options.none=[]"});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const std::vector<EnvOption> want = {{"goal", EnvOption::Json{R"([1, 2.0, ["é\u000a"]])"}},
                                       {"map", EnvOption::Json{R"({"a": [true], "b": {}})"}},
                                       {"mass", 2.0},
                                       {"none", EnvOption::Json{"[]"}}};
  EXPECT_EQ(config->env.options, want);
  EXPECT_EQ(Parse(ToToml(*config))->env.options, want) << ToToml(*config);
}

TEST(ConfigTest, RejectsInvalidOptionAtItsLine) {
  EXPECT_EQ(OneError("[env.options]\nsize = 5\ngoal = 1979-05-27"),
            "run.toml:3: env.options.goal: a date or time is not an option value; give a number, "
            "a string, true, false, or a list or table of these");
  for (const std::string wrong : {"[[1, nan]]", "{a = 1979-05-27}", "[-inf]"}) {
    EXPECT_THAT(OneError("[env.options]\ngoal = " + wrong),
                testing::HasSubstr("is not an option value"));
  }
  // It made an option of the name "map.size".
  EXPECT_EQ(OneError("", {"env.options.map.size=3"}),
            "command line: env.options.map.size=3: is inside an option; set "
            "env.options.map={…} instead");
  EXPECT_EQ(OneError("[env]\noptions = 3"),
            "run.toml:2: env.options: 3 is not a table; write {name = value}");
  EXPECT_EQ(OneError("[env]\nwrappers = [\"m:A\", 3]"),
            "run.toml:2: env.wrappers: 3 is not a string; give a list of strings");
}

TEST(ConfigTest, ReadsNumberListAndChecksRangeOfEach) {
  const std::string review =
      "[learner]\nalgorithm = \"classifier\"\n[data]\nreviews = \"r\"\n"
      "vocabulary = \"v\"\n[mesh]\ndp = 3\n";
  const Result<Config> config = Parse(review + "batch_shares = [2, 0.5, 1]");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->mesh.batch_shares, (std::vector<double>{2, 0.5, 1}));
  EXPECT_EQ(OneError(review + "batch_shares = 2"),
            "run.toml:8: mesh.batch_shares: 2 is not a list; write [2, 1]");
  EXPECT_EQ(OneError(review + "batch_shares = [2, \"x\", 1]"),
            "run.toml:8: mesh.batch_shares: \"x\" is not a number; give a list of numbers");
  EXPECT_EQ(OneError(review + "batch_shares = [2, 0, 1]"),
            "run.toml:8: mesh.batch_shares: 0 is out of range; give a number in (0, 1000000]");
  EXPECT_THAT(OneError(review + "batch_shares = [2, 1]"),
              HasSubstr("2 shares for 3 workers; give one per worker"));
}

TEST(ConfigTest, ReadsReplayTables) {
  const Result<Config> config = Parse(
      "[[replay.tables]]\nname = \"a\"\nobservation = \"u8[84, 84]\"\nstack = 4\n"
      "[[replay.tables]]\nname = \"b\"\nview = \"sequence\"\nburn_in = 40\nlength = 80\n");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  ASSERT_EQ(config->replay.tables.size(), 2u);
  EXPECT_EQ(config->replay.tables[0].stack, 4);
  EXPECT_EQ(config->replay.tables[1].burn_in, 40);
  const auto message = [](std::string_view text) { return Parse(text).status().message(); };
  EXPECT_NE(message("[[replay.tables]]\nstack = 4\n").find("has no name"), std::string::npos);
  EXPECT_NE(message("[[replay.tables]]\nname = \"a\"\nstock = 4\n").find("nearest is stack"),
            std::string::npos);
  EXPECT_NE(message("[[replay.tables]]\nname = \"a\"\nburn_in = 4\n").find("no burn-in"),
            std::string::npos);
  EXPECT_NE(message("[[replay.tables]]\nname=\"a\"\n[[replay.tables]]\nname=\"a\"\n")
                .find("the table name \"a\" is used twice"),
            std::string::npos);
}

TEST(ConfigTest, DefaultsAreValid) {
  const Result<Config> config = Parse(ToToml(Config{}));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(*config, Config{});
}

TEST(ConfigTest, DocumentsEveryKeyOnce) {
  std::set<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name << " twice";
    EXPECT_GT(key.doc.size(), 10u) << key.name;
    EXPECT_EQ(key.doc.back(), '.') << key.name;
  }
  EXPECT_TRUE(names.contains("run.total_steps"));
  EXPECT_TRUE(names.contains("network.layers[].units"));
}

TEST(ConfigTest, DocsConfigMdMatchesSchema) {
  EXPECT_EQ(ReadText("docs/reference/config.md"), ConfigMarkdown())
      << "the keys have changed: troop config --markdown > docs/reference/config.md";
}

TEST(ConfigTest, ReportsPathOfMissingFile) {
  const Result<Config> config = LoadConfigFile("/nonexistent/run.toml", {});
  EXPECT_EQ(config.status().code(), Code::kNotFound);
  EXPECT_THAT(config.status().message(),
              StartsWith("/nonexistent/run.toml: can't be read (No such file"));
  EXPECT_THAT(LoadConfigFile("/", {}).status().message(), HasSubstr("it is a folder"));
}

TEST(EditDistanceTest, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("abc", ""), 3);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("abcd", "abdc"), 1);
  EXPECT_EQ(EditDistance("same", "same"), 0);
}

}  // namespace
}  // namespace troop
