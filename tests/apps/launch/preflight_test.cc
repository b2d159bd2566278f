#include "apps/launch/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>

#include "fleet/config/config_keys.h"
#include "fleet/launcher/endpoints.h"
#include "tests/core/temp_folder.h"
#include "tests/net/key_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

// Ways to damage a file, or to replace a folder.
constexpr const char* kDamages[] = {"missing", "empty", "truncated", "directory", "pointer"};

void Damage(const std::string& path, std::string_view how) {
  const auto size = fs::is_regular_file(path) ? fs::file_size(path) : 0;
  if (how == "truncated" && size > 0) return fs::resize_file(path, size / 2);
  fs::remove_all(path);
  if (how == "missing") return;
  if (how == "directory") {
    fs::create_directory(path);
    return;
  }
  std::ofstream(path) << (how == "pointer" ? "version https://git-lfs.github.com/spec/v1\noid "
                                             "sha256:4d7a214614ab2935\nsize 12345\n"
                                           : "");
  fs::permissions(path, fs::perms(0600));
}

class PreflightTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void WriteToken() const {
    std::ofstream(path("token")) << "sixteen-letters!\n";
    fs::permissions(path("token"), fs::perms(0600));
  }
  // Returns the config of a supervised run on copies of the fixtures.
  Config Reviews() const {
    fs::copy(kFixtures + "masked", path("model"));
    fs::copy(kFixtures + "reviews.csv", path("reviews.csv"));
    fs::copy(kFixtures + "vocab.txt", path("vocab.txt"));
    const auto config = ParseConfig(
        "learner = {algorithm = \"masked_lm\", batch_size = 5}\nrun = {epochs = 1}\n"
        "data = {max_length = 16, cache = \"\"}\nevaluator.enabled = false\n"
        "model = {hidden_size = 32, num_hidden_layers = 2, num_attention_heads = 4, "
        "max_position_embeddings = 24, vocab_size = 47, intermediate_size = 48}\n",
        "run.toml",
        std::vector<std::string>{"model.pretrained=" + path("model"),
                                 "data.reviews=" + path("reviews.csv"),
                                 "data.vocabulary=" + path("vocab.txt")});
    TROOP_CHECK(config.ok(), "{}", config.status().message());
    return *config;
  }
  static Status Check(Config config) { return CheckStart(&config, true); }

  const TempFolder folder_;
};

TEST(KernelsTest, PlainKernelsAreExplainedAndOthersAreNamed) {
  EXPECT_EQ(DescribeKernels(CpuLevel::kAvx2), "avx2 kernels");
  EXPECT_EQ(DescribeKernels(CpuLevel::kAvx512Bf16), "avx512_bf16 kernels");
  const std::string plain = DescribeKernels(CpuLevel::kPlain);
  EXPECT_THAT(plain, StartsWith("plain kernels: "));
  for (const char* lacking : {"AVX2", "FMA", "BMI2", "slower"}) {
    EXPECT_THAT(plain, HasSubstr(lacking));
  }
}

