// Runs with learner.init_from: they start from the weights of another run.

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>

#include "tests/system/troop_process.h"

namespace troop {
namespace {

// The f32 values of a safetensors file by name, read without the product's decoder.
std::map<std::string, std::vector<float>> PlainWeights(const std::string& file) {
  const std::string bytes = FileText(file);
  std::uint64_t header = 0;
  EXPECT_GT(bytes.size(), sizeof header) << file;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto json = ParseJson(std::string_view(bytes).substr(sizeof header, header));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, entry] : json->object) {
    if (name == "__metadata__") continue;
    const auto& ends = entry.Find("data_offsets")->array;
    const std::size_t first = std::size_t(ends[0].number), last = std::size_t(ends[1].number);
    std::vector<float> values((last - first) / sizeof(float));
    std::memcpy(values.data(), bytes.data() + sizeof header + header + first, last - first);
    tensors[name] = std::move(values);
  }
  return tensors;
}

class WarmStartRunTest : public SystemTest {
 protected:
  std::map<std::string, std::vector<float>> FinalWeights(const std::string& name) const {
    return PlainWeights(run(name) + "/" + *Json(run(name) + "/result.json").String("checkpoint") +
                        "/weights.safetensors");
  }
  std::string LearnerLog(const std::string& name) const {
    return FileText(run(name) + "/logs/learner-0.log");
  }
  // The words of a run that hardly moves its weights.
  std::vector<std::string> FrozenWords(const std::string& name,
                                       const std::vector<std::string>& more) const {
    std::vector<std::string> words = TrainWords(
        {"name=" + name, "seed=9", "run.total_steps=1000", "optimizer.learning_rate=1e-12"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(WarmStartRunTest, RunsStartFromWeightsOfAnotherRun) {
  const auto first = Train({"run.total_steps=3000", "optimizer.learning_rate=0.01"});
  ExpectDone(first.get(), 3000);
  const auto there = FinalWeights("run");
  // A run folder, as one learner; the checkpoint folder, with parameter shards.
  const std::string checkpoint = run() + "/" + *Json(run() + "/result.json").String("checkpoint");
  const std::vector<std::vector<std::string>> ways = {
      {"learner.init_from=" + run()},
      {"learner.init_from=" + checkpoint, "learner.sync=paramserver", "paramserver.shards=2"}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const std::string name = "warm-" + std::to_string(i);
    const auto troop = Start(FrozenWords(name, ways[i]));
    ExpectDone(troop.get(), 1000, name);
    const auto here = FinalWeights(name);
    ASSERT_EQ(here.size(), there.size());
    for (const auto& [tensor, values] : there) {
      ASSERT_EQ(here.at(tensor).size(), values.size()) << tensor;
      for (std::size_t k = 0; k < values.size(); ++k) {
        ASSERT_NEAR(here.at(tensor)[k], values[k], 1e-6) << name << " " << tensor << " " << k;
      }
    }
  }
  EXPECT_NE(LearnerLog("warm-0").find("learner.init_from: "), std::string::npos);
  // A resumed run continues from its own weights, even if the other run is gone.
  std::filesystem::remove_all(run());
  const auto resumed = Start({"resume", run("warm-0"), "run.total_steps=1500"});
  ExpectDone(resumed.get(), 1500, "warm-0");
  EXPECT_NE(LearnerLog("warm-0").find("learner.init_from is ignored"), std::string::npos)
      << LearnerLog("warm-0");
}

// A text model on one learner, then in two tensor-parallel parts, without and with parameter
// shards.
TEST_F(WarmStartRunTest, MeshStartsFromWeightsOfOneLearner) {
  const auto train = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = ClassifierWords({"name=" + name});
    words.insert(words.end(), more.begin(), more.end());
    const auto troop = Start(words);
    EXPECT_EQ(troop->Wait(), 0) << troop->output();
  };
  train("run", {});
  const auto there = FinalWeights("run");
  for (const std::string sync : {"allreduce", "paramserver"}) {
    train(sync, {"mesh.tp=2", "learner.sync=" + sync, "learner.init_from=" + run(), "seed=9",
                 "optimizer.learning_rate=1e-12"});
    const auto here = FinalWeights(sync);
    ASSERT_EQ(here.size(), there.size());
    for (const auto& [tensor, values] : there) {
      ASSERT_EQ(here.at(tensor).size(), values.size()) << tensor;
      for (std::size_t k = 0; k < values.size(); ++k) {
        ASSERT_NEAR(here.at(tensor)[k], values[k], 1e-6) << sync << " " << tensor << " " << k;
      }
    }
  }
}

TEST_F(WarmStartRunTest, BadInitFromIsOneLineBeforeTheStart) {
  const auto refused = [this](const std::vector<std::string>& words, const std::string& part) {
    const auto troop = Start(FrozenWords("refused", words));
    EXPECT_NE(troop->Wait(), 0);
    EXPECT_NE(troop->output().find(part), std::string::npos) << troop->output();
    EXPECT_EQ(std::ranges::count(troop->output(), '\n'), 1) << troop->output();
    EXPECT_FALSE(std::filesystem::exists(run("refused")));
    // `troop doctor` finds the same.
    std::vector<std::string> doctor = FrozenWords("refused", words);
    doctor.front() = "doctor";
    const auto examined = Start(doctor);
    EXPECT_EQ(examined->Wait(), 1) << examined->output();
    EXPECT_NE(examined->output().find(part), std::string::npos) << examined->output();
  };
  refused({"learner.init_from=" + folder() + "/none"}, "neither a run");
  const auto first = Train({"run.total_steps=1000"});
  ExpectDone(first.get(), 1000);
  std::vector<std::string> fits = FrozenWords("refused", {"learner.init_from=" + run()});
  fits.front() = "doctor";
  const auto doctor = Start(fits);
  EXPECT_EQ(doctor->Wait(), 0) << doctor->output();
  EXPECT_NE(doctor->output().find("fit the network"), std::string::npos) << doctor->output();
  refused({"learner.init_from=" + run(),
           "network.layers=[{type = \"linear\", units = 7}, {type = \"linear\", units = 7}]",
           "network.dueling=false", "env.id=Catch-v0"},
          "has none of the");
  refused({"learner.init_from=" + run(), "model.pretrained=" + folder()}, "model.pretrained");
}

}  // namespace
}  // namespace troop
