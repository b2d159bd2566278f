#include "nn/io/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/storage/storage.h"
#include "nn/io/hugging_face.h"
#include "tests/nn/transformer_bench.h"

namespace troop {
namespace {

using test::ReadFixture;
using ::testing::HasSubstr;

constexpr const char* kShards[] = {"model-00001-of-00003.safetensors",
                                   "model-00002-of-00003.safetensors",
                                   "model-00003-of-00003.safetensors"};
constexpr char kIndex[] = "model.safetensors.index.json";

// The folder roberta/sharded, as transformers wrote it.
class WeightFilesTest : public ::testing::Test {
 protected:
  WeightFilesTest() {
    for (const char* const name : kShards) Put(name, Fixture(name));
    Put(kIndex, Fixture(kIndex));
    Put("config.json", Fixture("config.json"));
  }
  static std::string Fixture(const std::string& name) {
    return ReadFixture("roberta/sharded/" + name);
  }
  void Put(const std::string& name, const std::string& text) {
    ASSERT_TRUE(storage_->WriteAtomic(name, text).ok());
  }
  // Writes the index with `to` for the first `from`.
  void PutIndex(const std::string& from, const std::string& to) {
    std::string text = Fixture(kIndex);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    Put(kIndex, text.replace(at, from.size(), to));
  }
  std::string Error() { return ReadWeightFiles(storage_.get(), "").status().ToString(); }

  const std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// Half precision has more digits than the bf16 values of the model, unless they are tiny.
TEST_F(WeightFilesTest, ReadsShardsInHalfPrecision) {
  const auto read = ReadPretrained(storage_.get(), "");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  test::TransformerBench bench(read->options), whole(read->options);
  const auto loaded = LoadWeights(*bench.module, read->weights, bench.value);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_TRUE(loaded->fresh.empty() && loaded->unused.empty());
  ASSERT_TRUE(
      LoadWeights(*whole.module, test::ReadTensors("roberta/model.safetensors"), whole.value).ok());
  for (std::size_t i = 0; i < whole.value.size(); ++i)
    ASSERT_NEAR(bench.value[i], whole.value[i], 0x1p-25) << i;
}

TEST_F(WeightFilesTest, PrefersTheWholeFile) {
  Put("model.safetensors", ReadFixture("roberta/model.safetensors"));
  Put(kIndex, "{");
  const auto read = ReadWeightFiles(storage_.get(), "");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->tensors.size(), 41u);
}

TEST_F(WeightFilesTest, RejectsNamesOutsideTheFolder) {
  for (const std::string name : {"../x.safetensors", "/etc/x.safetensors", "a/x.safetensors", "",
                                 ".safetensors", "..", "x.bin", "x\\u0000.safetensors"}) {
    PutIndex(kShards[2], name);
    EXPECT_THAT(Error(), HasSubstr("invalid_argument: model.safetensors.index.json: tensor "
                                   "\"classifier.dense.bias\" is in \""))
        << name;
    EXPECT_THAT(Error(), HasSubstr("in the same folder")) << name;
  }
}

TEST_F(WeightFilesTest, RejectsMissingAndDamagedShards) {
  ASSERT_TRUE(storage_->Remove(kShards[1]).ok());
  EXPECT_THAT(Error(), HasSubstr(std::string("not_found: ") + kShards[1] + " is missing"));
  Put(kShards[1], Fixture(kShards[1]).substr(0, 4000));
  EXPECT_THAT(Error(), HasSubstr(std::string("data_loss: ") + kShards[1]));
  Put(kShards[1], "version https://git-lfs.github.com/spec/v1\noid sha256:00\n");
  EXPECT_THAT(Error(), HasSubstr(std::string(kShards[1]) + " is a git-lfs pointer"));
}

TEST_F(WeightFilesTest, RejectsIndexThatContradictsItsShards) {
  PutIndex("\"classifier.dense.bias\"", "\"classifier.dense.scale\"");
  EXPECT_THAT(Error(), HasSubstr("has no tensor \"classifier.dense.scale\""));
  PutIndex("\"classifier.dense.bias\": \"model-00003-of-00003.safetensors\",", "");
  EXPECT_THAT(Error(), HasSubstr("has the tensor \"classifier.dense.bias\", which"));
  PutIndex("\"weight_map\"", "\"map\"");
  EXPECT_THAT(Error(), HasSubstr("\"weight_map\" is not an object, or missing"));
  Put(kIndex, R"({"weight_map": {"a": 1}})");
  EXPECT_THAT(Error(), HasSubstr("the file of tensor \"a\" is not a string"));
  Put(kIndex, R"({"weight_map": {}})");
  EXPECT_THAT(Error(), HasSubstr("is empty"));
  Put(kIndex, "[");
  EXPECT_THAT(Error(), HasSubstr("data_loss: model.safetensors.index.json"));
}

TEST_F(WeightFilesTest, NamesTheCommandThatConvertsPickles) {
  ASSERT_TRUE(storage_->Remove(kIndex).ok());
  EXPECT_THAT(Error(), HasSubstr("not_found"));
  Put("pytorch_model.bin", "PK");
  EXPECT_THAT(Error(), HasSubstr("save_pretrained('.')"));
}

}  // namespace
}  // namespace troop
