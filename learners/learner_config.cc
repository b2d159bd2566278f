// Declares the config keys of the learners, of their mesh, and of the budget and the checkpoints of
// a run.
#include "learners/learner_config.h"

#include <cmath>

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(LearnerConfig& c, ConfigVisitor& v) {
  v.Visit(
      {.name = "learner.algorithm",
       .doc =
           "Learning algorithm: for discrete actions Ape-X DQN, R2D2 (Kapturowski et al. 2019) or, "
           "without old experience, PQN (Gallici et al. 2024); for continuous actions Ape-X DPG "
           "(Horgan et al. 2018), TD3 (Fujimoto et al. 2018) or SAC (Haarnoja et al. 2018); for "
           "both, without old experience, IMPALA with V-trace (Espeholt et al. 2018) or "
           "asynchronous PPO (Schulman et al. 2017); for text (data.reviews) a sentiment "
           "classifier, or masked-LM pre-training "
           "(Devlin et al. 2019). external: a program of the user "
           "computes the updates of an agent, such as troop.Learner in Python. "
           "behavior_cloning: an agent imitates learner.demonstrations. Other names are "
           "algorithms of an extension in C++ (learner.library)."},
      c.algorithm, c.own_algorithm);
  v.Visit({"learner.library",
           "Shared library with own algorithms and layers (docs/guide/own_algorithm_in_cpp.md); a "
           "relative path in a file is relative to the file's folder. Empty: none."},
          c.library);
  v.Visit({"learner.options", "Options of an own algorithm, passed unchanged to its factory."},
          c.options);
  v.Visit(
      {"learner.batch_size",
       "Items per update; supervised: examples per update, over all learners.", Between(1, 65536)},
      c.batch_size);
  // Values and targets.
  v.Visit({"learner.gamma", "Discount factor per agent step.", Between(0, 1)}, c.gamma);
  v.Visit(
      {"learner.lambda",
       "pqn, vtrace, ppo: λ of the λ-returns, of V-trace's traces or of GAE; 0 bootstraps after "
       "one step, 1 at the end of the unroll (actor.unroll_length).",
       Between(0, 1)},
      c.lambda);
  v.Visit({.name = "learner.stored_state",
           .doc = "r2d2: begin each sequence of a recurrent network with the state that its actor "
                  "had; false: with zeros, for comparison (Kapturowski et al. 2019, section 3)."},
          c.stored_state);
  v.Visit(
      {.name = "learner.value_rescaling",
       .doc = "r2d2: learn h(q) with h(x) = sign(x) (√(|x| + 1) - 1) + x / 1000 instead of q, so "
              "that large returns need no clipped rewards (Kapturowski et al. 2019)."},
      c.value_rescaling);
  v.Visit({"learner.priority_max_share",
           "r2d2: η of a sequence's priority, η times its largest TD error plus (1 - η) times the "
           "mean of all.",
           Between(0, 1)},
          c.priority_max_share);
  v.Visit({"learner.value_cost", "vtrace, ppo: weight of the value's loss, half the squared error.",
           AtLeast(0)},
          c.value_cost);
  v.Visit(
      {"learner.entropy_cost",
       "vtrace, ppo: weight of the policy's entropy (natural logarithm), which the loss rewards.",
       AtLeast(0)},
      c.entropy_cost);
  v.Visit(
      {"learner.rho_bar",
       "vtrace, ppo: bound ρ̄ of the ratio between the policy and that of the actors in V-trace's "
       "temporal differences (Espeholt et al. 2018).",
       LeftOpen(0, 1e6)},
      c.rho_bar);
  v.Visit({"learner.c_bar",
           "vtrace, ppo: bound c̄ of that ratio in V-trace's traces; at most learner.rho_bar.",
           LeftOpen(0, 1e6)},
          c.c_bar);
  v.Visit({"learner.ratio_clip",
           "ppo: ε of the clipped surrogate; ratios outside [1 - ε, 1 + ε] are no longer improved.",
           LeftOpen(0, 1)},
          c.ratio_clip);
  v.Visit({.name = "learner.normalize_advantages",
           .doc = "ppo: shift and scale the advantages of each batch to mean 0 and standard "
                  "deviation 1."},
          c.normalize_advantages);
  v.Visit({"learner.replayed_fraction",
           "vtrace, ppo: fraction of each batch that consists of unrolls of earlier batches, in "
           "addition to new ones (Espeholt et al. 2018, section 5.2.2); 0 replays none.",
           Between(0, 0.95)},
          c.replayed_fraction);
  v.Visit({"learner.replayed_capacity",
           "vtrace, ppo: number of a learner's last unrolls from which it samples those.",
           Between(1, 1 << 20)},
          c.replayed_capacity);
  v.Visit({.name = "learner.synchronous",
           .doc = "pqn, vtrace, ppo: alternate between rollouts, in which every environment plays "
                  "actor.unroll_length steps with the newest weights, and updates from them, while "
                  "the actors wait."},
          c.synchronous);
  v.Visit({"learner.rollout_epochs", "learner.synchronous: passes over each rollout.",
           Between(1, 1000)},
          c.rollout_epochs);
  v.Visit({"learner.rollout_minibatches",
           "learner.synchronous: updates per pass, each from a random part of the rollout's "
           "unrolls.",
           Between(1, 65536)},
          c.rollout_minibatches);
  v.Visit(
      {"learner.value_clip",
       "ppo: bound of the value's change since the weights that acted, beyond which its loss is "
       "not reduced further; 0 disables it.",
       AtLeast(0)},
      c.value_clip);
  v.Visit(
      {"learner.target_kl",
       "ppo: KL divergence from the actors' policy, in nats; a batch above 1.5 times this value "
       "trains the value only. 0 disables it.",
       AtLeast(0)},
      c.target_kl);
  v.Visit({"learner.double_q",
           "Select the bootstrap action with the online network (van Hasselt et al. 2016)."},
          c.double_q);
  v.Visit({.name = "learner.loss",
           .doc = "Loss of the TD error: Huber (linear beyond 1), or half the squared error."},
          c.loss);
  v.Visit({"learner.target_update_every_updates", "Updates between changes of the target network.",
           Between(1, kConfigMany)},
          c.target_update_every_updates);
  v.Visit({"learner.target_tau",
           "Fraction by which the target network moves toward the online network at each change; 1 "
           "copies it.",
           LeftOpen(0, 1)},
          c.target_tau);
  v.Visit({"learner.max_grad_norm",
           "Maximum gradient norm; larger gradients are scaled down to it. 0 disables clipping. "
           "sac: the gradient of the temperature is neither clipped nor part of the norm.",
           AtLeast(0)},
          c.max_grad_norm);
  // Value head, and the settings of DPG, TD3 and SAC.
  v.Visit({.name = "learner.critic",
           .doc = "dqn and dpg: form of the value head: scalar mean; categorical (C51, Bellemare "
                  "et al. 2017; D4PG, Barth-Maron et al. 2018) with cross-entropy; or quantile "
                  "(QR-DQN, Dabney et al. 2018) with the Huber loss."},
          c.critic);
  v.Visit(
      {"learner.atoms", "Number of atoms (categorical) or quantiles (quantile) per value estimate.",
       Between(2, 1001)},
      c.atoms);
  v.Visit({"learner.v_min",
           "categorical: lower end of the value support; smaller returns are clipped to it."},
          c.v_min);
  v.Visit({"learner.v_max",
           "categorical: upper end of the value support; larger returns are clipped to it."},
          c.v_max);
  v.Visit({"learner.action_gradient_clip",
           "dpg and td3: bound x to which each component of the gradient of the value with respect "
           "to the "
           "action is clipped, [-x, x]; 0 disables clipping.",
           AtLeast(0)},
          c.action_gradient_clip);
  v.Visit({"learner.policy_delay",
           "td3: updates of the critics per update of the policy; the paper also moves the target "
           "networks that often (learner.target_update_every_updates).",
           Between(1, 1000)},
          c.policy_delay);
  v.Visit(
      {"learner.target_policy_noise",
       "td3: standard deviation of the Gaussian noise of the target policy's actions, in halves "
       "of the action range.",
       AtLeast(0)},
      c.target_policy_noise);
  v.Visit({"learner.target_noise_clip",
           "td3: bound x to which that noise is clipped, [-x, x], in halves of the action range.",
           AtLeast(0)},
          c.target_noise_clip);
  // Temperature of SAC.
  v.Visit({.name = "learner.learn_temperature",
           .doc = "sac: learn the temperature so that the entropy of the policy approaches "
                  "learner.target_entropy; false keeps learner.initial_temperature."},
          c.learn_temperature);
  v.Visit({"learner.initial_temperature",
           "sac: first temperature, the weight of the entropy relative to the rewards.",
           Between(1e-6, 1e6)},
          c.initial_temperature);
  v.Visit({"learner.target_entropy",
           "sac: entropy of the policy at which the learned temperature stays constant, of actions "
           "normalized to [-1, 1] (natural logarithm, sum over the action dimensions); 0 means -1 "
           "per dimension."},
          c.target_entropy);
  // Flow of batches and weights.
  v.Visit({"learner.prefetch",
           "Maximum number of batch requests that are in flight or not yet consumed; the learner "
           "queues up to 32 more batches (Hogwild: 64) for its updates.",
           Between(1, 1024)},
          c.prefetch);
  v.Visit({"learner.batches_per_request",
           "Batches per request; larger values reduce the cost per batch but use older priorities.",
           Between(1, 64)},
          c.batches_per_request);
  v.Visit({"learner.publish_every_updates", "Updates between publications of the weights.",
           Between(1, kConfigMany)},
          c.publish_every_updates);
  // Several learners or threads, and the device.
  v.Visit({.name = "learner.sync",
           .doc = "Synchronization of several learners. \"allreduce\": each update uses the mean "
                  "gradient of all learners. \"paramserver\": parameter shards apply the updates "
                  "(paramserver.mode)."},
          c.sync);
  v.Visit({"learner.nccl_library",
           "NCCL library that sums the gradients of learners on GPUs, used if all learners can "
           "load it; empty sums them in host memory."},
          c.nccl_library);
  v.Visit({"learner.allreduce_timeout_s",
           "Time limit in seconds for a collective operation of the learners; a learner that "
           "exceeds it is dropped from the group.",
           Between(0.1, 3600)},
          c.allreduce_timeout_s);
  v.Visit({"learner.hogwild_threads",
           "Threads of a learner that update shared weights without locks (Hogwild!, Recht et al. "
           "2011); with more than 1, runs are not reproducible.",
           Between(1, 256)},
          c.hogwild_threads);
  v.Visit({.name = "learner.device",
           .doc = "Device of the updates. \"auto\" selects a GPU if one exists and this build and "
                  "the configuration support it; the choice is logged."},
          c.device);
  // Supervised mode.
  v.Visit({"learner.micro_batch_size",
           "Supervised: examples per forward and backward pass of a learner (gradient "
           "accumulation); 0 means the learner's whole share of the batch.",
           Between(0, 65536)},
          c.micro_batch_size);
  v.Visit({.name = "learner.class_weights",
           .doc = "classifier: weights of the classes in the loss, for unbalanced data. "
                  "\"balanced\" weights a class by the number of training examples divided by "
                  "(number of classes · examples of the class); the loss of a batch is the "
                  "weighted mean. Evaluations are not weighted."},
          c.class_weights);
  v.Visit({"learner.program_socket",
           "external: Unix socket on which the program that computes the updates listens; "
           "troop.Learner sets it."},
          c.program_socket);
  v.Visit({"learner.program_timeout_s",
           "external: time (s) in which the program must answer for each batch, or the learner "
           "ends and is restarted.",
           LeftOpen(0, 86400)},
          c.program_timeout_s);
  // Recorded episodes.
  v.Visit({"learner.demonstrations",
           "Recorded episodes to learn from: a run folder, a folder of episodes or a file "
           "(docs/guide/offline_data.md). Empty: none."},
          c.demonstrations);
  v.Visit({"learner.demonstration_share",
           "Share of each batch that is sampled uniformly from learner.demonstrations; 1 learns "
           "from them alone (offline), without actors and replay.",
           LeftOpen(0, 1)},
          c.demonstration_share);
  v.Visit({"learner.init_from",
           "Run folder (its newest checkpoint) or checkpoint folder whose weights a new run starts "
           "from, matched by name and shape; tensors without a match keep their initial values. "
           "Empty: none. A resumed run ignores it."},
          c.init_from);
}

