#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/config/config.h"
#include "fleet/config/role_configs.h"

namespace troop {
namespace {

using testing::HasSubstr;

std::vector<std::string> Unrolls(const std::string& algorithm, std::vector<std::string> more) {
  std::vector<std::string> all{"learner.algorithm=" + algorithm, "actor.unroll_length=32",
                               "replay.max_times_sampled=1", "replay.samples_per_insert=1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::vector<std::string> Pqn(std::vector<std::string> more) { return Unrolls("pqn", more); }
std::vector<std::string> Ppo(std::vector<std::string> more) { return Unrolls("ppo", more); }

std::vector<std::string> R2d2(std::vector<std::string> more) {
  more.insert(more.end(), {"learner.algorithm=r2d2", "actor.unroll_length=32"});
  return more;
}

// Keys of runs whose items are unrolls, where they contradict others.
TEST(UnrollKeysTest, RejectsImpossibleCombinations) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"learner.algorithm=pqn"},
       "actor.unroll_length: is 0, but learner.algorithm = \"pqn\" learns from unrolls"},
      {{"actor.unroll_length=8"},
       "supported by learner.algorithm = \"r2d2\", \"pqn\", \"vtrace\", \"ppo\" and own algorithms "
       "only, "
       "not by \"dqn\""},
      {{"actor.unroll_length=8", "learner.algorithm=sac"}, "not by \"sac\""},
      {{"actor.unroll_length=1025"}, "actor.unroll_length"},
      {Pqn({"actor.n_step=5"}), "5 has no effect on unrolls"},
      {Pqn({"learner.demonstrations=runs/a"}), "do not fit into batches of unrolls"},
      {Pqn({"replay.max_times_sampled=0"}), "learns from new experience only"},
      {Pqn({"replay.samples_per_insert=1.5"}),
       "1.5 exceeds replay.max_times_sampled = 1, at which an item is evicted"},
      {{"replay.max_times_sampled=7"}, "8 exceeds replay.max_times_sampled = 7"},
      {Pqn({"learner.target_tau=0.5"}), "has no effect on learner.algorithm = \"pqn\""},
      {Pqn({"learner.target_update_every_updates=7"}), "which has no target network"},
      {Pqn({"learner.double_q=false"}), "which has no target network"},
      {Pqn({"learner.critic=categorical"}), "learn values"},
      {Pqn({"replay.placement=gpu"}), "requires \"dqn\" here"},
      {Pqn({"learner.lambda=1.5"}), "learner.lambda"},
      {{"learner.lambda=0.9"},
       "is supported by learner.algorithm = \"pqn\", \"vtrace\" or \"ppo\" only"},
      {Pqn({"learner.value_cost=0.3"}),
       "learner.value_cost=0.3: is supported by learner.algorithm = \"vtrace\" or \"ppo\" only"},
      {Pqn({"learner.entropy_cost=0.3"}), "learner.entropy_cost=0.3: is supported by"},
      {Pqn({"learner.rho_bar=2"}), "learner.rho_bar=2: is supported by"},
      {Pqn({"learner.c_bar=0.5"}), "learner.c_bar=0.5: is supported by"},
      {Unrolls("vtrace", {"learner.ratio_clip=0.1"}),
       "learner.ratio_clip=0.1: is supported by learner.algorithm = \"ppo\" only"},
      {Unrolls("vtrace", {"learner.normalize_advantages=false"}),
       "learner.normalize_advantages=false: is supported by"},
      {Unrolls("vtrace", {"learner.value_clip=0.2"}),
       "learner.value_clip=0.2: is supported by learner.algorithm = \"ppo\" only"},
      {Pqn({"learner.target_kl=0.02"}),
       "learner.target_kl=0.02: is supported by learner.algorithm = \"ppo\" only"},
      {Ppo({"learner.value_clip=-1"}), "learner.value_clip"},
      {Ppo({"learner.target_kl=inf"}), "learner.target_kl"},
      {Ppo({"learner.c_bar=1.5"}), "1.5 exceeds learner.rho_bar = 1"},
      {Ppo({"learner.ratio_clip=1.5"}), "learner.ratio_clip"},
      {Ppo({"learner.rho_bar=0"}), "learner.rho_bar"},
      {Ppo({"learner.target_tau=0.5"}), "has no effect on learner.algorithm = \"ppo\""},
      {Ppo({"learner.loss=mse"}), "which has no action values"},
      {Ppo({"network.dueling_units=8"}), "which has no action values"},
      {Ppo({"actor.epsilon_steps=100"}), "it samples its policy"},
      {Ppo({"actor.epsilon_base=0.1"}), "it samples its policy"},
      {Ppo({"actor.epsilon_alpha=1"}), "it samples its policy"},
      {Ppo({"replay.max_times_sampled=0"}), "learns from new experience only"},
      {Ppo({"inference.device=cuda"}), "inference.device"},
      {Ppo({"network.layers=[{type=\"lstm\"}]"}), "an lstm layer needs units"},
      {Ppo({"network.layers=[{type=\"gru\", units=8, kernel=3}]"}),
       "a gru layer has no filters, kernel"},
      {Ppo({"network.layers=[{type=\"lstm\", units=8, activation=\"tanh\"}]"}),
       "an lstm layer has its own activations; remove activation"},
      {Ppo({"network.layers=[{type=\"lstm\", units=8}, {type=\"conv2d\", filters=2, kernel=2}]"}),
       "network.layers[1]: a conv2d layer can't follow"},
      {Ppo({"network.layers=[{type=\"lstm\", units=8}]", "actor.inference=server"}),
       "inference servers keep no recurrent states"},
      {{"network.layers=[{type=\"lstm\", units=8}]"},
       "lstm and gru layers are supported by learner.algorithm = \"r2d2\", \"pqn\", \"vtrace\" and "
       "\"ppo\" only"},
      {R2d2({"actor.unroll_overlap=32"}),
       "32 is not less than actor.unroll_length = 32, so unrolls would not advance"},
      {R2d2({"actor.burn_in=4"}), "has no effect on a network without lstm and gru layers"},
      {R2d2({"learner.stored_state=false"}), "false has no effect on a network without lstm"},
      {Pqn({"learner.stored_state=false"}), "learner.stored_state=false: is supported by"},
      {R2d2({"learner.lambda=0.3"}), "learner.lambda=0.3: is supported by"},
      {R2d2({"learner.critic=quantile"}), "learn values"},
      {R2d2({"learner.priority_max_share=1.5"}), "learner.priority_max_share"},
      {Pqn({"actor.unroll_overlap=4"}), "is supported by learner.algorithm = \"r2d2\" only"},
      {Pqn({"actor.burn_in=4"}), "is supported by learner.algorithm = \"r2d2\" only"},
      {{"actor.burn_in=4"}, "is supported by learner.algorithm = \"r2d2\" only"},
      {Pqn({"learner.value_rescaling=false"}), "learner.value_rescaling=false: is supported by"},
      {{"learner.priority_max_share=0.5"}, "learner.priority_max_share=0.5: is supported by"},
      {{"learner.algorithm=sac", "network.critic_layers=[{type=\"lstm\", units=8}]"},
       "networks of critics and values have no recurrent layers"},
      {Ppo({"network.critic_layers=[{type=\"gru\", units=8}]"}),
       "networks of critics and values have no recurrent layers"},
      {{"learner.algorithm=vtrace"},
       "actor.unroll_length: is 0, but learner.algorithm = \"vtrace\" learns from unrolls"},
      {Pqn({"replay.capacity_items=40", "replay.min_items=1", "learner.batch_size=1"}),
       "actor.envs x 2 x actor.insert_copies"},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseConfig("", "run.toml", overrides).status().message(), HasSubstr(error));
}

