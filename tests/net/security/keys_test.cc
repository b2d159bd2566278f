#include "net/security/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "net/security/access_control.h"
#include "tests/net/key_folder.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}
void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
unsigned Mode(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777u;
}
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(KeysTest, CreatesOwnerOnlyKeyPairForEachRole) {
  const KeyFolder folder;
  EXPECT_EQ(Mode(folder.path()), 0700u);
  std::set<std::string> secrets;
  for (const NewKey& key : KeysOfAllRoles()) {
    EXPECT_EQ(Mode(folder.file(key.name)), 0600u);
    const auto ring = folder.Load(key.name);
    EXPECT_EQ(ring->role, key.role);
    EXPECT_EQ(ring->coordinators, std::vector{folder.Load("coordinator")->public_key});
    secrets.insert(KeyText(ring->secret_key.bytes()));
    // Each opens as its role, and nothing in the list is secret.
    const auto entry = ring->allowed->Find(ring->public_key);
    if (key.role == Role::kCoordinator) {
      EXPECT_FALSE(entry.ok()) << "the coordinator makes no calls";
    } else {
      ASSERT_TRUE(entry.ok()) << entry.status().message();
      EXPECT_EQ(entry->role, key.role);
    }
    EXPECT_EQ(Text(folder.allowed()).find(KeyText(ring->secret_key.bytes())), std::string::npos);
  }
  EXPECT_EQ(secrets.size(), KeysOfAllRoles().size());
}

TEST(KeysTest, RejectsKeyFileAccessibleToOthers) {
  const KeyFolder folder;
  for (const mode_t mode : {0640u, 0604u, 0660u, 0610u}) {
    ASSERT_EQ(chmod(folder.file("actor").c_str(), mode), 0);
    const auto ring = LoadKeys(folder.file("actor"));
    ASSERT_FALSE(ring.ok()) << std::oct << mode;
    EXPECT_THAT(ring.status().message(), HasSubstr(folder.file("actor")));
    EXPECT_THAT(ring.status().message(), HasSubstr("chmod 600"));
    EXPECT_EQ(ring.status().message().find('\n'), std::string::npos) << "one line";
  }
  ASSERT_EQ(chmod(folder.file("actor").c_str(), 0400), 0);
  EXPECT_TRUE(LoadKeys(folder.file("actor")).ok());
}

