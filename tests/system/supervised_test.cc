// A whole supervised run: learners that share batches, through a death, a stop and a resume.

#include "learners/checkpoint.h"
#include "tests/system/troop_process.h"
#include "tests/text/data.h"

namespace troop {
namespace {

const std::string kFixtures = TROOP_SOURCE_DIR "/tests/fixtures/supervised/";

class SupervisedTest : public SystemTest {
 protected:
  SupervisedTest() {
    std::ofstream(config()) << R"(
name = "run"
fleet = {backoff_first_s = 0.05}
learner = {algorithm = "classifier", batch_size = 5, epochs = 1e6, publish_every_updates = 20}
data = {tokens_max = 16, cache = ""}
model = {hidden = 32, layers = 2, heads = 4, positions = 24}
mesh.dp = 2
optimizer = {learning_rate = 2e-3}
evaluator = {enabled = false}
checkpoint = {every_s = 0.3}
log.metrics_every_s = 0.1
)";
  }
};

// The small baseline from nothing, of all 25,000 test reviews; some ten minutes on two cores.
TEST_F(SupervisedTest, SlowTheBaselineTellsTheTestReviews) {
  TROOP_SKIP_WITHOUT_DATA("imdb/aclImdb_labeled.tar.xz");
  const auto troop =
      Start({"train", TROOP_SOURCE_DIR "/configs/imdb_lstm.toml", "name=run", "log.dir=" + folder(),
             "data.reviews=" + DataPath("imdb/aclImdb_labeled.tar.xz"),
             "data.vocabulary=" + DataPath("tokenizers/bert-base-uncased-vocab.txt"), "seed=2002"});
  ASSERT_EQ(troop->Wait(3000), 0) << troop->output();
  EXPECT_GE(Json(run() + "/result.json").Find("final_return_mean")->number, 87) << troop->output();
}

// It can't end by itself before it is stopped, however fast the machine is.
TEST_F(SupervisedTest, ARunOutlivesALearnerAndAStopAndLearnsEveryReview) {
  const auto troop = Train(
      {"data.reviews=" + kFixtures + "reviews.csv", "data.vocabulary=" + kFixtures + "vocab.txt"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 600)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  const std::int64_t updates = *Json(run() + "/result.json").Integer("updates");
  EXPECT_GT(updates, 100);

  const std::int64_t wanted = updates + 31;  // three an epoch, of 5, 5 and 2 reviews in some order
  const auto resumed = Start({"resume", run(), "learner.max_updates=" + std::to_string(wanted)});
  ExpectDone(resumed.get(), wanted / 3 * 12 + std::min<std::int64_t>(12, wanted % 3 * 5));
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  for (const char* const model : {"", "/model"}) {
    const auto said =
        Start({"predict", run() + model, "A great film, and a wonderful plot!", "Bad."});
    ASSERT_EQ(said->Wait(), 0) << said->output();
    EXPECT_TRUE(said->output().starts_with("positive (")) << said->output();
    EXPECT_NE(said->output().find("\nnegative ("), std::string::npos) << said->output();
  }
}

// The parts of a model wait for the one that died, and all go on at one update; then at another
// mesh.
TEST_F(SupervisedTest, AMeshOutlivesALearnerAndGoesOnAtAnotherMesh) {
  const auto troop = Train({"data.reviews=" + kFixtures + "reviews.csv",
                            "data.vocabulary=" + kFixtures + "vocab.txt", "mesh.tp=2"});
  ASSERT_TRUE(AwaitSteps(200)) << troop->output();
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/learner-3.log", "in step with 4 of 4"); }));
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 600)) << LauncherLog();
  const auto storage = MakeDiskStorage(run());
  ASSERT_TRUE(Await([&] { return NewestCheckpoint(storage->get()).ok(); }));
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();

  const std::int64_t updates = *Json(run() + "/result.json").Integer("updates");
  const std::int64_t wanted = updates + 31;
  const auto resumed = Start({"resume", run(), "mesh.dp=1", "mesh.tp=3", "fleet.learners=3",
                              "learner.max_updates=" + std::to_string(wanted)});
  ExpectDone(resumed.get(), wanted / 3 * 12 + std::min<std::int64_t>(12, wanted % 3 * 5));
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  EXPECT_TRUE(FileHas(run() + "/logs/learner-2.log", "in step with 3 of 3"));
}

// Two models in two parts each are two workers of the parameter shards: who dies comes back to its
// other part, whether it spoke for it or not, and the run ends in order.
TEST_F(SupervisedTest, ModelsInPartsAreWorkersOfParameterShards) {
  const auto troop = Train(
      {"data.reviews=" + kFixtures + "reviews.csv", "data.vocabulary=" + kFixtures + "vocab.txt",
       "mesh.tp=2", "learner.sync=paramserver", "paramserver.shards=2", "paramserver.mode=bsp"});
  ASSERT_TRUE(AwaitSteps(100)) << troop->output();
  for (const std::string learner : {"learner-0", "learner-3"}) {
    const std::string log = run() + "/logs/" + learner + ".log";
    ASSERT_TRUE(Await([&] { return FileHas(log, "in step with 2 of 4"); }));
  }
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(Await(
      [&] { return FileHas(run() + "/logs/learner-1.log", "the group of 2 learners has ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 200)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output() << LauncherLog();

  const std::int64_t wanted = *Json(run() + "/result.json").Integer("updates") + 40;
  const auto resumed = Start({"resume", run(), "learner.max_updates=" + std::to_string(wanted)});
  ASSERT_EQ(resumed->Wait(), 0) << resumed->output() << LauncherLog();
  // As learner 0 has seen them: the shards' last ones may be behind its last gradient.
  EXPECT_GE(*Json(run() + "/result.json").Integer("updates"), wanted - 20);
  const auto said = Start({"predict", run(), "A great film, and a wonderful plot!", "Bad."});
  ASSERT_EQ(said->Wait(), 0) << said->output();
  EXPECT_TRUE(said->output().starts_with("positive (")) << said->output();
  EXPECT_NE(said->output().find("\nnegative ("), std::string::npos) << said->output();
}

}  // namespace
}  // namespace troop