TEST(UnrollKeysTest, ReplayedFractionNeedsCorrectionsAndWholeRows) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {Pqn({"learner.replayed_fraction=0.5"}),
       "learner.replayed_fraction=0.5: is supported by learner.algorithm = \"vtrace\" and \"ppo\""},
      {R2d2({"learner.replayed_fraction=0.5"}), "is supported by learner.algorithm = \"vtrace\""},
      {Ppo({"learner.replayed_capacity=7"}), "7 has no effect without replayed unrolls"},
      {Ppo({"learner.replayed_fraction=0.96"}), "learner.replayed_fraction"},
      {Ppo({"learner.replayed_fraction=0.1", "learner.batch_size=4"}), "0.1 of 4 rows rounds to 0"},
      {Ppo({"learner.replayed_fraction=0.9", "learner.batch_size=4"}), "0.9 of 4 rows rounds to 4"},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseConfig("", "run.toml", overrides).status().message(), HasSubstr(error));
  for (const std::string algorithm : {"vtrace", "ppo"}) {
    const auto config = ParseConfig(
        "", "run.toml",
        Unrolls(algorithm, {"learner.replayed_fraction=0.375", "learner.batch_size=16"}));
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(ReplayedRows(config->learner), 6);
  }
}

// A config that is accepted, with the overrides of a case after it.
std::vector<std::string> Synchronous(std::vector<std::string> more) {
  std::vector<std::string> all{"learner.algorithm=ppo",       "actor.unroll_length=32",
                               "learner.synchronous=true",    "replay.max_times_sampled=1",
                               "replay.samples_per_insert=0", "replay.sampler=fifo",
                               "replay.min_items=1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(UnrollKeysTest, SynchronousLearningRejectsKeysWithoutEffect) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {Ppo({"learner.rollout_epochs=3"}),
       "learner.rollout_epochs=3: has no effect without rollouts"},
      {Ppo({"learner.rollout_minibatches=3"}), "has no effect without rollouts"},
      {Ppo({"actor.refill_after_s=3"}), "has no effect without rollouts"},
      {R2d2({"learner.synchronous=true"}),
       "is supported by learner.algorithm = \"pqn\", \"vtrace\" and \"ppo\" only"},
      {{"learner.synchronous=true"}, "is supported by learner.algorithm = \"pqn\""},
      {Synchronous({"replay.max_times_sampled=4"}), "replay.max_times_sampled=4: must be 1 with"},
      {Synchronous({"replay.samples_per_insert=1"}), "replay.samples_per_insert=1: must be 0 with"},
      {Synchronous({"replay.sampler=uniform"}), "must be \"fifo\" with"},
      {Synchronous({"replay.min_items=2"}),
       "must be 1 with learner.synchronous = true, one for each of"},
      {Synchronous({"actor.insert_copies=2"}), "must be 1 with"},
      {Synchronous({"learner.batch_size=8"}), "batches follow from learner.rollout_minibatches"},
      {Synchronous({"learner.batches_per_request=2"}), "unrolls come one by one"},
      {Synchronous({"learner.publish_every_updates=2"}), "publishes after each rollout"},
      {Synchronous({"actor.weight_sync_steps=2"}), "wait for new weights after each rollout"},
      {Synchronous({"actor.lease_steps=2"}), "request the steps of a rollout"},
      {Synchronous({"actor.inference=server"}), "actor.inference=server: must be \"local\" with"},
      {Synchronous({"env.frame_stack=2"}), "env.frame_stack=2: must be 1 with"},
      {Synchronous({"learner.sync=paramserver"}), "must be \"allreduce\" with"},
      {Synchronous({"learner.hogwild_threads=2"}), "updates follow each other"},
      {Synchronous({"replay.shards=2"}), "must be 1 with"},
      {Synchronous({"fleet.learners=2"}), "must be \"local\" with"},
      {Synchronous({"fleet.learners=2", "replay.scope=local", "replay.shards=2", "fleet.actors=3"}),
       "3 actors can't be divided evenly among 2 learners"},
      {Synchronous({"replay.capacity_items=200"}), "is less than the 256 steps of a rollout"},
      {Synchronous({"learner.replayed_fraction=0.5"}), "has no effect on rollouts"},
      {Synchronous({"learner.rollout_epochs=0"}), "learner.rollout_epochs"},
      {Synchronous({"learner.rollout_minibatches=0"}), "learner.rollout_minibatches"},
      {Synchronous({"actor.refill_after_s=0"}), "actor.refill_after_s"},
  };
  for (const auto& [overrides, error] : cases)
    EXPECT_THAT(ParseConfig("", "run.toml", overrides).status().message(), HasSubstr(error));
}