TEST(KeysTest, RejectsDamagedFileNamingLine) {
  const KeyFolder folder;
  const std::string good = Text(folder.file("actor"));
  const std::string other = KeyText(folder.Load("learner")->public_key);
  const std::string own = KeyText(folder.Load("actor")->public_key);
  const std::pair<std::string, const char*> cases[] = {
      {Replaced(good, "role = \"actor\"", "role = \"god\""), ":2:"},
      {Replaced(good, "role = ", "roll = "), ":2:"},
      {good + "secret = \"" + other + "\"\n", "line"},                              // twice
      {Replaced(good, "public = \"" + own, "public = \"" + own.substr(1)), ":4:"},  // short
      {Replaced(good, "public = \"" + own, "public = \"" + other), "do not match"},
      {Replaced(good, "\nsecret", "\n# secret"), "secret"},
      {"", "role"},
      {std::string(100'000, '#'), "limit"},
      {Replaced(good, "name = \"actor\"", "name = \"../x\""), ":3:"},
  };
  for (const auto& [text, want] : cases) {
    Write(folder.file("actor"), text);
    const auto ring = LoadKeys(folder.file("actor"));
    ASSERT_FALSE(ring.ok()) << text;
    EXPECT_THAT(ring.status().message(), HasSubstr(want));
    // The secret is in no message.
    EXPECT_EQ(ring.status().message().find(KeyText(folder.Load("learner")->secret_key.bytes())),
              std::string::npos);
  }
  EXPECT_EQ(LoadKeys(folder.path() + "/absent.key").status().code(), Code::kNotFound);
  EXPECT_EQ(LoadKeys(folder.path()).status().code(), Code::kInvalidArgument);
}

TEST(KeysTest, KeepsExistingKeyWithoutRotate) {
  const KeyFolder folder;
  const std::string before = Text(folder.file("actor"));
  const Status again = MakeKeys(folder.path(), {{Role::kActor, "actor"}}, false);
  EXPECT_EQ(again.code(), Code::kAlreadyExists);
  EXPECT_THAT(again.message(), HasSubstr("--rotate"));
  EXPECT_EQ(Text(folder.file("actor")), before);
  EXPECT_FALSE(MakeKeys(folder.path(), {{Role::kActor, "a/b"}}, false).ok());
  EXPECT_FALSE(MakeKeys(folder.path(), {{Role::kCoordinator, "other"}}, false).ok());
  EXPECT_FALSE(MakeKeys(folder.path() + "-2", {{Role::kActor, "actor"}}, false).ok())
      << "a key without a coordinator's is of no use";
}

TEST(KeysTest, RotationAllowsTwoNewestKeys) {
  const KeyFolder folder;
  AllowList list(folder.allowed());
  std::vector<PublicKey> keys{folder.Load("actor")->public_key};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(MakeKeys(folder.path(), {{Role::kActor, "actor"}}, true).ok());
    keys.push_back(folder.Load("actor")->public_key);
    const std::size_t n = keys.size();
    EXPECT_TRUE(list.Find(keys[n - 1]).ok());
    EXPECT_TRUE(list.Find(keys[n - 2]).ok());
  }
  EXPECT_FALSE(list.Find(keys[0]).ok());
  EXPECT_TRUE(list.Find(folder.Load("learner")->public_key).ok()) << "others stay";
}

TEST(KeysTest, CoordinatorRotationUpdatesAllKeyFiles) {
  const KeyFolder folder;
  const PublicKey old_key = folder.Load("coordinator")->public_key;
  const std::string secret = KeyText(folder.Load("actor")->secret_key.bytes());
  ASSERT_TRUE(MakeKeys(folder.path(), {{Role::kCoordinator, "coordinator"}}, true).ok());
  const PublicKey new_key = folder.Load("coordinator")->public_key;
  EXPECT_NE(new_key, old_key);
  for (const char* name : {"actor", "tool", "coordinator"}) {
    EXPECT_EQ(folder.Load(name)->coordinators, (std::vector{new_key, old_key})) << name;
    EXPECT_EQ(Mode(folder.file(name)), 0600u);
  }
  EXPECT_EQ(KeyText(folder.Load("actor")->secret_key.bytes()), secret);
}

TEST(AllowListTest, AppliesAddedAndRemovedLinesImmediately) {
  const KeyFolder folder;
  AllowList list(folder.allowed());
  const auto ring = folder.Load("actor");
  ASSERT_TRUE(list.Find(ring->public_key).ok());
  const std::string text = Text(folder.allowed());
  const std::string line = KeyText(ring->public_key) + " actor actor\n";
  Write(folder.allowed(), Replaced(text, line, ""));
  const auto gone = list.Find(ring->public_key);
  EXPECT_EQ(gone.status().code(), Code::kNotFound);
  EXPECT_THAT(gone.status().message(), HasSubstr(folder.allowed()));
  Write(folder.allowed(), text + KeyText(ring->public_key) + " evaluator newcomer # new\n");
  ASSERT_TRUE(list.Find(ring->public_key).ok());
  EXPECT_EQ(list.Find(ring->public_key)->role, Role::kEvaluator);
  EXPECT_EQ(list.Find(ring->public_key)->name, "newcomer");
}

TEST(AllowListTest, RejectsAllKeysIfListIsInvalidOrWritableByOthers) {
  const KeyFolder folder;
  AllowList list(folder.allowed());
  const PublicKey key = folder.Load("actor")->public_key;
  const std::string good = Text(folder.allowed());
  for (const char* bad : {"nonsense\n", "12 actor actor\n", "x y z w\n"}) {
    Write(folder.allowed(), good + bad);
    EXPECT_EQ(list.Find(key).status().code(), Code::kInvalidArgument) << bad;
  }
  Write(folder.allowed(), good + KeyText(key) + " coordinator2 x\n");
  EXPECT_FALSE(list.Find(key).ok());
  Write(folder.allowed(), good);
  EXPECT_TRUE(list.Find(key).ok());
  ASSERT_EQ(chmod(folder.allowed().c_str(), 0622), 0);
  EXPECT_THAT(list.Find(key).status().message(), HasSubstr("chmod go-w"));
  ASSERT_EQ(chmod(folder.allowed().c_str(), 0644), 0);
  EXPECT_TRUE(list.Find(key).ok());
  fs::remove(folder.allowed());
  EXPECT_FALSE(list.Find(key).ok());
}

TEST(AccessTest, RolesMaySendOnlyTheirMessageTypes) {
  const auto may = [](Role key, Role as, MessageType type) {
    return CheckAccess(key, {.type = type, .origin = {.role = as, .index = NewcomerIndex(key, 5)}})
        .ok();
  };
  EXPECT_TRUE(may(Role::kActor, Role::kActor, MessageType::kInsert));
  EXPECT_TRUE(may(Role::kActor, Role::kActor, MessageType::kPull));
  EXPECT_TRUE(may(Role::kActor, Role::kTool, MessageType::kRegister));
  EXPECT_TRUE(may(Role::kActor, Role::kActor, MessageType::kHeartbeat));
  EXPECT_TRUE(may(Role::kActor, Role::kActor, MessageType::kInfer));
  EXPECT_TRUE(may(Role::kInference, Role::kInference, MessageType::kPull));
  EXPECT_TRUE(may(Role::kInference, Role::kInference, MessageType::kShardPull));
  EXPECT_FALSE(may(Role::kInference, Role::kInference, MessageType::kInsert));
  EXPECT_FALSE(may(Role::kInference, Role::kInference, MessageType::kPublish));
  EXPECT_FALSE(may(Role::kEvaluator, Role::kEvaluator, MessageType::kInfer));
  EXPECT_TRUE(may(Role::kLearner, Role::kLearner, MessageType::kShardPush));
  EXPECT_TRUE(may(Role::kLearner, Role::kLearner, MessageType::kSample));
  EXPECT_TRUE(may(Role::kTool, Role::kTool, MessageType::kStatus));
  // A key must not send as another role, nor send another role's messages.
  for (const MessageType type :
       {MessageType::kShardPush, MessageType::kPublish, MessageType::kSample,
        MessageType::kUpdatePriorities, MessageType::kReplayCheckpoint, MessageType::kReconfigure,
        MessageType::kShardState, MessageType::kShardUpdate, MessageType::kShardFetch,
        MessageType::kScale, MessageType::kStatus, MessageType::kTest}) {
    EXPECT_FALSE(may(Role::kActor, Role::kActor, type)) << int(type);
    EXPECT_FALSE(may(Role::kActor, Role::kLearner, type)) << int(type);
    EXPECT_FALSE(may(Role::kActor, Role::kTool, type)) << int(type);
  }
  EXPECT_FALSE(may(Role::kActor, Role::kLearner, MessageType::kHeartbeat));
  EXPECT_FALSE(may(Role::kActor, Role::kReplay, MessageType::kMemberHeartbeat));
  EXPECT_FALSE(may(Role::kTool, Role::kActor, MessageType::kInsert));
  EXPECT_FALSE(may(Role::kTool, Role::kTool, MessageType::kRegister));
  EXPECT_FALSE(may(Role::kNone, Role::kNone, MessageType::kHeartbeat)) << "a socket without keys";
  EXPECT_FALSE(may(Role::kCoordinator, Role::kCoordinator, MessageType::kMemberHeartbeat));
}

// A newer client of the same name replaces the older one. Without this check the holder of an
// actor's key could prevent a learner from registering.
TEST(AccessTest, RejectsNewcomerIndexOfOtherRole) {
  const auto may = [](Role key, std::int32_t index, MessageType type) {
    return CheckAccess(key, {.type = type, .origin = {.role = Role::kTool, .index = index}}).ok();
  };
  for (const MessageType type : {MessageType::kHeartbeat, MessageType::kRegister}) {
    EXPECT_TRUE(may(Role::kActor, NewcomerIndex(Role::kActor, 7), type));
    EXPECT_FALSE(may(Role::kActor, NewcomerIndex(Role::kLearner, 7), type));
    EXPECT_FALSE(may(Role::kActor, 7, type));
    EXPECT_FALSE(may(Role::kActor, -1, type));
  }
}

}  // namespace
}  // namespace troop
