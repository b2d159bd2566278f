// Images made ahead of the step are those that the step would make itself.
#include "learners/images/image_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/graphics/png.h"
#include "learners/images/image_classification.h"
#include "learners/images/image_dataset.h"
#include "tests/core/temp_folder.h"
#include "tests/learners/images/image_fixture.h"

namespace troop {
namespace {

constexpr std::int64_t kImages = 200;

class ImageLoaderTest : public testing::Test {
 protected:
  // Batch n: 9 images from 7 n on, of which this learner has some.
  ImageWork WorkOf(std::uint64_t number) {
    planned_.push_back(number);
    ImageWork work{.number = number, .part = {.epoch = std::int64_t(number / 5)}, .micro = 4};
    for (std::int64_t i = 0; i < share_; ++i)
      work.part.samples.push_back(std::int32_t((7 * std::int64_t(number) + i) % kImages));
    return work;
  }
  std::unique_ptr<ImageLoader> Make(int threads) {
    return std::make_unique<ImageLoader>(
        &collator_, [this](std::uint64_t number) { return WorkOf(number); }, threads);
  }
  // Compares with the images of the collator alone, in micro-batches of 4.
  void ExpectBatch(const Result<ImageLoader::Loaded>& taken, std::uint64_t number) {
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    const ImageLoader::Loaded& loaded = *taken;
    const ImageShare::Part part = WorkOf(number).part;
    EXPECT_EQ(loaded.work.number, number);
    ASSERT_EQ(loaded.parts.size(), (part.samples.size() + 3) / 4);
    for (std::size_t p = 0; p < loaded.parts.size(); ++p) {
      const std::size_t first = 4 * p,
                        count = std::min<std::size_t>(4, part.samples.size() - first);
      const ImageBatch expected =
          *collator_.ForTraining(std::span(part.samples).subspan(first, count), part.epoch);
      EXPECT_EQ(loaded.parts[p].pixels, expected.pixels) << number;
      EXPECT_EQ(loaded.parts[p].labels, expected.labels) << number;
    }
  }

  std::int64_t share_ = 9;
  std::vector<std::uint64_t> planned_;
  const std::shared_ptr<const ImageData> data_ = test::RandomImages(kImages, 6);
  // Random changes, so that a wrong key gives other pixels.
  const ImageCollator collator_{
      {.padding = 2, .crop_height = 6, .crop_width = 5, .flip = 0.5}, data_.get(), 7};
};

TEST_F(ImageLoaderTest, AnyNumberOfThreadsGivesTheSameImages) {
  for (const int threads : {0, 1, 3}) {
    const auto loader = Make(threads);
    for (std::uint64_t number = 3; number < 20; ++number) ExpectBatch(loader->Take(number), number);
    // A roll-back, and a new share of the batch.
    ExpectBatch(loader->Take(4), 4);
    share_ = 3;
    loader->Clear();
    ExpectBatch(loader->Take(5), 5);
    share_ = 0;
    loader->Clear();
    EXPECT_TRUE(loader->Take(6)->parts.empty());
    share_ = 9;
  }
}

// Memory is bounded, however fast the threads are.
TEST_F(ImageLoaderTest, OnlyTheNextUpdatesAreMadeAhead) {
  (void)Make(2)->Take(10);
  EXPECT_THAT(planned_, testing::ElementsAre(10, 11, 12));
  planned_.clear();
  (void)Make(0)->Take(10);
  EXPECT_THAT(planned_, testing::ElementsAre(10));
}

// Whole updates: a learner that leaves and one that comes back change the share.
TEST_F(ImageLoaderTest, UpdatesHaveTheSameBytes) {
  std::vector<std::vector<float>> values;
  for (const int threads : {0, 2}) {
    TrainingConfig config = test::ImageConfig();
    config.data.image_threads = threads;
    config.learner.micro_batch_size = 5;
    const auto algorithm = *MakeImageClassification(
        config, data_, {.padding = 1, .crop_height = 6, .crop_width = 5, .flip = 0.5});
    for (int update = 0; update < 10; ++update) {
      algorithm->batch_partition()->SetRank(update < 4 ? 0 : 1, update < 7 ? 2 : 3);
      float priority = 0;
      ASSERT_TRUE(algorithm->ComputeGradient({}, {&priority, 1}, nullptr).ok());
      algorithm->ApplyGradient(0, algorithm->GradientNorm());
    }
    values.emplace_back(algorithm->value().begin(), algorithm->value().end());
  }
  EXPECT_TRUE(values[0] == values[1]);
}

// Twelve files of two classes, which stay in memory or are decoded for each use.
class ImageCacheTest : public testing::Test {
 protected:
  ImageCacheTest() {
    Rng rng({.run_seed = 2, .purpose = Purpose::kTest});
    for (int i = 0; i < 12; ++i) {
      Picture picture{.width = 7, .height = 6, .rgb = {}};
      for (int k = 0; k < 126; ++k) picture.rgb.push_back(std::uint8_t(rng.Below(256)));
      const std::string folder = folder_.path() + (i % 2 == 0 ? "/a" : "/b");
      std::filesystem::create_directories(folder);
      std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary)
          << EncodePng(picture).text();
    }
    config_ = test::ImageConfig();
    config_.data.images = folder_.path();
    config_.data.validation_split = 0.4;
    config_.data.image_threads = 2;
    config_.data.image_color_noise = 0.1;
    config_.learner.batch_size = 4;
    config_.model.labels = {"a", "b"};
    config_.model.image_height = 6, config_.model.image_width = 7;
    config_.model.image_channels = 3;
  }
  std::unique_ptr<Algorithm> Make(std::int64_t cache_mb) {
    config_.data.image_cache_mb = cache_mb;
    config_.data_identity.clear();
    const auto data = *LoadImageData(config_);
    EXPECT_EQ(data->train.pixels.empty(), cache_mb == 0);
    identities_.push_back(IdentityOf(*data));
    return *MakeImageClassification(config_, data, *TransformOf(config_, *data));
  }
  static Status Update(Algorithm* algorithm) {
    float priority = 0;
    const auto report = algorithm->ComputeGradient({}, {&priority, 1}, nullptr);
    if (report.ok()) algorithm->ApplyGradient(0, algorithm->GradientNorm());
    return report.status();
  }

  const TempFolder folder_;
  TrainingConfig config_;
  std::vector<std::string> identities_;
};

TEST_F(ImageCacheTest, MemoryDoesNotChangeUpdates) {
  std::vector<std::vector<float>> values;
  for (const std::int64_t cache_mb : {1, 0}) {
    const auto algorithm = Make(cache_mb);
    for (int update = 0; update < 5; ++update) ASSERT_TRUE(Update(algorithm.get()).ok());
    values.emplace_back(algorithm->value().begin(), algorithm->value().end());
  }
  EXPECT_TRUE(values[0] == values[1]);
  EXPECT_EQ(identities_[0], identities_[1]);
}

// The file is named by the update that needs it.
TEST_F(ImageCacheTest, RemovedFilesFailTheUpdate) {
  const auto algorithm = Make(0);
  ASSERT_TRUE(Update(algorithm.get()).ok());
  std::filesystem::remove_all(folder_.path() + "/a");
  std::filesystem::remove_all(folder_.path() + "/b");
  Status status;
  // Two updates are ahead.
  for (int update = 0; update < 4 && status.ok(); ++update) status = Update(algorithm.get());
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), testing::HasSubstr(".png"));
}

}  // namespace
}  // namespace troop