TEST(UnrollKeysTest, SynchronousLearnersShareTheStepsOfARollout) {
  for (const std::string algorithm : {"pqn", "vtrace", "ppo"}) {
    const auto config =
        ParseConfig("", "run.toml", Synchronous({"learner.algorithm=" + algorithm}));
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    // One actor with 8 environments.
    EXPECT_EQ(TrainingConfigOf(*config).rollout_steps, 8 * 32);
    EXPECT_TRUE(ActingConfigOf(*config).synchronous);
  }
  const auto two =
      ParseConfig("", "run.toml",
                  Synchronous({"fleet.learners=2", "replay.scope=local", "replay.shards=2",
                               "replay.min_items=2", "fleet.actors=4"}));
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ(TrainingConfigOf(*two).rollout_steps, 2 * 8 * 32);
  const auto plain = ParseConfig("", "run.toml", Ppo({}));
  EXPECT_EQ(TrainingConfigOf(*plain).rollout_steps, 0);
}

TEST(UnrollKeysTest, AcceptsShardsThreadsAndInferenceServers) {
  for (const std::string more :
       {"learner.sync=paramserver", "learner.hogwild_threads=2", "actor.inference=server",
        "env.frame_stack=4", "network.normalize_observations=true", "replay.sampler=uniform"}) {
    const auto config = ParseConfig("", "run.toml", Pqn({more}));
    EXPECT_TRUE(config.ok()) << config.status().ToString();
  }
  for (const std::string more :
       {"replay.max_times_sampled=0", "actor.n_step=5", "learner.double_q=false",
        "learner.target_update_every_updates=2500", "actor.unroll_overlap=16",
        "network.dueling_units=8", "actor.inference=server", "replay.sampler=prioritized"}) {
    const auto config = ParseConfig("", "run.toml", R2d2({more}));
    EXPECT_TRUE(config.ok()) << config.status().ToString();
  }
  const auto burn_in = ParseConfig(
      "", "run.toml", R2d2({"actor.burn_in=40", "network.layers=[{type=\"gru\", units=8}]"}));
  EXPECT_TRUE(burn_in.ok()) << burn_in.status().ToString();
}

}  // namespace
}  // namespace troop
