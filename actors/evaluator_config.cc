// Declares the config keys of the evaluator.
#include "actors/evaluator_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(EvaluatorConfig& c, ConfigVisitor& v) {
  v.Visit({"evaluator.enabled",
           "Run an evaluator role that measures the greedy return; supervised: the accuracy in %."},
          c.enabled);
  v.Visit(
      {"evaluator.every_s", "Seconds between the starts of consecutive evaluations.", AtLeast(0)},
      c.every_s);
  v.Visit({"evaluator.episodes", "Episodes (supervised: examples) per evaluation during training.",
           Between(1, 1e6)},
          c.episodes);
  v.Visit({"evaluator.final_episodes",
           "Episodes (supervised: test examples) of the final evaluation; -1 means 100 episodes, "
           "or all test examples.",
           Between(-1, 1e6)},
          c.final_episodes);
  v.Visit({"evaluator.epsilon", "Probability of a random action in evaluations.", Between(0, 1)},
          c.epsilon);
  v.Visit(
      {"evaluator.envs", "Environments of the evaluator that step together.", Between(1, 65536)},
      c.envs);
  v.Visit({"evaluator.max_episode_steps",
           "Agent steps after which an evaluation episode is truncated if the environment has no "
           "limit.",
           Between(1, kConfigMany)},
          c.max_episode_steps);
  v.Visit({"evaluator.stop_at_return",
           "Mean return of an evaluation at which the run ends; 0 disables it."},
          c.stop_at_return);
  v.Visit(
      {"evaluator.early_stopping_patience",
       "Number of consecutive evaluations without a better score than the best one at which the "
       "run ends, since the start or the resume of the run; supervised: of the validation "
       "examples, with one learner; 0 disables it. evaluator.keep_best keeps the best weights.",
       Between(0, 1e6)},
      c.early_stopping_patience);
  v.Visit({"evaluator.keep_best",
           "Keep the weights with the best evaluation so far in the folder best/ of the run: the "
           "highest mean return; supervised: the highest accuracy on the validation examples, "
           "without the final evaluation."},
          c.keep_best);
  v.Visit({"evaluator.video_every",
           "Number of evaluations from one video of episodes to the next, in the folder videos/ of "
           "the run (docs/guide/watching.md); 0 disables videos.",
           Between(0, 1e6)},
          c.video_every);
  v.Visit({"evaluator.video_episodes", "Episodes per video.", Between(1, 100)}, c.video_episodes);
  v.Visit({"evaluator.video_frames_max", "Number of frames at which a video is cut.",
           Between(1, 20000)},
          c.video_frames_max);
  v.Visit({"evaluator.videos_kept", "Number of videos kept; older ones are deleted.",
           Between(1, 100000)},
          c.videos_kept);
  VisitKeys(c.env, v);
}

}  // namespace troop
