// The keys of pipelines: mesh.pp and [pipeline].
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

// Each line is added to a pipeline that is valid without it.
TEST(PipelineKeysTest, WrongPipelinesAreRefused) {
  const std::string valid =
      "learner.algorithm = \"classifier\"\nmodel.architecture = \"cnn\"\ndata.images = \"d\"\n"
      "learner.batch_size = 24\nmesh.pp = 2\n";
  EXPECT_EQ(ErrorOf(valid), "");
  const std::pair<const char*, const char*> wrong[] = {
      {"pipeline.micro_batches = 0", "pipeline.micro_batches"},
      {"pipeline.micro_batches = 5", "5 micro-batches of 1 workers do not divide"},
      {"mesh.dp = 4", "4 micro-batches of 4 workers do not divide learner.batch_size = 24"},
      {"learner.micro_batch_size = 6", "learner.micro_batch_size: has no effect with pipelines"},
      {"model.sync_batch_norm = true", "model.sync_batch_norm: is not supported with pipelines"},
      {"model.pretrained = \"p\"", "model.pretrained: is not supported with pipelines"},
      {"network.precision = \"bf16\"", "network.precision: is not supported with pipelines"},
      {"data.image_threads = 2", "data.image_threads: has no effect with pipelines"},
      {"pipeline.chunks_per_stage = 2", "with pipeline.schedule = \"interleaved\" only"},
      {"pipeline.schedule = \"interleaved\"", "is 1, must be at least 2"},
      {"pipeline.schedule = \"pipedream\"", "interleaved"},
      {"pipeline.schedule = \"zero_bubble\"\npipeline.recompute = true", "is not supported with"},
      {"fleet.learners = 3", "does not divide fleet.learners = 3; set mesh.dp instead"},
      {"fleet.learners = 4\nmesh.dp = 1", "mesh.tp x mesh.pp = 2 differs from fleet.learners = 4"},
      {"fleet.mode = \"serial\"", "which one thread can't do"},
      {"evaluator.early_stopping_patience = 2", "is supported with one learner"}};
  for (const auto& [line, says] : wrong)
    EXPECT_THAT(ErrorOf(valid + line + "\n"), HasSubstr(says)) << line;
  EXPECT_EQ(ErrorOf(valid + "mesh.dp = 2\npipeline.micro_batches = 3\n"), "");
  EXPECT_EQ(ErrorOf(valid + "fleet.learners = 4\npipeline.micro_batches = 6\n"), "");
}

// Without stages every key of [pipeline] would be ignored.
TEST(PipelineKeysTest, KeysOfPipelinesNeedStages) {
  const std::string images =
      "learner.algorithm = \"classifier\"\nmodel.architecture = \"cnn\"\ndata.images = \"d\"\n";
  for (const char* const line :
       {"pipeline.schedule = \"gpipe\"", "pipeline.micro_batches = 2",
        "pipeline.chunks_per_stage = 2", "pipeline.recompute = true", "pipeline.stages = [\"fc\"]"})
    EXPECT_THAT(ErrorOf(images + line + "\n"), HasSubstr("has no effect with mesh.pp = 1")) << line;
}

TEST(PipelineKeysTest, OtherRunsHaveNoStages) {
  const std::string texts =
      "learner.algorithm = \"classifier\"\ndata.reviews = \"r\"\ndata.vocabulary = \"v\"\n";
  EXPECT_THAT(ErrorOf(texts + "mesh.pp = 2\n"), HasSubstr("\"bert\" does not support pipelines"));
  EXPECT_THAT(ErrorOf("mesh.pp = 2\n"), HasSubstr("mesh.pp: is supported in supervised runs only"));
}

}  // namespace
}  // namespace troop
