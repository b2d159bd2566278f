// `troop experiment imdb-parallel`, end to end.
#include "tests/system/troop_process.h"

namespace troop {
namespace {

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

class ExperimentTest : public SystemTest {
 protected:
  std::string out() const { return folder() + "/experiment"; }
  std::unique_ptr<Troop> Experiment(std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"experiment",
                                   "imdb-parallel",
                                   "--out",
                                   out(),
                                   "data.reviews=" + kFixtures + "reviews.csv",
                                   "data.vocabulary=" + kFixtures + "vocab.txt"};
    words.insert(words.end(), more.begin(), more.end());
    return Start(words);
  }
  // Four cells whose learners sent what the formula says, of the same batches.
  void ExpectCells(const JsonValue& results) const {
    const JsonValue& cells = *results.Find("cells");
    ASSERT_EQ(cells.array.size(), 4u);
    for (const JsonValue& cell : cells.array) {
      EXPECT_GT(cell.Find("expected_bytes")->number, 0);
      EXPECT_EQ(cell.Find("sent_bytes")->number, cell.Find("expected_bytes")->number);
      EXPECT_EQ(cell.Find("tokens_per_update")->number,
                cells.array[0].Find("tokens_per_update")->number);
      EXPECT_GT(cell.Find("step_s_median")->number, 0);
    }
  }
};

TEST_F(ExperimentTest, ComparesFourRunsByTimeAndBytes) {
  const auto troop = Experiment({"--quick"});
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  ExpectCells(Json(out() + "/results.json"));
  const std::string table = FileText(out() + "/table.md");
  EXPECT_NE(troop->output().find(table), std::string::npos);
  for (const char* const part : {"| BERT | ", "| ALBERT | ", "2 learners on one machine"}) {
    EXPECT_NE(table.find(part), std::string::npos) << table;
  }
  EXPECT_TRUE(FileHas(out() + "/bert-tensor-1/config.toml", "tp = 2"));
  EXPECT_TRUE(FileHas(out() + "/bert-data-1/config.toml", "dp = 2"));
  const auto again = Experiment({"--quick"});
  EXPECT_EQ(again->Wait(), 3) << again->output();
  EXPECT_NE(again->output().find("replace it with --overwrite"), std::string::npos)
      << again->output();
}

// Data that is sent faster than the link allows took another path: shared memory, or an unshaped
// link.
TEST_F(ExperimentTest, LearnersOnShapedLinksRespectBandwidth) {
  constexpr double kBits = 16e6;
  const auto troop = Experiment({"--quick", "--link", "16mbit"});
  const int code = troop->Wait();
  if (troop->output().find("troop: --link needs ") != std::string::npos) {
    GTEST_SKIP() << troop->output();
  }
  ASSERT_EQ(code, 0) << troop->output();
  const JsonValue results = Json(out() + "/results.json");
  ExpectCells(results);
  for (const JsonValue& cell : results.Find("cells")->array) {
    EXPECT_LT(8 * cell.Find("sent_bytes")->number, 1.5 * kBits * cell.Find("step_s_median")->number)
        << FileText(out() + "/table.md");
  }
  EXPECT_NE(FileText(out() + "/table.md").find("2 learners on links of 16 Mbit/s"),
            std::string::npos);
}

TEST_F(ExperimentTest, RejectsInvalidExperimentBeforeStart) {
  const auto says = [this](const std::unique_ptr<Troop>& troop, const std::string& part) {
    EXPECT_EQ(troop->Wait(), 2) << troop->output();
    EXPECT_NE(troop->output().find(part), std::string::npos) << troop->output();
    EXPECT_FALSE(std::filesystem::exists(out()));
  };
  says(Start({"experiment", "imdb-parallel", "--out", out()}), "data.reviews=aclImdb");
  says(Experiment({"mesh.tp=2"}), "mesh.tp=2: the experiment sets this key itself");
  says(Experiment({"--link", "fast"}), "such as 1gbit");
  says(Experiment({"model.hiden_size=64"}), "model.hidden_size");
}

TEST_F(ExperimentTest, SignalEndsExperimentAndRun) {
  const auto troop = Experiment({"--quick", "data.reviews=" + kFixtures + "reviews.csv"});
  ASSERT_TRUE(Await([this] { return std::filesystem::exists(out() + "/bert-data-1/run.json"); }))
      << troop->output();
  const std::string coordinator = *Json(out() + "/bert-data-1/run.json").String("coordinator");
  troop->Signal(SIGTERM);
  // A run that was over by then is not stopped: the next one is.
  EXPECT_EQ(troop->Wait(), 130) << troop->output();
  EXPECT_FALSE(std::filesystem::exists(out() + "/results.json"));
  EXPECT_TRUE(Await([&] { return RoleProcesses(coordinator).empty(); }));
}

}  // namespace
}  // namespace troop
