// `troop export`: files from checkpoints, loaded by libtroop_policy.
#include "apps/deploy/export_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/deploy/loaded_checkpoint.h"
#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "datasets/tokenizers/tokenizer.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "learners/algorithm.h"
#include "learners/supervised/supervised.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "nn/policy_library/troop_policy.h"
#include "tests/core/temp_folder.h"
#include "tests/fleet/supervised_run_config.h"

namespace troop {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The run folder of an agent with one checkpoint.
class ExportCommandTest : public testing::Test {
 protected:
  // Writes a checkpoint of the initial weights.
  void WriteRun(const Config& config) {
    const auto env = FindEnvSpec(config.env.id, EnvOptionsOf(config));
    ASSERT_TRUE(env.ok()) << env.status().ToString();
    const auto algorithm = MakeAlgorithm(TrainingConfigOf(config), *env);
    ASSERT_TRUE(algorithm.ok()) << algorithm.status().ToString();
    auto network = MakeNetwork(ModelSetupOf(config), *env);
    const auto storage = MakeDiskStorage(run());
    const auto written = WriteCheckpoint(
        storage->get(), **network,
        {.updates = 7, .config_toml = ToToml(config), .state = (*algorithm)->State()}, 3);
    ASSERT_TRUE(written.ok()) << written.status().ToString();
    const auto value = (*algorithm)->value();
    weights_.assign(value.begin(), value.end());
    network_ = std::move(*network);
  }
  std::string run() const { return folder_.path() + "/run"; }
  std::string out(const std::string& name) const { return folder_.path() + "/" + name; }

  // q of one observation, by the module.
  std::vector<float> Reference(const std::vector<float>& observation) const {
    Tensor x(DType::kF32, {1, std::int64_t(observation.size())});
    std::ranges::copy(observation, x.as<float>().begin());
    const TensorSpec spec = x.spec();
    const auto plan = network_->MakePlan({&spec, 1});
    const auto packed = network_->MakePacked(Precision::kF32);
    network_->Pack(weights_, packed.get());
    MutableBuffer workspace(plan->workspace_bytes);
    const Tensor q(DType::kF32, plan->out[0].shape);
    const ConstTensor in(x);
    network_->Forward({.value = weights_, .packed = packed.get(), .workspace = workspace.bytes()},
                      {&in, 1}, {&q, 1}, {});
    return {q.as<float>().begin(), q.as<float>().end()};
  }

  const TempFolder folder_;
  std::unique_ptr<Module> network_;
  std::vector<float> weights_;
};

TEST_F(ExportCommandTest, ExportedFileHasThePolicyOfTheCheckpoint) {
  Config config;
  config.env.id = "CartPole-v1";
  ASSERT_NO_FATAL_FAILURE(WriteRun(config));
  const auto path = ExportPolicy({.path = run(), .output = out("cartpole.safetensors")});
  ASSERT_TRUE(path.ok()) << path.status().ToString();
  EXPECT_EQ(*path, out("cartpole.safetensors"));
  char message[200] = "";
  const troop_policy_source source{.size = sizeof source,
                                   .abi = TROOP_POLICY_ABI,
                                   .path = path->c_str(),
                                   .message = message,
                                   .message_bytes = sizeof message};
  troop_policy* policy = nullptr;
  ASSERT_EQ(troop_policy_load(&source, &policy), TROOP_POLICY_OK) << message;
  troop_policy_session* session = nullptr;
  ASSERT_EQ(troop_policy_session_create(policy, 1, &session), TROOP_POLICY_OK);
  for (const std::vector<float>& observation :
       {std::vector<float>{0.1f, -0.2f, 0.3f, 1.5f}, {-2, 0.5f, -0.1f, 0}}) {
    float q[2];
    std::int32_t action = -1;
    const void* const observations[] = {observation.data()};
    void* const actions[] = {&action};
    const troop_policy_call call{.size = sizeof call,
                                 .count = 1,
                                 .observations = observations,
                                 .actions = actions,
                                 .values = q};
    ASSERT_EQ(troop_policy_act(session, &call), TROOP_POLICY_OK);
    const std::vector<float> want = Reference(observation);
    for (const int a : {0, 1}) EXPECT_NEAR(q[a], want[std::size_t(a)], 1e-5);
    EXPECT_EQ(action, want[1] > want[0] ? 1 : 0);
  }
  troop_policy_session_destroy(session);
  troop_policy_unload(policy);
}

TEST_F(ExportCommandTest, FilesStateTheirOrigin) {
  Config config;
  config.env.id = "Pendulum-v1";
  config.learner.algorithm = AlgorithmKind::kDpg;
  ASSERT_NO_FATAL_FAILURE(WriteRun(config));
  const auto file = ExportPolicy({.path = run(), .output = out("a.safetensors")});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const std::string bytes = *ReadFile(*file, 1 << 20);
  const auto decoded = DecodeSafetensors(Buffer::Copy(std::as_bytes(std::span(bytes))));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->metadata.at("environment"), "Pendulum-v1");
  EXPECT_EQ(decoded->metadata.at("algorithm"), "dpg");
  EXPECT_EQ(decoded->metadata.at("updates"), "7");
  const auto model =
      ExportPolicy({.path = run(), .format = ExportFormat::kOnnx, .output = out("a.onnx")});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_THAT(*ReadFile(*model, 1 << 20), HasSubstr("Pendulum-v1"));
}

