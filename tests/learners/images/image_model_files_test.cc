// Files of image classifiers: torchvision's weights as the first ones of a run, and the model of a
// run for other programs.
#include "nn/io/image_model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/storage/json.h"
#include "learners/images/image_classification.h"
#include "learners/supervised/supervised.h"
#include "nn/io/image_weights.h"
#include "nn/io/weight_files.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/images/image_fixture.h"

namespace troop {
namespace {

using testing::HasSubstr;

class ImageModelFilesTest : public testing::Test {
 protected:
  ImageModelFilesTest() {
    config_.model.pretrained = folder_.path();
    file_.tensors = SaveImageWeights(*module_, First(3)).tensors;
    Write(EncodeSafetensors(file_));
  }
  // Random weights of a seed.
  std::vector<float> First(std::int64_t seed) const {
    std::vector<float> value(std::size_t(ParameterCount(*module_)));
    InitParameters(*module_, std::uint64_t(seed), value);
    return value;
  }
  void Write(const Buffer& bytes) {
    ASSERT_TRUE(storage_->WriteAtomic(kWeightsName, bytes.bytes()).ok());
  }
  // The message of a run with the file `file`.
  std::string Message(const TensorFile& file) {
    Write(EncodeSafetensors(file));
    return CheckFirstWeights(config_).message();
  }

  const TempFolder folder_;
  const std::unique_ptr<Storage> storage_ = *MakeDiskStorage(folder_.path());
  TrainingConfig config_ = test::ImageConfig();
  const std::unique_ptr<Module> module_ = *MakeTextModel(ModelSetupOf(config_));
  TensorFile file_;
};

// The seed of the run has no effect then.
TEST_F(ImageModelFilesTest, RunBeginsWithTheWeightsOfTheFile) {
  EXPECT_TRUE(CheckPretrainedFiles(config_).ok());
  const auto begun = MakeImageClassification(config_, test::RandomImages(24, 6), {});
  ASSERT_TRUE(begun.ok()) << begun.status().ToString();
  const std::vector<float> expected = First(3);
  EXPECT_TRUE(std::ranges::equal((*begun)->value(), expected));
  config_.model.pretrained.clear();
  const auto random = *MakeImageClassification(config_, test::RandomImages(24, 6), {});
  EXPECT_FALSE(std::ranges::equal(random->value(), expected));
}

// The other layers are those of the file.
TEST_F(ImageModelFilesTest, HeadOfOtherClassesStartsAtRandomValues) {
  config_.model.labels.resize(4);
  const auto smaller = *MakeTextModel(ModelSetupOf(config_));
  std::vector<float> value(std::size_t(ParameterCount(*smaller))), random = value;
  InitParameters(*smaller, std::uint64_t(config_.seed), random);
  const Status read = FirstWeights(config_, *smaller, value);
  ASSERT_TRUE(read.ok()) << read.ToString();
  const TensorFile now = SaveImageWeights(*smaller, value);
  const TensorFile own = SaveImageWeights(*smaller, random);
  for (const auto& [name, tensor] : now.tensors) {
    const TensorFile& from = name.starts_with("fc.") ? own : file_;
    EXPECT_TRUE(std::ranges::equal(tensor.as<float>(), from.tensors.at(name).as<float>())) << name;
  }
  // A head with other inputs is that of another network.
  file_.tensors["fc.weight"] = Tensor(DType::kF32, {6, 63});
  EXPECT_THAT(Message(file_), HasSubstr("\"fc.weight\" is f32[6, 63], must be f32[4, 64]"));
}

// One line: the key, the folder, the tensor, and both values.
TEST_F(ImageModelFilesTest, BadFilesAreNamed) {
  const std::string& path = folder_.path();
  TensorFile changed = file_;
  changed.tensors["features.0.weight"] = Tensor(DType::kF32, {32, 3, 3, 3});
  EXPECT_EQ(Message(changed),
            "model.pretrained: " + path +
                ", model.architecture = \"cnn\": the tensor \"features.0.weight\" is "
                "f32[32, 3, 3, 3], must be f32[32, 1, 3, 3]");
  changed = file_;
  changed.tensors.erase("features.8.running_var");
  EXPECT_THAT(Message(changed), HasSubstr("lack the tensor \"features.8.running_var\""));
  for (const float bad : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    changed = file_;
    Tensor variance(DType::kF32, {32});
    variance.data<float>()[7] = bad;
    changed.tensors["features.1.running_var"] = variance;
    EXPECT_THAT(Message(changed), HasSubstr("\"features.1.running_var\" has the value"));
  }
  // Bytes that end early, and none at all.
  const Buffer bytes = EncodeSafetensors(file_);
  Write(Buffer::Copy(bytes.bytes().first(bytes.size() - 5)));
  for (const Status& status : {CheckFirstWeights(config_), CheckPretrainedFiles(config_)}) {
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("model.pretrained: " + path + ": model.safetensors"));
  }
  ASSERT_TRUE(storage_->Remove(kWeightsName).ok());
  EXPECT_THAT(CheckFirstWeights(config_).message(),
              HasSubstr("tools/convert/torchvision_weights.py"));
}

// The written model is read again, bit for bit, and config.json has the form of the inputs.
TEST_F(ImageModelFilesTest, WrittenModelIsReadBack) {
  config_.data.image_mean = {0.25};
  config_.data.image_deviation = {0.5};
  const std::vector<float> written = First(9);
  ASSERT_TRUE(WriteModel(config_, storage_.get(), *module_, written).ok());
  config_.model.pretrained = folder_.path() + "/" + kModelFolder;
  std::vector<float> read(written.size());
  ASSERT_TRUE(FirstWeights(config_, *module_, read).ok());
  EXPECT_EQ(read, written);
  const Buffer text = *storage_->Read(PathIn(kModelFolder, "config.json"), 1 << 16);
  EXPECT_EQ(
      text.text(),
      "{\"model_type\": \"cnn\", \"image_size\": [6, 5], \"num_channels\": 1, \"image_mean\": "
      "[0.25], \"image_std\": [0.5], \"id2label\": {\"0\": \"c0\", \"1\": \"c1\", \"2\": "
      "\"c2\", \"3\": \"c3\", \"4\": \"c4\", \"5\": \"c5\"}}");
}

}  // namespace
}  // namespace troop
