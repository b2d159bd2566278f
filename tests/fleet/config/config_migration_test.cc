// Migration of configs of version 1: keys, sections, layout, and files that are not configs.
#include "fleet/config/config_migration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/base/philox.h"
#include "core/base/version.h"
#include "tests/fleet/config/random_config.h"

namespace troop {
namespace {

using testing::HasSubstr;

std::string Migrated(std::string_view text) {
  const Result<MigratedConfig> migrated = MigrateConfig(text, "run.toml");
  return migrated.ok() ? migrated->text : migrated.status().message();
}

std::string FileText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The values of a TOML text as Troop writes it: one key per line, lists of layers on several.
std::map<std::string, std::string> ValuesOf(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  std::string section, line, last;
  while (std::getline(lines, line)) {
    const std::size_t equals = line.find(" = ");
    if (line.starts_with("[")) {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (equals != line.npos && !line.starts_with(" ")) {
      last = section + line.substr(0, equals);
      values[last] = line.substr(equals + 3);
    } else if (!line.empty()) {
      values[last] += line;
    }
  }
  return values;
}

TEST(ConfigMigrationTest, RenamedKeysAreSortedAndLeadToExistingKeys) {
  std::set<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) names.insert(key.name);
  EXPECT_TRUE(std::ranges::is_sorted(RenamedKeys(), {}, &RenamedKey::before));
  std::set<std::string_view> after;
  for (const RenamedKey& key : RenamedKeys()) {
    EXPECT_TRUE(names.contains(std::string(key.after))) << key.after;
    EXPECT_FALSE(names.contains(std::string(key.before))) << key.before;
    EXPECT_TRUE(after.insert(key.after).second) << key.after;
  }
  EXPECT_EQ(CurrentKeyName("replay.tables[12].ratio_error"),
            "replay.tables[].samples_per_insert_tolerance_rate");
  EXPECT_EQ(CurrentKeyName("learner.gamma"), "");
}

TEST(ConfigMigrationTest, ParserRejectsEachOldKeyWithItsNewName) {
  for (const RenamedKey& key : RenamedKeys()) {
    const std::string before(key.before);
    const bool entry = before.find("[]") != before.npos;
    const std::string leaf = before.substr(before.rfind('.') + 1);
    const std::string text =
        entry ? "[[replay.tables]]\nname = \"a\"\n" + leaf + " = 1\n"
              : "[" + before.substr(0, before.find('.')) + "]\n" + leaf + " = 1\n";
    const auto parsed = ParseConfig(text, "run.toml", {});
    ASSERT_FALSE(parsed.ok()) << key.before;
    EXPECT_THAT(parsed.status().message(),
                HasSubstr("renamed in config version 2; use " + std::string(key.after)));
    if (entry) continue;
    const auto overridden = ParseConfig("", "run.toml", std::vector{before + "=1"});
    EXPECT_THAT(overridden.status().message(), HasSubstr("use " + std::string(key.after)));
  }
}

TEST(ConfigMigrationTest, RenamesKeysInEveryTomlSpelling) {
  EXPECT_EQ(Migrated("version = 1\n[model]\nhidden = 64  # small\n'heads'=4\n"),
            "version = 2\n[model]\nhidden_size = 64  # small\nnum_attention_heads=4\n");
  EXPECT_EQ(Migrated("model.hidden = 64\nmodel . \"heads\" = 4\n"),
            "model.hidden_size = 64\nmodel . num_attention_heads = 4\n");
  EXPECT_EQ(Migrated("model = {hidden = 64, heads = 4}\n"),
            "model = {hidden_size = 64, num_attention_heads = 4}\n");
  EXPECT_EQ(Migrated("[[replay.tables]]\nname = \"codec\"\ncodec = \"lz4\"\n"),
            "[[replay.tables]]\nname = \"codec\"\ncompression = \"lz4\"\n");
  EXPECT_EQ(Migrated("[replay]\ntables = [\n  {name = \"a\", codec = \"lz4\"},\n]\n"),
            "[replay]\ntables = [\n  {name = \"a\", compression = \"lz4\"},\n]\n");
}

TEST(ConfigMigrationTest, MovesBudgetIntoItsOwnSection) {
  EXPECT_EQ(
      Migrated("# A run.\nname = \"a\"\n\n# The learner.\n[learner]\ntotal_steps = 1e6  # all\n"
               "gamma = 0.9\nmax_updates = 5\n"),
      "# A run.\nname = \"a\"\n\n[run]\ntotal_steps = 1e6  # all\nmax_updates = 5\n\n"
      "# The learner.\n[learner]\ngamma = 0.9\n");
  EXPECT_EQ(Migrated("# A run.\n[learner]\nepochs = 3"),
            "# A run.\n[run]\nepochs = 3\n\n[learner]\n");
  EXPECT_EQ(Migrated("learner.epochs = 3\n[env]\nid = \"a\"\n"),
            "run.epochs = 3\n[env]\nid = \"a\"\n");
  EXPECT_EQ(Migrated("learner = {epochs = 3, gamma = 0.9, max_updates = 5}\n"),
            "learner = {gamma = 0.9}\n\n[run]\nepochs = 3\nmax_updates = 5\n");
  EXPECT_EQ(Migrated("learner = { epochs = 3 }"), "learner = {  }\n\n[run]\nepochs = 3\n");
}

TEST(ConfigMigrationTest, LeavesStringsCommentsAndOtherKeysAlone) {
  for (const char* text :
       {"# learner.epochs = 3\n", "name = \"[learner]\\nepochs = 3\"\n",
        "name = '''\n[learner]\nepochs = 3\n'''\n", "[env.options]\nhidden = 3\ncodec = \"a\"\n",
        "[network]\nlayers = [{type = \"linear\", units = 3}] # hidden = 1\n", "", "\n\n",
        "name = \"\"\"a\"\"\"\"\"\n",
        "env.options = {a = [1, {hidden = 2}], 'b c' = 1979-05-27}\n"}) {
    EXPECT_EQ(Migrated(text), text);
  }
}

TEST(ConfigMigrationTest, ReportsLineOfTextThatIsNotToml) {
  for (const char* text :
       {"\n[learner\nepochs = 3\n", "\nepochs\n", "\na = \"b\n", "\na = {b = 1\n", "\na = [1, 2\n",
        "\na = 1 b = 2\n x\n", "\n= 3\n", "\na =\n"}) {
    EXPECT_THAT(Migrated(text), HasSubstr("not TOML; nothing was changed")) << text;
    EXPECT_THAT(Migrated(text), testing::StartsWith("run.toml:")) << text;
  }
}

TEST(ConfigMigrationTest, ReadsRandomBytesAndDeepNestingWithoutCrashing) {
  Rng rng({.purpose = Purpose::kTest});
  const std::string_view alphabet = "[]{}=.,#\"'\\\n aepochs1learner";
  for (int i = 0; i < 20000; ++i) {
    std::string text(rng.Below(40), ' ');
    for (char& c : text) c = alphabet[rng.Below(std::uint32_t(alphabet.size()))];
    const auto migrated = MigrateConfig(text, "run.toml");
    if (!migrated.ok()) continue;
    EXPECT_EQ(Migrated(migrated->text), migrated->text) << text;  // nothing is left to rename
  }
  for (const char open : {'[', '{'}) {
    EXPECT_FALSE(MigrateConfig("a = " + std::string(100000, open), "run.toml").ok());
  }
}

TEST(ConfigMigrationTest, CurrentConfigsAreUnchanged) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Config config;
    Randomizer randomizer(seed);
    VisitConfig(config, randomizer);
    config.version = kConfigVersion;
    const std::string text = ToToml(config);
    EXPECT_EQ(Migrated(text), text);
  }
}

// The files were written by the last program of version 1. The oracle reads them line by line.
TEST(ConfigMigrationTest, SavedConfigsOfVersion1KeepEveryValue) {
  for (const char* run : {"done", "interrupted", "supervised"}) {
    const std::string text =
        FileText(std::string(TROOP_SOURCE_DIR "/tests/fixtures/runs_v1/") + run + "/config.toml");
    const auto before = ValuesOf(text);
    ASSERT_GT(before.size(), 200u);
    EXPECT_FALSE(ParseConfig(text, "config.toml", {}).ok());
    const auto config = ParseSavedConfig(text, "config.toml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->version, kConfigVersion);
    const auto after = ValuesOf(ToToml(*config));
    for (const auto& [key, value] : before) {
      if (key == "version") continue;
      const std::string_view name = CurrentKeyName(key);
      const auto found = after.find(name.empty() ? key : std::string(name));
      ASSERT_NE(found, after.end()) << key;
      EXPECT_EQ(found->second, value) << key;
    }
  }
}

TEST(ConfigMigrationTest, Version1WithoutRenamedKeysIsAccepted) {
  const auto config = ParseConfig("version = 1\nseed = 3\n", "run.toml", {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->version, kConfigVersion);
}

}  // namespace
}  // namespace troop