// The prefix of the names is the file's; nn.CPolicyCaseTest compiles such files.
TEST_F(ExportCommandTest, CFileIsNamedLikeItsFunctions) {
  Config config;
  config.env.id = "CartPole-v1";
  ASSERT_NO_FATAL_FAILURE(WriteRun(config));
  const auto file =
      ExportPolicy({.path = run(), .format = ExportFormat::kC, .output = out("cart-pole.c")});
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(*file, out("cart-pole.c"));
  const std::string text = *ReadFile(*file, 1 << 20);
  EXPECT_THAT(text, HasSubstr("void cart_pole_reset(cart_pole_state* state) {"));
  EXPECT_THAT(text, HasSubstr("environment: CartPole-v1"));
  EXPECT_THAT(text, HasSubstr("observation   float [4]"));
  config.network.layers = {{.units = 2000}, {.units = 600}};
  ASSERT_NO_FATAL_FAILURE(WriteRun(config));
  const auto large =
      ExportPolicy({.path = run(), .format = ExportFormat::kC, .output = out("large.c")});
  EXPECT_THAT(large.status().message(), HasSubstr("must be at most 1048576"));
  EXPECT_FALSE(fs::exists(out("large.c")));
}

// The run of a text model that begins with the fixture's weights.
Config WriteTextRun(const std::string& run, const std::string& family) {
  Config config = test::SupervisedRunConfig(family);
  config.data.max_length = config.model.max_position_embeddings;
  const auto algorithm = MakeSupervised(TrainingConfigOf(config));
  const auto module = MakeTextModel(ModelSetupOf(config));
  const auto storage = MakeDiskStorage(run);
  EXPECT_TRUE(algorithm.ok() && module.ok() && storage.ok());
  const auto written = WriteCheckpoint(
      storage->get(), **module,
      {.updates = 7, .config_toml = ToToml(config), .state = (*algorithm)->State()}, 3);
  EXPECT_TRUE(written.ok()) << written.status().ToString();
  return config;
}

// The texts of the fixture as ids, padded on the right, then their masks and segments (all 0).
std::vector<std::int64_t> EncodedTexts(const Config& config) {
  const auto tokenizer = MakeTokenizer(config.data.vocabulary, {.cased = config.data.cased});
  EXPECT_TRUE(tokenizer.ok());
  const auto columns = std::size_t(config.data.max_length);
  std::vector<std::int64_t> ids, masks;
  for (const JsonValue& text : test::SupervisedExpected().Find("texts")->array) {
    std::vector<std::int64_t> row(columns), mask(columns);
    const auto tokens = EncodeWithSpecialTokens(**tokenizer, *text.String("text"), columns,
                                                config.data.truncation_side);
    std::ranges::copy(tokens, row.begin());
    std::fill_n(mask.begin(), tokens.size(), 1);
    ids.insert(ids.end(), row.begin(), row.end());
    masks.insert(masks.end(), mask.begin(), mask.end());
  }
  ids.insert(ids.end(), masks.begin(), masks.end());
  ids.resize(ids.size() + masks.size());
  return ids;
}

