// Whole runs on images: learners that share batches, through a death, a stop and a resume.

#include <algorithm>
#include <fstream>

#include "core/graphics/png.h"
#include "learners/checkpoint.h"
#include "nn/io/safetensors.h"
#include "tests/learners/images/idx_files.h"
#include "tests/system/troop_process.h"

namespace troop {
namespace {

constexpr std::size_t kPixels = 64, kTrained = 400, kTests = 200;

class ImagesRunTest : public SystemTest {
 protected:
  // The first of scikit-learn's digits, whose pixels are from 0 to 16.
  ImagesRunTest() {
    const std::string all = FileText(TROOP_SOURCE_DIR "/tests/fixtures/digits/digits.bin");
    const auto write = [&](const std::string& set, std::size_t first, std::size_t count) {
      std::string pixels, labels;
      for (std::size_t i = first; i < first + count; ++i) {
        labels.push_back(all[i * (1 + kPixels)]);
        for (std::size_t p = 1; p <= kPixels; ++p)
          pixels.push_back(char(std::min(255, 16 * all[i * (1 + kPixels) + p])));
      }
      test::WriteIdx(folder() + "/" + set, {8, 8}, pixels, labels);
      return pixels;
    };
    write("train", 0, kTrained);
    tests_ = write("t10k", kTrained, kTests);
    std::ofstream(config()) << R"(
name = "run"
fleet = {backoff_initial_s = 0.05}
learner = {algorithm = "classifier", batch_size = 32, publish_every_updates = 20}
run = {epochs = 8}
model.architecture = "cnn"
mesh.dp = 2
optimizer = {learning_rate = 3e-3, final_lr_fraction = 0}
evaluator = {every_s = 1}
checkpoint = {every_s = 0.3}
log.metrics_every_s = 0.1
)";
  }
  std::vector<std::string> Keys(std::vector<std::string> more = {}) const {
    more.push_back("data.images=" + folder());
    return more;
  }
  // A test image as a file.
  std::string WriteTestImage(std::size_t i) const {
    Picture picture{8, 8, {}};
    for (std::size_t p = 0; p < kPixels; ++p)
      picture.rgb.insert(picture.rgb.end(), 3, std::uint8_t(tests_[i * kPixels + p]));
    const std::string path = fmt::format("{}/{}.png", folder(), i);
    const Buffer bytes = EncodePng(picture);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.bytes().data()), std::streamsize(bytes.size()));
    return path;
  }
  // The weights in the newest checkpoint of a run.
  std::vector<float> Value(const std::string& name) const {
    const auto storage = MakeDiskStorage(run(name));
    const auto checkpoint = ReadCheckpoint(storage->get(), *NewestCheckpoint(storage->get()));
    const auto bytes = checkpoint->state.tensors.at("value").as<float>();
    return {bytes.begin(), bytes.end()};
  }
  std::string tests_;  // pixels
};

// Evaluation and predictions need the running statistics, which both learners must have.
TEST_F(ImagesRunTest, TwoLearnersLearnDigits) {
  const auto troop = Train(Keys());
  ASSERT_EQ(troop->Wait(), 0) << troop->output();
  const JsonValue result = Json(run() + "/result.json");
  EXPECT_GE(result.Find("final_return_mean")->number, 88) << troop->output();
  EXPECT_GE(result.Find("final_metrics")->Find("top5_accuracy")->number, 0.97);
  EXPECT_TRUE(FileHas(run() + "/report.md", "| top5_accuracy | "));
  EXPECT_TRUE(FileHas(run() + "/report.md", "| wait for images | "));
  const auto eval = Start({"eval", run()});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  EXPECT_NE(eval->output().find("top-5 accuracy"), std::string::npos) << eval->output();
  // An image with its probabilities, and what a classifier of images does not do.
  const auto predict = Start({"predict", run(), WriteTestImage(0), "--json"});
  ASSERT_EQ(predict->Wait(), 0) << predict->output();
  EXPECT_NE(predict->output().find("\"label\": "), std::string::npos) << predict->output();
  // The written model is that of the last checkpoint, and begins another run.
  const std::string file = folder() + "/last.safetensors";
  ASSERT_EQ(Start({"export", run(), "--out", file})->Wait(), 0);
  const std::string written = FileText(run() + "/model/model.safetensors");
  const auto last = DecodeSafetensors(Buffer::Copy(std::as_bytes(std::span(written))));
  EXPECT_EQ(last->tensors.size(), 22u);
  EXPECT_EQ(FileText(file), written);
  const auto again = Train(Keys({"name=again", "model.pretrained=" + run() + "/model",
                                 "run.max_updates=1", "optimizer.learning_rate=1e-9"}));
  ASSERT_EQ(again->Wait(), 0) << again->output();
  EXPECT_GE(Json(run("again") + "/result.json").Find("final_return_mean")->number, 88);
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"predict", run(), folder() + "/none.png"}, "none.png"},
      {{"predict", run()}, "name PNG or JPEG files"},
      {{"export", run(), "--format", "onnx"}, "can't be exported as \"onnx\""}};
  for (const auto& [words, says] : refused) {
    const auto command = Start(words);
    EXPECT_NE(command->Wait(), 0);
    EXPECT_NE(command->output().find(says), std::string::npos) << command->output();
  }
}

