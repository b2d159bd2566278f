// The cache of n-gram features: what it keeps, and when it is not used.
#include "learners/linear/feature_cache.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/core/temp_folder.h"

namespace troop {
namespace {

constexpr const char* kText =
    "text,label\ngood film,yes\nbad film,no\nbad bad plot,no\ngood plot,yes\n";

// A config whose texts and cache are in the folder.
TrainingConfig ConfigOf(const TempFolder& folder, const std::string& text = kText) {
  TrainingConfig config;
  config.learner.algorithm = AlgorithmKind::kClassifier;
  config.data.reviews = folder.path() + "/train.csv";
  config.data.validation_split = 0.5;
  config.evaluator_enabled = false;
  config.log_dir = folder.path();
  std::ofstream(config.data.reviews) << text;
  return config;
}

std::shared_ptr<const LinearData> Load(const TrainingConfig& config) {
  auto data = LoadLinearData(config);
  EXPECT_TRUE(data.ok()) << data.status().ToString();
  return *std::move(data);
}

void ExpectEqual(const LinearData& a, const LinearData& b) {
  for (const auto set : {&LinearData::train, &LinearData::validation_split, &LinearData::test}) {
    EXPECT_EQ((a.*set).rows, (b.*set).rows);
    EXPECT_EQ((a.*set).labels, (b.*set).labels);
    EXPECT_EQ((a.*set).targets, (b.*set).targets);
    EXPECT_EQ((a.*set).width, (b.*set).width);
  }
  EXPECT_EQ(a.names, b.names);
  ASSERT_EQ(a.vectorizer.has_value(), b.vectorizer.has_value());
  EXPECT_EQ(a.vectorizer->terms(), b.vectorizer->terms());
  EXPECT_EQ(a.vectorizer->idf(), b.vectorizer->idf());
}

// Classes, several labels and numbers; a vocabulary and hashed n-grams.
TEST(FeatureCacheTest, SecondLoadHasTheSameData) {
  for (const ProblemType problem :
       {ProblemType::kSingleLabel, ProblemType::kMultiLabel, ProblemType::kRegression}) {
    for (const std::int64_t hashed : {0, 64}) {
      const TempFolder folder;
      TrainingConfig config = ConfigOf(folder);
      config.model.problem_type = problem;
      config.features = {.ngram_max = 2, .n_features = hashed, .use_idf = hashed == 0};
      if (problem == ProblemType::kRegression)
        std::ofstream(config.data.reviews) << "text,label\ngood,1.5\nbad,-2\nfilm,0\nplot,4\n";
      EXPECT_EQ(FeatureCache(config).Read(), nullptr);
      const auto made = Load(config);
      const auto cached = FeatureCache(config).Read();
      ASSERT_NE(cached, nullptr);
      ExpectEqual(*made, *cached);
      ExpectEqual(*made, *Load(config));
      // Roles have the learned names; other ones are a different order of the classes.
      config.model.labels = made->names;
      EXPECT_NE(FeatureCache(config).Read(), nullptr);
      if (problem == ProblemType::kRegression) continue;
      std::ranges::reverse(config.model.labels);
      EXPECT_EQ(FeatureCache(config).Read(), nullptr);
    }
  }
}

// Other texts replace the file; other settings have their own.
TEST(FeatureCacheTest, OtherTextsAndSettingsAreMadeAgain) {
  const TempFolder folder;
  TrainingConfig config = ConfigOf(folder);
  Load(config);
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder.path() + "/.tokens"), {});
  };
  EXPECT_EQ(files(), 1);
  config = ConfigOf(folder, std::string(kText) + "new word,yes\n");
  EXPECT_EQ(FeatureCache(config).Read(), nullptr);
  EXPECT_EQ(Load(config)->train.size() + Load(config)->test.size(), 5);
  EXPECT_EQ(files(), 1);
  for (const auto& change : {std::function([](TrainingConfig* c) { c->features.ngram_max = 2; }),
                             {[](TrainingConfig* c) { c->features.sublinear_tf = true; }},
                             {[](TrainingConfig* c) { c->data.validation_split = 0.25; }},
                             {[](TrainingConfig* c) { c->seed = 77; }}}) {
    TrainingConfig other = config;
    change(&other);
    EXPECT_EQ(FeatureCache(other).Read(), nullptr);
  }
  config.features.ngram_max = 2;
  Load(config);
  EXPECT_EQ(files(), 2);
  config.data.cache = "";
  EXPECT_EQ(FeatureCache(config).Read(), nullptr);
}

// Each byte is changed once: the result is an error, or the same data.
TEST(FeatureCacheTest, DamagedBytesAreRefused) {
  const TempFolder folder;
  TrainingConfig config = ConfigOf(folder);
  config.features.use_idf = true;
  const auto data = Load(config);
  const Buffer good = EncodeFeatures(*data, "key");
  ASSERT_TRUE(DecodeFeatures(good, "key", config.features).ok());
  EXPECT_EQ(DecodeFeatures(good, "other", config.features).status().code(),
            Code::kFailedPrecondition);
  for (std::size_t at = 0; at < good.size(); ++at) {
    MutableBuffer bytes(good.size());
    std::ranges::copy(good.bytes(), bytes.data());
    bytes.data()[at] ^= std::byte{0x11};
    const auto read = DecodeFeatures(std::move(bytes).Freeze(), "key", config.features);
    if (read.ok()) ExpectEqual(*data, **read);
  }
  for (std::size_t size = 0; size < good.size(); size += 7)
    EXPECT_FALSE(DecodeFeatures(good.Slice(0, size), "key", config.features).ok());
}

// A damaged file costs time only.
TEST(FeatureCacheTest, DamagedFileIsReplaced) {
  const TempFolder folder;
  const TrainingConfig config = ConfigOf(folder);
  const auto made = Load(config);
  const auto file = *std::filesystem::directory_iterator(folder.path() + "/.tokens");
  std::ofstream(file.path()) << "damaged";
  EXPECT_EQ(FeatureCache(config).Read(), nullptr);
  ExpectEqual(*made, *Load(config));
  EXPECT_NE(FeatureCache(config).Read(), nullptr);
}

}  // namespace
}  // namespace troop
