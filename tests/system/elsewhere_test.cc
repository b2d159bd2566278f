// Roles other than actors on other machines: fleet.external_roles.
#include "tests/core/python.h"
#include "tests/system/join_fleet.h"

namespace troop {
namespace {

class ElsewhereTest : public JoinFleet {
 protected:
  // "Machines" are addresses: 127.0.0.2 is the run's.
  std::vector<std::string> RunWords(const std::string& elsewhere,
                                    std::vector<std::string> more = {}) const {
    std::vector<std::string> words = ListenWords();
    more.push_back("fleet.external_roles=[" + elsewhere + "]");
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::unique_ptr<Troop> JoinAs(const std::string& role, const std::string& host,
                                const std::string& count = "1") const {
    std::vector<std::string> words = JoinWords(count, role + "-" + host, key(role));
    words.insert(words.end(), {"--role", role, "--advertise-host", host});
    return Start(words);
  }
  bool Learns() const {
    const std::size_t seen = FileText(run() + "/evaluations.jsonl").size();
    return Await([&] { return LearnedBehind(seen); });
  }
};

TEST_F(ElsewhereTest, ReplacementsTakeSlotsOfDeadExternalRoles) {
  const auto troop =
      Start(RunWords("\"replay\", \"learner\"", {"checkpoint.every_s=1", "replay.min_items=100"}));
  EXPECT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "waiting for replay-0"); }));
  auto replay = JoinAs("replay", "127.0.0.3");
  auto learner = JoinAs("learner", "127.0.0.4");
  EXPECT_TRUE(Learns()) << replay->output() << learner->output() << LauncherLog();
  EXPECT_TRUE(RoleProcesses(Address(), "replay").size() == 1);
  // A killed role does not deregister.
  replay->Signal(SIGKILL);
  EXPECT_TRUE(Await([&] { return Members("replay") == 0; })) << LauncherLog();
  replay = JoinAs("replay", "127.0.0.5");
  EXPECT_TRUE(Learns()) << replay->output() << LauncherLog();
  learner->Signal(SIGKILL);
  EXPECT_TRUE(Await([&] { return Members("learner") == 0; })) << LauncherLog();
  learner = JoinAs("learner", "127.0.0.6");
  EXPECT_TRUE(Learns()) << learner->output() << LauncherLog();
  EXPECT_TRUE(FileHas(folder() + "/learner-127.0.0.6/learner-0.log", "checkpoint"));
  Stop(troop.get());
  EXPECT_EQ(replay->Wait(), 0) << replay->output();
  EXPECT_EQ(learner->Wait(), 0) << learner->output();
  ExpectNoSecretLeft();
}

TEST_F(ElsewhereTest, LearnersOfTwoMachinesFormGroup) {
  const auto troop = Start(RunWords("\"learner\"", {"fleet.learners=2"}));
  const auto first = JoinAs("learner", "127.0.0.3"), second = JoinAs("learner", "127.0.0.4");
  EXPECT_TRUE(Learns()) << first->output() << second->output() << LauncherLog();
  const auto extra = JoinAs("learner", "127.0.0.5", "3");
  EXPECT_EQ(extra->Wait(), 2) << extra->output();
  EXPECT_NE(extra->output().find("3 roles learner can't join, must be 1 to 2"), std::string::npos)
      << extra->output();
  Stop(troop.get());
  EXPECT_EQ(first->Wait(), 0) << first->output();
  EXPECT_EQ(second->Wait(), 0) << second->output();
}