std::int64_t DemonstrationRows(const LearnerConfig& c) {
  if (c.demonstrations.empty()) return 0;
  return std::llround(c.demonstration_share * double(c.batch_size));
}

std::int64_t ReplayedRows(const LearnerConfig& c) {
  return std::llround(c.replayed_fraction * double(c.batch_size));
}

void VisitKeys(BudgetConfig& c, ConfigVisitor& v) {
  v.Visit({.name = "run.total_steps",
           .doc = "Exact number of agent steps of the run, over all actors. Supervised: number of "
                  "examples, derived from run.epochs.",
           .range = Between(1, kConfigMany),
           .whole = true},
          c.total_steps);
  v.Visit({"run.max_updates", "Updates after which learning stops; 0 means no limit.",
           Between(0, kConfigMany)},
          c.max_updates);
  v.Visit({"run.epochs", "Supervised: passes over the training examples.", LeftOpen(0, 1e6)},
          c.epochs);
}

void VisitKeys(MeshConfig& c, ConfigVisitor& v) {
  v.Visit(
      {"mesh.dp",
       "Supervised: number of data-parallel workers; 0 means fleet.learners / (mesh.tp x mesh.pp).",
       Between(0, 256)},
      c.dp);
  v.Visit({"mesh.tp",
           "Supervised: number of tensor-parallel learners per worker (Shoeybi et al. 2019).",
           Between(1, 256)},
          c.tp);
  v.Visit({"mesh.pp",
           "Image classifiers: number of pipeline stages per worker, each a learner with some of "
           "the layers ([pipeline]).",
           Between(1, 256)},
          c.pp);
  v.Visit({"mesh.batch_shares",
           "Supervised: relative share of each batch for each of the mesh.dp workers, such as [2, "
           "1] if the first machine is twice as fast; empty means equal shares, which also apply "
           "while a worker is absent.",
           LeftOpen(0, 1e6)},
          c.batch_shares);
}