// A killed learner takes over the state of the other one, and a stopped run continues.
TEST_F(ImagesRunTest, RunSurvivesKillAndResumes) {
  const auto troop = Train(Keys({"run.epochs=1e6", "evaluator.enabled=false"}));
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 1000)) << LauncherLog();
  const auto storage = MakeDiskStorage(run());
  ASSERT_TRUE(Await([&] { return NewestCheckpoint(storage->get()).ok(); }));
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  const std::int64_t wanted = *Json(run() + "/result.json").Integer("updates") + 20;
  const auto resumed = Start({"resume", run(), "run.max_updates=" + std::to_string(wanted)});
  ASSERT_EQ(resumed->Wait(), 0) << resumed->output() << LauncherLog();
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  const auto eval = Start({"eval", run(), "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  EXPECT_GE(ParseJson(eval->output())->Find("accuracy_percent")->number, 85) << eval->output();
}

// The bytes of a run that was stopped equal those of one that was not.
TEST_F(ImagesRunTest, ResumedRunHasBytesOfUnbrokenOne) {
  // One rate, since a schedule depends on the length of the run.
  const std::vector<std::string> common = Keys(
      {"mesh.dp=1", "fleet.mode=serial", "optimizer.final_lr_fraction=1", "evaluator.enabled=false",
       "data.image_padding=1", "data.image_crop_height=8", "data.image_crop_width=8"});
  const auto train = [&](const std::string& name, int updates) {
    std::vector<std::string> words = common;
    words.push_back("name=" + name);
    words.push_back(fmt::format("run.max_updates={}", updates));
    const auto troop = Train(words);
    EXPECT_EQ(troop->Wait(), 0) << troop->output();
  };
  train("unbroken", 30);
  train("broken", 17);
  const auto resumed = Start({"resume", run("broken"), "run.max_updates=30"});
  ASSERT_EQ(resumed->Wait(), 0) << resumed->output();
  const std::vector<float> expected = Value("unbroken");
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_TRUE(Value("broken") == expected);
}

// Two stages and one learner with the same micro-batches; the last batch of an epoch has 16 images.
TEST_F(ImagesRunTest, PipelineHasBytesOfOneLearner) {
  const auto train = [&](const std::string& name, std::vector<std::string> words) {
    words.insert(words.end(), {"name=" + name, "run.max_updates=26", "evaluator.enabled=false"});
    const auto troop = Train(Keys(words));
    EXPECT_EQ(troop->Wait(), 0) << troop->output();
  };
  train("alone", {"mesh.dp=1", "fleet.mode=serial", "learner.micro_batch_size=8"});
  train("stages", {"mesh.dp=1", "mesh.pp=2"});
  const std::vector<float> expected = Value("alone");
  EXPECT_GT(expected.size(), 1000u);
  EXPECT_TRUE(Value("stages") == expected);
  EXPECT_TRUE(FileHas(run("stages") + "/report.md", "schedule 1f1b: passes of an update took"));
  // Settings that fit no pipeline.
  const std::pair<const char*, const char*> refused[] = {
      {"mesh.pp=12", "12 stages of 1 chunks exceed the 9 blocks"},
      {"pipeline.stages=[\"layer2\"]", "there is no block \"layer2\""},
      {"pipeline.micro_batches=0", "pipeline.micro_batches"},
      {"pipeline.micro_batches=5", "do not divide learner.batch_size = 32"},
      {"fleet.learners=3", "differs from fleet.learners = 3"}};
  for (const auto& [word, says] : refused) {
    const auto command = Train(Keys({"mesh.dp=1", "mesh.pp=2", "name=refused", word}));
    EXPECT_NE(command->Wait(), 0);
    EXPECT_NE(command->output().find(says), std::string::npos) << command->output();
  }
}

// A killed stage makes all go back to the newest checkpoint; then the run continues without stages.
TEST_F(ImagesRunTest, PipelineSurvivesDeathOfStageAndResumesWithoutStages) {
  const auto troop =
      Train(Keys({"mesh.dp=1", "mesh.pp=2", "run.epochs=1e6", "evaluator.enabled=false"}));
  ASSERT_TRUE(AwaitSteps(500)) << troop->output();
  SendSignal(AwaitFirst("learner"), SIGKILL);
  ASSERT_TRUE(Await([&] { return FileHas(run() + "/logs/launcher.log", "learner-0 ended"); }));
  ASSERT_TRUE(AwaitSteps(Steps() + 3000)) << LauncherLog();
  troop->Signal(SIGINT);
  ASSERT_EQ(troop->Wait(), 130) << troop->output();
  const std::int64_t wanted = *Json(run() + "/result.json").Integer("updates") + 20;
  const auto resumed = Start({"resume", run(), "mesh.pp=1", "learner.micro_batch_size=8",
                              "run.max_updates=" + std::to_string(wanted)});
  ASSERT_EQ(resumed->Wait(), 0) << resumed->output() << LauncherLog();
  EXPECT_EQ(*Json(run() + "/result.json").Integer("updates"), wanted);
  const auto eval = Start({"eval", run(), "--json"});
  ASSERT_EQ(eval->Wait(), 0) << eval->output();
  EXPECT_GE(ParseJson(eval->output())->Find("accuracy_percent")->number, 85) << eval->output();
}

}  // namespace
}  // namespace troop
