// Declares the config keys of the actors.
#include "actors/actor_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(ActorConfig& c, ConfigVisitor& v) {
  v.Visit({"actor.envs", "Environments per actor, which step together.", Between(1, 2048)}, c.envs);
  // Exploration: ε-greedy for dqn, noise for dpg and td3. sac samples its policy.
  v.Visit({"actor.epsilon_base",
           "Base of the exploration rate of environment i of N in the fleet, ε_i = base^(1 + "
           "alpha·i/(N-1)) (Horgan et al. 2018); with network.noisy ε is 0.",
           Between(0, 1)},
          c.epsilon_base);
  v.Visit({"actor.epsilon_alpha",
           "Exponent alpha of ε_i; larger values give lower exploration rates.", AtLeast(0)},
          c.epsilon_alpha);
  v.Visit(
      {.name = "actor.epsilon_steps",
       .doc =
           "Agent steps of the whole fleet, after actor.warmup_steps, over which ε of all "
           "environments anneals from epsilon_initial to epsilon_final (Nair et al. 2015); 0 uses "
           "ε_i instead.",
       .range = Between(0, kConfigMany),
       .whole = true},
      c.epsilon_steps);
  v.Visit({"actor.epsilon_initial", "ε at the start of its annealing (actor.epsilon_steps).",
           Between(0, 1)},
          c.epsilon_initial);
  v.Visit({"actor.epsilon_final",
           "ε at the end of its annealing (actor.epsilon_steps), and afterwards.", Between(0, 1)},
          c.epsilon_final);
  v.Visit(
      {"actor.noise_sigma",
       "dpg and td3: base of the exploration noise; environment i of N adds Gaussian noise with "
       "standard deviation σ_i = sigma^(1 + alpha·i/(N-1)), in units of half the action range.",
       Between(0, 1)},
      c.noise_sigma);
  v.Visit(
      {"actor.noise_alpha",
       "dpg and td3: exponent alpha of σ_i; 0 gives all environments the same noise.", AtLeast(0)},
      c.noise_alpha);
  // Experience and its way to the replay.
  v.Visit({"actor.n_step",
           "Number of rewards in an n-step return before the bootstrap value, also within the "
           "unrolls of r2d2.",
           Between(1, 1024)},
          c.n_step);
  v.Visit(
      {"actor.unroll_length",
       "Steps per item of experience, fewer at the end of an episode: a sequence with all of its "
       "observations, actions and rewards, which r2d2, pqn, vtrace, ppo and own algorithms learn "
       "from. 0: items are n-step transitions (actor.n_step).",
       Between(0, 1024)},
      c.unroll_length);
  v.Visit({"actor.unroll_overlap",
           "r2d2: steps that an unroll shares with the one before in its episode; less than "
           "actor.unroll_length.",
           Between(0, 1023)},
          c.unroll_overlap);
  v.Visit({"actor.burn_in",
           "r2d2: steps before each unroll, fewer at the start of an episode, that only bring the "
           "recurrent state up to date with the learner's weights.",
           Between(0, 1024)},
          c.burn_in);
  v.Visit({"actor.weight_sync_steps",
           "Agent steps per environment between two requests of an actor for new weights.",
           Between(1, kConfigMany)},
          c.weight_sync_steps);
  v.Visit({"actor.insert_batch_size", "Items per insert request to the replay.", Between(1, 65536)},
          c.insert_batch_size);
  v.Visit({"actor.max_inflight_inserts",
           "Maximum number of insert requests in flight, at which the actor waits for the replay.",
           Between(1, 1024)},
          c.max_inflight_inserts);
  // Step budget.
  v.Visit({"actor.lease_steps",
           "Number of agent steps that the coordinator grants to an actor at a time; the run's "
           "total remains exact.",
           Between(1, kConfigMany)},
          c.lease_steps);
  v.Visit({.name = "actor.warmup_steps",
           .doc = "Number of agent steps at the start, over all actors, that take uniformly random "
                  "actions.",
           .range = Between(0, kConfigMany),
           .whole = true},
          c.warmup_steps);
  v.Visit({"actor.insert_copies",
           "Number of times each item is inserted into the replay; N copies give the insertion "
           "rate of N times as many actors without their diversity (a control experiment of Horgan "
           "et al. 2018).",
           Between(1, 1024)},
          c.insert_copies);
  v.Visit(
      {"actor.refill_after_s",
       "learner.synchronous: seconds that an actor waits for new weights before it plays another "
       "rollout with the old ones, because the share of a dead actor is missing. More than a "
       "learner needs for a rollout.",
       Between(0.1, 86400)},
      c.refill_after_s);
  v.Visit({.name = "actor.inference",
           .doc = "Location of the policy: in each actor, or on inference servers that batch the "
                  "requests of all actors (docs/design/scaling.md)."},
          c.inference);
  // Recorded episodes.
  v.Visit({"actor.record_episodes",
           "Record complete episodes in the folder episodes/ of the run "
           "(docs/guide/offline_data.md)."},
          c.record_episodes);
  v.Visit({.name = "actor.record_bytes_max",
           .doc = "Maximum size in bytes of the recorded episodes of one actor, at which the "
                  "oldest are deleted; also limits the memory of its episodes in progress.",
           .range = Between(1 << 20, 1e15),
           .whole = true},
          c.record_bytes_max);
}

}  // namespace troop