void VisitKeys(PipelineConfig& c, ConfigVisitor& v) {
  v.Visit({"pipeline.schedule",
           "Order of the passes of the mesh.pp stages: one micro-batch at a time, GPipe (Huang et "
           "al. 2019), 1F1B or interleaved 1F1B (Narayanan et al. 2021), or ZB-H1 (Qi et al. "
           "2023). All give the same updates."},
          c.schedule);
  v.Visit({"pipeline.micro_batches",
           "Number of micro-batches that a worker cuts its part of a batch into. A last batch of "
           "fewer examples has fewer of the same size.",
           Between(1, 4096)},
          c.micro_batches);
  v.Visit({"pipeline.chunks_per_stage",
           "Interleaved schedule: number of separate parts of the model on each stage.",
           Between(1, 64)},
          c.chunks_per_stage);
  v.Visit({"pipeline.recompute",
           "Keep only the inputs of a stage, and compute its activations again in the backward "
           "pass. Not with the schedule zero_bubble."},
          c.recompute);
  v.Visit(
      {"pipeline.stages",
       "Name of the first block of each part of the model but the first, such as [\"layer2.0\", "
       "\"layer4.0\"]: mesh.pp x pipeline.chunks_per_stage - 1 names. Empty: balanced by "
       "estimated time."},
      c.stages);
}

void VisitKeys(CheckpointConfig& c, ConfigVisitor& v) {
  v.Visit({"checkpoint.every_s", "Seconds between checkpoints; 0 writes only one, at the end.",
           AtLeast(0)},
          c.every_s);
  v.Visit({"checkpoint.every_updates",
           "Serial mode: updates between restore points, from which a stopped or killed run "
           "resumes bit-identically; the replay is then kept on disk. 0 disables restore points.",
           AtLeast(0)},
          c.every_updates);
  v.Visit(
      {"checkpoint.keep", "Number of checkpoints kept; older ones are deleted.", Between(1, 1e6)},
      c.keep);
}

}  // namespace troop