// A joined learner with another label in one row shared batches with the others, without a word.
TEST_F(ElsewhereTest, RejectsLearnerWithOtherDataNamingBoth) {
  const std::string fixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";
  const std::string reviews = folder() + "/reviews.csv", right = FileText(fixtures + "reviews.csv");
  std::string wrong = right;
  wrong.replace(wrong.find("negative"), 8, "positive");
  std::ofstream(reviews) << right;
  std::ofstream(config()) << R"(
name = "run"
learner = {algorithm = "classifier", batch_size = 5}
run = {epochs = 1e6}
model.hidden_size = 32
model.num_hidden_layers = 2
model.num_attention_heads = 4
model.max_position_embeddings = 24
mesh.dp = 2
evaluator.enabled = false
log.metrics_every_s = 0.1
data = {max_length = 16, cache = "", reviews = ")"
                          << reviews << "\", vocabulary = \"" << fixtures << "vocab.txt\"}\n";
  const auto troop = Start({"train", config(), "fleet.listen=tcp://127.0.0.2:0",
                            "fleet.external_roles=[\"learner\"]", "security.keys=" + keys(),
                            "log.dir=" + folder()});
  const auto first = JoinAs("learner", "127.0.0.3");
  const std::string log = folder() + "/learner-127.0.0.3/learner-0.log";
  ASSERT_TRUE(Await([&] { return FileHas(log, "joined as learner-"); }))
      << first->output() << LauncherLog();  // it has read them
  std::ofstream(reviews) << wrong;
  const auto second = JoinAs("learner", "127.0.0.4");
  EXPECT_NE(second->Wait(), 0) << second->output();
  for (const char* const part : {"the data here (12 reviews to learn (7 positive)",
                                 "are not the run's (12 reviews to learn (6 positive)"}) {
    EXPECT_NE(second->output().find(part), std::string::npos) << second->output();
  }
  Stop(troop.get());
  EXPECT_EQ(first->Wait(), 0) << first->output();
}

// Regression: a different environment with equal shapes was accepted silently. The file's content
// is compared, not its path.
TEST_F(ElsewhereTest, RejectsActorWithOtherEnvironmentSource) {
  TROOP_SKIP_WITHOUT_PYTHON();
  const std::string right = FileText(TROOP_SOURCE_DIR "/tests/envs/faulty_env.py");
  const auto folder_with = [&](const std::string& name, const std::string& source) {
    std::filesystem::create_directory(folder() + "/" + name);
    std::ofstream(folder() + "/" + name + "/faulty_env.py") << source;
    return "PYTHONPATH=" + folder() + "/" + name;
  };
  const auto troop =
      Start(RunWords("\"actor\"", {"env.id=python:faulty_env:Counter",
                                   std::string("env.python=") + getenv("TROOP_TEST_PYTHON")}),
            {folder_with("run-source", right)});
  const auto join = [&](const std::string& host, const std::string& environment) {
    std::vector<std::string> words = JoinWords("1", host, key("actor"));
    words.insert(words.end(), {"--role", "actor", "--advertise-host", host});
    return Start(words, {environment});
  };
  const auto wrong = join("127.0.0.3", folder_with("other-source", right + "# another\n"));
  EXPECT_NE(wrong->Wait(), 0) << wrong->output();
  for (const char* const part :
       {"faulty_env:Counter is 1 Python file of ", " here, but 1 Python file of "}) {
    EXPECT_NE(wrong->output().find(part), std::string::npos) << wrong->output();
  }
  const auto same = join("127.0.0.4", folder_with("same-source", right));
  EXPECT_TRUE(Await([&] { return Actors() == 1; })) << same->output() << LauncherLog();
  Stop(troop.get());
  EXPECT_EQ(same->Wait(), 0) << same->output();
}

TEST_F(ElsewhereTest, EndsNamingExternalRoleThatDidNotJoin) {
  const auto troop = Start(RunWords("\"replay\"", {"fleet.join_timeout_s=1"}));
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  EXPECT_NE(troop->output().find("replay-0 did not join within 1 s (fleet.join_timeout_s)"),
            std::string::npos)
      << troop->output();
}

TEST_F(ElsewhereTest, EndsWithFewerActorsThanMinimum) {
  const auto troop = Start(RunWords("\"actor\"", {"fleet.actors_min=2", "fleet.join_timeout_s=2"}));
  const auto actor = JoinAs("actor", "127.0.0.3");
  EXPECT_EQ(troop->Wait(), 1) << troop->output();
  EXPECT_NE(troop->output().find("1 of 2 actors did not join"), std::string::npos)
      << troop->output();
}

TEST_F(ElsewhereTest, RejectsJoinForLocalRole) {
  const auto troop = Start(ListenWords());
  const auto replay = JoinAs("replay", "127.0.0.3");
  EXPECT_EQ(replay->Wait(), 2) << replay->output();
  EXPECT_NE(replay->output().find("add it to fleet.external_roles"), std::string::npos)
      << replay->output();
  Stop(troop.get());
}

}  // namespace
}  // namespace troop
