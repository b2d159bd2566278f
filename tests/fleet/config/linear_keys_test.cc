// The keys of linear models.
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

const std::string kValid = "learner.algorithm = \"classifier\"\nmodel.architecture = \"linear\"\n";

// Each line is added to a config that is valid without it.
TEST(LinearKeysTest, UnsupportedAndIgnoredKeysAreRefused) {
  const std::string valid = kValid + "data.reviews = \"r.csv\"\n";
  EXPECT_EQ(ErrorOf(valid), "");
  const std::pair<const char*, const char*> wrong[] = {
      {"data.vocabulary = \"v\"", "data.vocabulary: has no effect"},
      {"data.max_length = 64", "data.max_length: has no effect"},
      {"model.hidden_size = 64", "model.hidden_size: has no effect"},
      {"data.images = \"d\"", "data.images: has no effect"},
      {"optimizer.history_size = 5", "no effect with optimizer.type = \"adam\""},
      {"optimizer = {type = \"lbfgs\", history_size = 0}", "optimizer.history_size"},
      {"optimizer = {type = \"lbfgs\", history_size = 31}", "optimizer.history_size"},
      {"optimizer = {type = \"lbfgs\", learning_rate = 0.1}", "and optimizer.type = \"lbfgs\""},
      {"optimizer.type = \"lbfgs\"\nlinear.l1 = 1", "needs a smooth objective"},
      // The remedies of row optimizers would not help.
      {"optimizer.type = \"lbfgs\"\nfleet.learners = 2", "fleet.learners: is not supported with"},
      {"optimizer.type = \"lbfgs\"\nlearner.hogwild_threads = 2",
       "learner.hogwild_threads: is not supported with optimizer.type"},
      {"optimizer.type = \"lbfgs\"\nlearner.sync = \"paramserver\"",
       "learner.sync: is not supported with optimizer.type"},
      {"optimizer.type = \"lbfgs\"\nlinear.solver = \"ftrl\"", "linear.solver: has no effect"},
      {"optimizer.type = \"sgd\"", "optimizer.type: has no effect"},
      {"optimizer.learning_rate = 0.1", "and linear.solver = \"dual_ascent\""},
      {"learner.max_grad_norm = 1", "learner.max_grad_norm: has no effect"},
      {"learner.class_weights = \"balanced\"", "learner.class_weights: has no effect"},
      {"learner.init_from = \"x\"", "learner.init_from: has no effect"},
      {"mesh.dp = 2", "mesh.dp: is 2, but linear.solver = \"dual_ascent\" has one learner"},
      {"learner.hogwild_threads = 2", "is not supported by learner.hogwild_threads"},
      {"mesh.tp = 2", "mesh.tp: is 2"},
      {"fleet.learners = 2", "fleet.learners: is 2"},
      {"learner.sync = \"paramserver\"", "\"dual_ascent\" is not supported by parameter shards"},
      {"learner.device = \"cuda\"", "only runs on the CPU"},
      {"network.precision = \"bf16\"", "\"bf16\" is not supported"},
      {"linear.l2 = 0", "\"dual_ascent\" divides by it"},
      {"linear.solver = \"adam\"", "linear.l2: is 0.0001, but \"adam\" has no penalty"},
      {"linear.smoothing = 2", "no effect without linear.naive_bayes"},
      {"linear = {naive_bayes = true, loss = \"squared_error\"}", "needs two classes"},
      {"model.problem_type = \"regression\"", "set \"squared_error\""},
      {"features.ngram_min = 2", "1 is below features.ngram_min = 2"},
      {"features = {n_features = 1024, min_df = 2}", "no effect on hashed n-grams"},
      {"features = {binary = true, sublinear_tf = true}", "no effect on counts of 1"},
      {"features = {analyzer = \"char\", word_length_min = 1}", "applies to words"}};
  for (const auto& [line, says] : wrong)
    EXPECT_THAT(ErrorOf(valid + line + "\n"), HasSubstr(says)) << line;
  EXPECT_EQ(ErrorOf(valid + "linear = {solver = \"ftrl\", l1 = 1}\n"
                            "optimizer = {learning_rate = 0.1, final_lr_fraction = 0}\n"),
            "");
  EXPECT_EQ(ErrorOf(valid + "linear.l2 = 0\noptimizer = {type = \"lbfgs\", history_size = 5}\n"),
            "");
  EXPECT_EQ(ErrorOf(valid + "linear = {solver = \"adam\", l2 = 0}\noptimizer.beta1 = 0.8\n"), "");
  // The gradients of rows are exchanged.
  const std::string rows = valid + "linear.solver = \"adagrad\"\nlinear.l2 = 0\n";
  EXPECT_EQ(ErrorOf(rows + "fleet.learners = 2\n"), "");
  EXPECT_THAT(ErrorOf(rows + "mesh.tp = 2\n"), HasSubstr("mesh.tp: is 2"));
  EXPECT_EQ(ErrorOf(rows + "learner.hogwild_threads = 2\n"), "");
  const std::string shards = rows + "learner.sync = \"paramserver\"\n";
  EXPECT_EQ(ErrorOf(shards + "paramserver.mode = \"async\"\n"), "");
  const std::pair<const char*, const char*> refused[] = {
      {"linear.naive_bayes = true", "publish weights without its factors"},
      {"paramserver.compression = \"bf16\"", "\"bf16\" sends all weights"},
      {"paramserver.mode = \"local_sgd\"", "\"adagrad\" has a state"}};
  for (const auto& [line, says] : refused)
    EXPECT_THAT(ErrorOf(shards + line + "\n"), HasSubstr(says)) << line;
}

// Files with features have no n-grams, and no columns of texts.
TEST(LinearKeysTest, SvmlightFilesHaveNoKeysOfTexts) {
  const std::string valid = kValid + "data.reviews = \"r.svm\"\n";
  EXPECT_EQ(ErrorOf(valid + "features.n_features = 9\n"), "");
  for (const char* const line :
       {"features.ngram_max = 2", "features.use_idf = true", "data.label_column = \"l\""})
    EXPECT_THAT(ErrorOf(valid + line + "\n"), HasSubstr("no effect on svmlight files")) << line;
}

TEST(LinearKeysTest, OtherModelsHaveNoKeysOfLinearOnes) {
  const std::string texts =
      "learner.algorithm = \"classifier\"\ndata.reviews = \"r\"\ndata.vocabulary = \"v\"\n";
  EXPECT_EQ(ErrorOf(texts), "");
  for (const char* const line :
       {"features.binary = true", "linear.l1 = 1", "model.num_features = 8"})
    EXPECT_THAT(ErrorOf(texts + line + "\n"), HasSubstr("or use \"linear\"")) << line;
  EXPECT_THAT(ErrorOf("learner.algorithm = \"masked_lm\"\nmodel.architecture = \"linear\"\n"
                      "data.reviews = \"r\"\n"),
              HasSubstr("use \"classifier\""));
}

}  // namespace
}  // namespace troop