// The probabilities are those that PyTorch computed with transformers.
TEST_F(ExportCommandTest, TextClassifierIsExportedToOnnx) {
  JsonArray names;
  for (const char* const family : {"bert", "albert"}) {
    const std::string run_folder = out(family);
    const Config config = WriteTextRun(run_folder, family);
    const auto file = ExportPolicy({.path = run_folder,
                                    .format = ExportFormat::kOnnx,
                                    .output = out(std::string(family) + ".onnx")});
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const std::string bytes = *ReadFile(*file, 1 << 22);
    for (const char* const member :
         {R"("architecture": ")", R"("vocabulary": "vocab.txt")", R"("do_lower_case": true)",
          R"("model_max_length": 24)", R"("0": "negative")"})
      EXPECT_THAT(bytes, HasSubstr(member));
    const std::vector<std::int64_t> input = EncodedTexts(config);
    std::ofstream(out(std::string(family) + ".input"), std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               std::streamsize(input.size() * sizeof(std::int64_t)));
    names.Add(family);
  }
  const char* const python = std::getenv("TROOP_TEST_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "TROOP_TEST_PYTHON names no Python with onnxruntime";
  const std::size_t rows = test::SupervisedExpected().Find("texts")->array.size();
  const std::string command =
      fmt::format("{} {}/tests/nn/export/run_onnx.py {} '{}' {} > {} 2>&1", python,
                  TROOP_SOURCE_DIR, folder_.path(), names.str(), rows, out("log"));
  const int status = std::system(command.c_str());
  if (status != 0 && WEXITSTATUS(status) == 77) GTEST_SKIP() << *ReadFile(out("log"), 1 << 20);
  ASSERT_EQ(status, 0) << *ReadFile(out("log"), 1 << 20);
  for (const char* const family : {"bert", "albert"}) {
    const std::string bytes = *ReadFile(out(std::string(family) + ".output"), 1 << 20);
    std::vector<float> logits(2 * rows);
    ASSERT_EQ(bytes.size(), logits.size() * sizeof(float));
    std::memcpy(logits.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < rows; ++i) {
      const double want =
          test::SupervisedExpected().Find(family)->Find("texts")->array[i].array[1].number;
      const double positive = 1 / (1 + std::exp(double(logits[2 * i]) - logits[2 * i + 1]));
      EXPECT_NEAR(positive, want, 1e-4) << family << i;
    }
  }
}

TEST_F(ExportCommandTest, TextModelsHaveNoOtherFormat) {
  WriteTextRun(run(), "bert");
  for (const ExportFormat format : {ExportFormat::kSafetensors, ExportFormat::kC}) {
    const auto file = ExportPolicy({.path = run(), .format = format, .output = out("file")});
    EXPECT_THAT(file.status().message(), HasSubstr("--format onnx"));
    EXPECT_THAT(file.status().message(), HasSubstr("model/"));
    EXPECT_FALSE(fs::exists(out("file")));
  }
}

TEST_F(ExportCommandTest, RunsWithoutPolicyAreRejected) {
  const auto error = [&](const ExportOptions& options) {
    return std::string(ExportPolicy(options).status().message());
  };
  EXPECT_THAT(error({.path = out("none")}), HasSubstr("neither a checkpoint"));
  fs::create_directories(run() + "/checkpoints");
  EXPECT_THAT(error({.path = run()}), HasSubstr("checkpoint"));
  Config config;
  config.env.id = "CartPole-v1";
  ASSERT_NO_FATAL_FAILURE(WriteRun(config));
  EXPECT_THAT(error({.path = run(), .best = true}), HasSubstr("keep_best"));
  std::ofstream(out("file")) << "not a folder";
  EXPECT_THAT(error({.path = run(), .output = out("file/policy.onnx")}), HasSubstr(out("file")));
  EXPECT_FALSE(fs::exists(out("policy.safetensors")));
}

}  // namespace
}  // namespace troop
