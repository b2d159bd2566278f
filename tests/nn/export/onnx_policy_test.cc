#include "nn/export/onnx_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/storage/json.h"
#include "core/storage/read_file.h"
#include "tests/core/temp_folder.h"
#include "tests/nn/policy_cases.h"

namespace troop {
namespace {

constexpr std::int64_t kRows = 9;

void Write(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(bytes.size()));
}

// onnxruntime computes all models in one process (run_onnx.py); the expected values are those of
// Troop's modules.
TEST(OnnxPolicyTest, OnnxRuntimeComputesEqualOutputs) {
  const char* const python = std::getenv("TROOP_TEST_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "TROOP_TEST_PYTHON names no Python with onnxruntime";
  const TempFolder folder;
  JsonArray models;
  for (const PolicyCase& c : PolicyCases()) {
    const PolicyBench bench(c.setup, c.env);
    const auto model = EncodeOnnxPolicy(bench.Description(), bench.Parameters());
    ASSERT_TRUE(model.ok()) << model.status().ToString();
    Write(folder.path() + "/" + c.name + ".onnx", model->bytes());
    const Tensor x = bench.Observations(kRows, 11);
    Write(folder.path() + "/" + c.name + ".input", x.bytes());
    models.Add(c.name);
  }
  const std::string command =
      fmt::format("{} {}/tests/nn/export/run_onnx.py {} '{}' {} > {}/log 2>&1", python,
                  TROOP_SOURCE_DIR, folder.path(), models.str(), kRows, folder.path());
  const int status = std::system(command.c_str());
  const std::string log = *ReadFile(folder.path() + "/log", 1 << 20);
  if (status != 0 && WEXITSTATUS(status) == 77) GTEST_SKIP() << log;
  ASSERT_EQ(status, 0) << log;
  for (const PolicyCase& c : PolicyCases()) {
    const PolicyBench bench(c.setup, c.env);
    const std::vector<float> want = bench.Reference(bench.Observations(kRows, 11));
    const auto got = ReadFile(folder.path() + "/" + c.name + ".output", 1 << 20);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), want.size() * sizeof(float)) << c.name;
    std::vector<float> values(want.size());
    std::memcpy(values.data(), got->data(), got->size());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(values[i], want[i], 1e-5 * std::max(1.0f, std::abs(want[i]))) << c.name << i;
  }
}

TEST(OnnxPolicyTest, MissingParameterIsNamed) {
  const PolicyCase c = PolicyCases()[0];
  const PolicyBench bench(c.setup, c.env);
  TensorFile parameters = bench.Parameters();
  parameters.tensors.erase("layers.1.bias");
  const auto model = EncodeOnnxPolicy(bench.Description(), parameters);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), testing::HasSubstr("layers.1.bias"));
}

}  // namespace
}  // namespace troop
