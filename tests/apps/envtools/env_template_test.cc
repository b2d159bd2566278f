#include "apps/envtools/env_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fleet/config/config.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(EnvProjectTest, WritesExampleUnderNewName) {
  const TempFolder folder;
  for (const auto& [language, source] : std::vector<std::pair<std::string, std::string>>{
           {"c", "my_crane.c"}, {"c++", "my_crane.cc"}, {"python", "my_crane.py"}}) {
    fs::remove_all(folder.path() + "/my_crane");
    const auto written = WriteEnvProject(folder.path(), "my_crane", language);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    EXPECT_EQ(written->size(), language == "python" ? 3u : 4u);
    const std::string base = folder.path() + "/my_crane/";
    EXPECT_THAT(*written, testing::Contains(base + source));
    for (const std::string& file : *written) {
      EXPECT_THAT(FileText(file),
                  testing::Not(testing::ContainsRegex("[Tt]wo_?[Tt]anks|[Ii]nventory|[Bb]attery")))
          << file;
    }
    const auto config = LoadConfigFile(base + "my_crane.toml", {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->env.id, language == "python" ? "python:my_crane:make_env" : "MyCrane-v0");
    EXPECT_EQ(config->name, "my_crane");
    EXPECT_THAT(FileText(base + source), HasSubstr("MyCrane"));
  }
}

// "<where Troop is installed>" was all that the README of a new project said.
TEST(EnvProjectTest, ReadmeNamesInstallPrefix) {
  const TempFolder folder;
  const auto readme = [&](const std::string& prefix) {
    fs::remove_all(folder.path() + "/mine");
    EXPECT_TRUE(WriteEnvProject(folder.path(), "mine", "cpp", prefix).ok());
    return FileText(folder.path() + "/mine/README.md");
  };
  EXPECT_THAT(readme("/opt/troop"), HasSubstr("-DCMAKE_PREFIX_PATH=/opt/troop\n"));
  EXPECT_THAT(readme("/my files/troop"), HasSubstr("-DCMAKE_PREFIX_PATH=\"/my files/troop\"\n"));
  EXPECT_THAT(readme(""), HasSubstr("-DCMAKE_PREFIX_PATH=<where Troop is installed>\n"));

  const fs::path built = folder.path() + "/build", installed = folder.path() + "/prefix";
  for (const fs::path& made : {built, installed / "bin", installed / "include"}) {
    fs::create_directories(made);
  }
  EXPECT_EQ(PackagePrefix(built / "troop"), "");
  EXPECT_EQ(PackagePrefix(installed / "bin/troop"), "");
  std::ofstream(built / "troopConfig.cmake") << "";
  std::ofstream(installed / "include/troop_env.h") << "";
  EXPECT_EQ(PackagePrefix(built / "troop"), built.string());
  EXPECT_EQ(PackagePrefix(installed / "bin/troop"), installed.string());
}

TEST(EnvProjectTest, OverwritesNothing) {
  const TempFolder folder;
  std::ofstream(folder.path() + "/mine") << "precious";
  const Status status = WriteEnvProject(folder.path(), "mine", "c").status();
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_EQ(FileText(folder.path() + "/mine"), "precious");
  fs::create_symlink("nowhere", folder.path() + "/dangling");
  EXPECT_EQ(WriteEnvProject(folder.path(), "dangling", "c").status().code(), Code::kAlreadyExists);
}

TEST(EnvProjectTest, RejectsInvalidNames) {
  const TempFolder folder;
  for (const char* name : {"", "MyEnv", "1st", "a-b", "../up", "a b", "_a", "a_", "a__b", "test"}) {
    EXPECT_THAT(WriteEnvProject(folder.path(), name, "c").status().message(),
                HasSubstr("is not a valid name"))
        << name;
  }
  EXPECT_THAT(WriteEnvProject(folder.path(), std::string(41, 'a'), "c").status().message(),
              HasSubstr("at most 40"));
  EXPECT_THAT(WriteEnvProject(folder.path(), "fine", "rust").status().message(),
              HasSubstr("languages: c, c++, python"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace troop