// Each of them was found after the start, some in a restart loop, and a folder was left behind.
TEST_F(PreflightTest, FindsDamageOfEachInputFileBeforeStart) {
  struct Case {
    const char* file;
    std::function<void(Config*)> name_it;
  };
  const auto token = [this](std::string FleetConfig::*key) {
    return [this, key](Config* config) {
      WriteToken();
      config->fleet.*key = path("token");
    };
  };
  const auto keys = [this](Config* config) {
    TROOP_CHECK(MakeKeys(path("keys"), KeysOfAllRoles(), false).ok(), "no keys");
    config->security.keys = path("keys");
  };
  const auto reviews = [this](Config* config) { *config = Reviews(); };
  const std::vector<Case> cases = {
      {"token", token(&FleetConfig::metrics_token)},
      {"token", token(&FleetConfig::dashboard_token)},
      {"keys/learner.key", keys},
      {"keys/allowed", keys},
      {"keys", keys},
      {"model/config.json", reviews},
      {"model/model.safetensors", reviews},
      {"model", reviews},
      {"reviews.csv", reviews},
      {"vocab.txt", reviews},
  };
  for (const Case& c : cases) {
    for (const std::string how : kDamages) {
      for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove_all(entry);
      Config config;
      c.name_it(&config);
      const Status good = Check(config);
      ASSERT_TRUE(good.ok()) << c.file << ": " << good.message();
      Damage(path(c.file), how);
      const Status found = Check(config);
      EXPECT_FALSE(found.ok()) << c.file << " " << how;
      EXPECT_THAT(found.message(), HasSubstr(fs::path(folder_.path()).filename().string())) << how;
      EXPECT_THAT(found.message(), HasSubstr(fs::path(c.file).filename().string())) << how;
      const bool weights = std::string_view(c.file).starts_with("model/");
      const bool text = c.file == std::string_view("vocab.txt");
      if (how == "pointer" && (weights || text)) {
        EXPECT_THAT(found.message(), HasSubstr("git lfs pull"));
      }
    }
  }
}

TEST_F(PreflightTest, ReportsErrorsAtConfigLine) {
  const auto check = [](const std::string& text, std::vector<std::string> overrides) {
    const auto config = ParseConfig(text, "run.toml", overrides);
    TROOP_CHECK(config.ok(), "{}", config.status().message());
    return std::string(Check(*config).message());
  };
  EXPECT_THAT(check("[env]\nid = \"CartPol-v1\"", {}),
              StartsWith("run.toml:2: env.id: unknown environment \"CartPol-v1\""));
  EXPECT_THAT(check("", {"env.id=CartPol-v1"}),
              StartsWith("command line: env.id=CartPol-v1: unknown environment"));
  const std::string reviews = fmt::format(
      "[data]\nreviews = \"{}\"\nvocabulary = \"nowhere.txt\"\n[learner]\n"
      "algorithm = \"classifier\"\n[evaluator]\nenabled = false\n",
      kFixtures + "reviews.csv");
  EXPECT_THAT(check(reviews, {}), StartsWith("run.toml:3: data.vocabulary"));
}

TEST_F(PreflightTest, ReportsAllErrorsTogether) {
  Config config;
  config.fleet.metrics_token = path("none");
  config.security.keys = path("no-keys");
  std::ofstream(path("file")) << "no folder";
  config.log.dir = path("file") + "/runs";
  const Status found = Check(config);
  EXPECT_EQ(found.code(), Code::kNotFound);
  for (const char* part : {"fleet.metrics_token: ", "security.keys: ", "log.dir is "}) {
    EXPECT_THAT(found.message(), HasSubstr(part));
  }
  EXPECT_FALSE(fs::exists(path("runs")));
}

// A dry run said nothing of them.
TEST_F(PreflightTest, ChecksDashboardAndMetricsAddresses) {
  Config config;
  config.log.dir = folder_.path();
  for (auto* const key : {&config.fleet.metrics, &config.fleet.dashboard}) {
    const std::string name = key == &config.fleet.metrics ? "fleet.metrics" : "fleet.dashboard";
    for (const char* wrong : {"127.0.0.1", "127.0.0.1:70000", "tcp://127.0.0.1:80", "[::1]"}) {
      *key = wrong;
      const Status found = CheckInputs(config);
      EXPECT_EQ(found.code(), Code::kInvalidArgument) << wrong;
      EXPECT_THAT(found.message(), HasSubstr(name + ": ")) << wrong;
    }
    *key = "0.0.0.0:9464";
    EXPECT_THAT(CheckInputs(config).message(), HasSubstr("without a token"));
    *key = "127.0.0.1:0";
    EXPECT_TRUE(CheckInputs(config).ok()) << CheckInputs(config).message();
  }
}

