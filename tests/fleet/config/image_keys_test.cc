// The keys of runs that classify images.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"

namespace troop {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& toml) {
  const auto config = ParseConfig(toml, "run.toml", {});
  return config.ok() ? std::string() : config.status().message();
}

// Each line is added to a config that is valid without it.
TEST(ImageKeysTest, UnsupportedAndIgnoredKeysAreRefused) {
  const std::string valid =
      "learner.algorithm = \"classifier\"\nmodel.architecture = \"cnn\"\ndata.images = \"d\"\n";
  EXPECT_EQ(ErrorOf(valid), "");
  const std::pair<const char*, const char*> wrong[] = {
      {"data.reviews = \"r\"", "data.reviews: has no effect with model.architecture = \"cnn\""},
      {"data.max_length = 64", "data.max_length: has no effect"},
      {"model.dropout = 0.2", "model.dropout: has no effect"},
      {"model.problem_type = \"regression\"", "model.problem_type: has no effect"},
      {"mesh.tp = 2", "does not support tensor parallelism"},
      {"learner.sync = \"paramserver\"", "\"paramserver\" does not support"},
      {"learner.device = \"cuda\"", "only runs on the CPU"},
      {"model.sync_batch_norm = true\nlearner.micro_batch_size = 4", "set 0"},
      {"data.image_channels = 2", "is 2, must be 0, 1 or 3"},
      {"data.image_width = 9", "9 has no effect with data.image_resize = \"none\""},
      {"data.image_resize = \"stretch\"", "needs the new size in pixels"}};
  for (const auto& [line, says] : wrong)
    EXPECT_THAT(ErrorOf(valid + line + "\n"), HasSubstr(says)) << line;
  EXPECT_EQ(ErrorOf(valid + "data.image_resize = \"stretch\"\ndata.image_height = 8\n"
                            "data.image_width = 9\nmesh.dp = 2\nmodel.pretrained = "
                            "\"p\"\nmodel.sync_batch_norm = true\nnetwork.precision = \"bf16\"\n"),
            "");
}

TEST(ImageKeysTest, ImagesAreRequired) {
  EXPECT_THAT(ErrorOf("learner.algorithm = \"classifier\"\nmodel.architecture = \"resnet18\"\n"),
              HasSubstr("data.images: is empty"));
  EXPECT_THAT(ErrorOf("learner.algorithm = \"masked_lm\"\nmodel.architecture = \"cnn\"\n"
                      "data.images = \"d\"\n"),
              HasSubstr("use \"classifier\""));
}

TEST(ImageKeysTest, ModelsWithoutBatchNormHaveNoSynchronizedOne) {
  EXPECT_THAT(ErrorOf("learner.algorithm = \"classifier\"\nmodel.architecture = \"vgg16\"\n"
                      "data.images = \"d\"\nmodel.sync_batch_norm = true\n"),
              HasSubstr("\"vgg16\", which has no batch normalization"));
}

TEST(ImageKeysTest, TextsHaveNoKeysOfImages) {
  const std::string texts =
      "learner.algorithm = \"classifier\"\ndata.reviews = \"r\"\ndata.vocabulary = \"v\"\n";
  EXPECT_EQ(ErrorOf(texts), "");
  for (const char* const line :
       {"data.images = \"d\"", "data.image_flip = 0.5", "data.image_mean = [0.5]",
        "model.image_height = 8", "model.sync_batch_norm = true", "data.image_threads = 2",
        "data.image_cache_mb = 9"}) {
    EXPECT_THAT(ErrorOf(texts + line + "\n"), HasSubstr("which reads texts")) << line;
  }
}

}  // namespace
}  // namespace troop
