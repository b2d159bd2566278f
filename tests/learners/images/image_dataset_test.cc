// Loading of images, their splits, and the settings that follow from them, of IDX files that are
// written here.
#include "learners/images/image_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "tests/core/temp_folder.h"
#include "tests/learners/images/idx_files.h"
#include "tests/learners/images/image_fixture.h"

namespace troop {
namespace {

using test::WriteIdx;
using testing::HasSubstr;

class ImageDatasetTest : public testing::Test {
 protected:
  // 40 images of 4 x 3 pixels of two classes, 30 and 10; image i is all i.
  ImageDatasetTest() {
    std::string pixels, labels;
    for (int i = 0; i < 40; ++i) {
      pixels.append(12, char(i));
      labels.push_back(i % 4 == 3 ? 1 : 0);
    }
    WriteIdx(folder_.path() + "/train", {4, 3}, pixels, labels);
    config_.learner.algorithm = AlgorithmKind::kClassifier;
    config_.learner.batch_size = 8;
    config_.run.epochs = 2;
    config_.model.architecture = ModelArchitecture::kCnn;
    config_.data.images = folder_.path();
    config_.data.validation_split = 0.2;
  }
  std::string ErrorOf() const { return LoadImageData(config_).status().message(); }

  const TempFolder folder_;
  TrainingConfig config_;
};

// 20 % of each class: 6 and 2. No image is lost or twice there.
TEST_F(ImageDatasetTest, SplitsAreStratified) {
  const auto data = LoadImageData(config_);
  ASSERT_TRUE(data.ok()) << data.status().ToString();
  EXPECT_EQ((*data)->train.size(), 32);
  EXPECT_EQ((*data)->validation.size(), 8);
  EXPECT_EQ(std::ranges::count((*data)->validation.labels, 1), 2);
  EXPECT_EQ((*data)->test.labels, (*data)->validation.labels) << "stands in for it";
  std::array<int, 40> seen{};
  for (const ImageSet* set : {&(*data)->train, &(*data)->validation}) {
    for (std::int64_t i = 0; i < set->size(); ++i) {
      const int image = set->pixels[std::size_t(12 * i)];
      ++seen.at(std::size_t(image));
      EXPECT_EQ(set->labels[std::size_t(i)], image % 4 == 3);
    }
  }
  EXPECT_THAT(seen, testing::Each(1));
  // The seed selects them.
  config_.seed = 2;
  EXPECT_NE((*LoadImageData(config_))->validation.pixels, (*data)->validation.pixels);
}

// 32 images in batches of 8, twice.
TEST_F(ImageDatasetTest, SettingsFollowFromImages) {
  config_.data.image_padding = 2;
  config_.data.image_crop_height = 6;
  const auto settings = DeriveImageSettings(config_);
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->image_height, 6);
  EXPECT_EQ(settings->image_width, 3);
  EXPECT_EQ(settings->image_channels, 1);
  EXPECT_THAT(settings->labels, testing::ElementsAre("0", "1"));
  EXPECT_EQ(settings->max_updates, 8);
  EXPECT_EQ(settings->total_steps, 64);
  EXPECT_THAT(settings->data_identity, HasSubstr("32 images of 4 x 3 x 1 to learn, 8 held out"));
}

TEST_F(ImageDatasetTest, OtherDataAreRefused) {
  config_.data_identity = DeriveImageSettings(config_)->data_identity;
  EXPECT_EQ(ErrorOf(), "");
  // One pixel more or less.
  std::fstream file(folder_.path() + "/train-images-idx3-ubyte",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20);
  file.put(char(99));
  file.close();
  EXPECT_THAT(ErrorOf(), HasSubstr("are not the run's"));
}

TEST_F(ImageDatasetTest, BadSettingsAreOneLineErrors) {
  const auto error_of = [&](auto change) {
    TrainingConfig config = config_;
    change(&config);
    const auto settings = DeriveImageSettings(config);
    return settings.ok() ? std::string() : settings.status().message();
  };
  EXPECT_THAT(error_of([](TrainingConfig* c) { c->data.validation_split = 0; }),
              HasSubstr("has no test images"));
  EXPECT_THAT(error_of([](TrainingConfig* c) { c->data.images += "/none"; }),
              HasSubstr("data.images: "));
  EXPECT_THAT(error_of([](TrainingConfig* c) {
                c->model.labels = {"a", "b"};
              }),
              HasSubstr("model.labels has 2 classes"));
  EXPECT_THAT(error_of([](TrainingConfig* c) { c->data.image_crop_height = 9; }),
              HasSubstr("data.image_*: the crop is 9 x 3"));
  EXPECT_THAT(error_of([](TrainingConfig* c) { c->model.image_width = 5; }),
              HasSubstr("model.image_width is 5, but the images have 3"));
  WriteIdx(folder_.path() + "/t10k", {4, 3}, std::string(12, 'x'), std::string(1, '\0'));
  EXPECT_THAT(error_of([](TrainingConfig* c) { c->data.test_split = 0.1; }),
              HasSubstr("data.test_split is 0.1"));
}

}  // namespace
}  // namespace troop