// Damaged data hid all that was wrong besides, and too few open files hid the rest.
TEST_F(PreflightTest, DamagedDataDoesNotHideOtherErrors) {
  Config config = Reviews();
  config.fleet.metrics_token = path("none");
  config.data.unlabeled = path("no-texts");
  config.fleet.actors = 100'000;
  for (const char* const file : {"reviews.csv", "vocab.txt", "model/model.safetensors"}) {
    fs::remove(path(file));
  }
  const Status found = Check(config);
  for (const char* part :
       {"fleet.metrics_token: ", "reviews.csv", "no-texts", "vocab.txt", "model.safetensors"}) {
    EXPECT_THAT(found.message(), HasSubstr(part));
  }
}

// Sees the least and the largest value that each number of a config may have, as words of TOML.
class Extremes final : public ConfigVisitor {
 public:
  struct Value {
    std::string key, text;
  };
  void Visit(const ConfigKeyInfo& key, std::int64_t&) override { Add(key, true); }
  void Visit(const ConfigKeyInfo& key, double&) override { Add(key, key.whole); }
  void Visit(const ConfigKeyInfo&, bool&) override {}
  void Visit(const ConfigKeyInfo&, std::string&) override {}
  void Visit(const ConfigKeyInfo&, ConfigList&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<EnvOption>&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<std::string>&) override {}
  void Visit(const ConfigKeyInfo&, std::vector<double>&) override {}
  std::vector<Value> values;

 private:
  void Add(const ConfigKeyInfo& key, bool whole) {
    const auto next = [&](double x, double to) {
      return whole ? x + (to > x ? 1 : -1) : std::nextafter(x, to);
    };
    const ConfigRange& r = key.range;
    const double low = std::max(r.low, -1e300), high = std::min(r.high, 1e300);
    for (const double value :
         {r.low_open ? next(low, high) : low, r.high_open ? next(high, low) : high}) {
      values.push_back({std::string(key.name), TomlNumber(value)});
    }
  }
};

// A rate limit that no run could count to was found by the replay, and a slack of more samples than
// the whole run has made a run without end.
TEST_F(PreflightTest, LegalExtremesStartOrAreRejectedWithReason) {
  Extremes extremes;
  Config all;
  VisitConfig(all, extremes);
  ASSERT_GT(extremes.values.size(), 250u);
  for (const Extremes::Value& value : extremes.values) {
    const std::string word = value.key + "=" + value.text;
    const auto config = ParseConfig("", "run.toml", std::vector<std::string>{word});
    const Status found = config.ok() ? Check(*config) : config.status();
    if (found.ok()) continue;
    EXPECT_NE(found.code(), Code::kInternal) << word;
    EXPECT_THAT(found.message(), Not(HasSubstr("out of range"))) << word;
    EXPECT_GT(found.message().size(), 20u) << word;
  }
  for (const auto& [word, why] :
       {std::pair("replay.samples_per_insert_tolerance_rate=1e6",
                  "an error buffer of more items than the run has steps"),
        std::pair("fleet.actors=100000", "memory: 100004 roles are processes of at least")}) {
    const auto config = ParseConfig("", "run.toml", std::vector<std::string>{word});
    EXPECT_THAT((config.ok() ? Check(*config) : config.status()).message(), HasSubstr(why));
  }
}

// `troop doctor` said "ready to start".
TEST_F(PreflightTest, FindsInvalidSocketFolderBeforeStart) {
  const char* const before = getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  const std::string deep = path(std::string(100, 'x'));
  fs::create_directory(deep);
  for (const auto& [folder, why] :
       {std::pair(deep, "is too long: socket paths in it exceed 107 bytes"),
        std::pair(path("nowhere"), "is not a folder")}) {
    setenv("TMPDIR", folder.c_str(), 1);
    EXPECT_THAT(Endpoints::Check({}).message(), HasSubstr(why));
    Config serial;
    serial.fleet.mode = FleetMode::kSerial;
    EXPECT_TRUE(Endpoints::Check(serial).ok());
  }
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
  EXPECT_TRUE(Endpoints::Check({}).ok());
}

}  // namespace
}  // namespace troop
