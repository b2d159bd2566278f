// Checks combinations of keys of the algorithms that learn from unrolls.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "fleet/config/validate.h"

namespace troop {
namespace {

// Checks the sequences of R2D2, which overlap and have a burn-in.
void CheckSequences(const Config& c, Conflicts* out) {
  const bool r2d2 = c.learner.algorithm == AlgorithmKind::kR2d2;
  const ActorConfig& a = c.actor;
  for (const auto& [key, value] :
       {std::pair("actor.unroll_overlap", a.unroll_overlap), {"actor.burn_in", a.burn_in}}) {
    out->If(!r2d2 && value > 0, {key, "learner.algorithm"},
            "is supported by learner.algorithm = \"r2d2\" only; omit it, or change the algorithm");
  }
  // Without unrolls there is another error already, which names the missing key.
  if (!r2d2 || a.unroll_length == 0) return;
  out->If(a.unroll_overlap >= a.unroll_length, {"actor.unroll_overlap", "actor.unroll_length"},
          "{} is not less than actor.unroll_length = {}, so unrolls would not advance; "
          "lower it",
          a.unroll_overlap, a.unroll_length);
  out->If(a.burn_in > 0 && StateColumns(c.network.layers) == 0, {"actor.burn_in", "network.layers"},
          "{} has no effect on a network without lstm and gru layers; omit it, or add one",
          a.burn_in);
  out->If(!c.learner.stored_state && StateColumns(c.network.layers) == 0,
          {"learner.stored_state", "network.layers"},
          "false has no effect on a network without lstm and gru layers; omit it, or add one");
}

// Rejects keys of other algorithms, which those that learn from new unrolls have no use for.
void CheckKeysOfUnrolls(const Config& c, Conflicts* out) {
  const std::string name = TomlString(AlgorithmName(c.learner));
  const LearnerConfig plain;
  const LearnerConfig& l = c.learner;
  const auto without = [&](bool changed, const char* key, std::string_view what) {
    out->If(changed, {key, "learner.algorithm"},
            "has no effect on learner.algorithm = {}, which has no {}; omit it", name, what);
  };
  constexpr std::string_view kTarget = "target network", kQ = "action values",
                             kEpsilon = "ε: it samples its policy";
  without(l.target_update_every_updates != plain.target_update_every_updates,
          "learner.target_update_every_updates", kTarget);
  without(l.target_tau != plain.target_tau, "learner.target_tau", kTarget);
  without(l.double_q != plain.double_q, "learner.double_q", kTarget);
  if (!IsActorCritic(l.algorithm)) return;
  const ActorConfig actor;
  without(l.loss != plain.loss, "learner.loss", kQ);
  without(c.network.dueling_units != 0, "network.dueling_units", kQ);
  without(c.actor.epsilon_steps != actor.epsilon_steps, "actor.epsilon_steps", kEpsilon);
  without(c.actor.epsilon_base != actor.epsilon_base, "actor.epsilon_base", kEpsilon);
  without(c.actor.epsilon_alpha != actor.epsilon_alpha, "actor.epsilon_alpha", kEpsilon);
  out->If(l.c_bar > l.rho_bar, {"learner.c_bar", "learner.rho_bar"},
          "{} exceeds learner.rho_bar = {}, for which V-trace is not defined; lower it",
          TomlNumber(l.c_bar), TomlNumber(l.rho_bar));
}

// Checks batches with replayed unrolls. V-trace corrects for the age of the latter.
void CheckReplayed(const Config& c, Conflicts* out) {
  const LearnerConfig& l = c.learner;
  if (l.replayed_fraction == 0) {
    out->If(l.replayed_capacity != LearnerConfig().replayed_capacity,
            {"learner.replayed_capacity", "learner.replayed_fraction"},
            "{} has no effect without replayed unrolls; omit it, or set learner.replayed_fraction",
            l.replayed_capacity);
    return;
  }
  out->If(!IsActorCritic(l.algorithm), {"learner.replayed_fraction", "learner.algorithm"},
          "is supported by learner.algorithm = \"vtrace\" and \"ppo\" only; omit it, or change the "
          "algorithm");
  // A batch of one kind of unrolls alone would make the other key meaningless.
  const std::int64_t rows = ReplayedRows(l);
  out->If(rows == 0 || rows == l.batch_size, {"learner.replayed_fraction", "learner.batch_size"},
          "{} of {} rows rounds to {}; raise learner.batch_size", TomlNumber(l.replayed_fraction),
          l.batch_size, rows);
  out->If(l.synchronous, {"learner.replayed_fraction", "learner.synchronous"},
          "has no effect on rollouts, which are used as a whole; omit it, or set "
          "learner.synchronous = false");
}

// Checks synchronous learning, whose rollouts take the place of the replay's ratio and batches.
void CheckSynchronous(const Config& c, Conflicts* out) {
  const LearnerConfig& l = c.learner;
  const LearnerConfig plain;
  const ActorConfig actor;
  if (!l.synchronous) {
    const auto unused = [&](bool changed, const char* key) {
      out->If(changed, {key, "learner.synchronous"},
              "has no effect without rollouts; omit it, or set learner.synchronous = true");
    };
    unused(l.rollout_epochs != plain.rollout_epochs, "learner.rollout_epochs");
    unused(l.rollout_minibatches != plain.rollout_minibatches, "learner.rollout_minibatches");
    unused(c.actor.refill_after_s != actor.refill_after_s, "actor.refill_after_s");
    return;
  }
  out->If(!IsOnPolicy(l.algorithm), {"learner.synchronous", "learner.algorithm"},
          "is supported by learner.algorithm = \"pqn\", \"vtrace\" and \"ppo\" only; set false, or "
          "change the algorithm");
  // Blames the key that differs, and names the required value.
  const auto need = [&](bool good, const char* key, std::string_view value, std::string_view why) {
    out->If(!good, {key, "learner.synchronous"}, "must be {} with learner.synchronous = true, {}",
            value, why);
  };
  constexpr std::string_view kOnce = "which uses each rollout as a whole (learner.rollout_epochs)";
  // The queue: each unroll once, in order of arrival.
  need(c.replay.max_times_sampled == 1, "replay.max_times_sampled", "1", kOnce);
  need(c.replay.samples_per_insert == 0, "replay.samples_per_insert", "0", kOnce);
  need(c.replay.sampler == SelectorKind::kFifo, "replay.sampler", "\"fifo\"", kOnce);
  need(c.replay.min_items == c.replay.shards, "replay.min_items", std::to_string(c.replay.shards),
       "one for each of replay.shards");
  need(c.actor.insert_copies == 1, "actor.insert_copies", "1", kOnce);
  need(l.batch_size == plain.batch_size, "learner.batch_size", "omitted",
       "whose batches follow from learner.rollout_minibatches");
  need(l.batches_per_request == plain.batches_per_request, "learner.batches_per_request", "1",
       "whose unrolls come one by one");
  need(l.publish_every_updates == plain.publish_every_updates, "learner.publish_every_updates",
       "omitted", "which publishes after each rollout");
  // The actors: one rollout, then new weights.
  need(c.actor.weight_sync_steps == actor.weight_sync_steps, "actor.weight_sync_steps", "omitted",
       "whose actors wait for new weights after each rollout");
  need(c.actor.lease_steps == actor.lease_steps, "actor.lease_steps", "omitted",
       "whose actors request the steps of a rollout");
  need(c.actor.inference == InferencePlace::kLocal, "actor.inference", "\"local\"",
       "whose actors wait for their weights");
  need(c.env.frame_stack == 1, "env.frame_stack", "1", "whose unrolls end within an episode");
  need(l.sync == LearnerSync::kAllReduce, "learner.sync", "\"allreduce\"",
       "whose learners wait for each other");
  need(l.hogwild_threads == 1, "learner.hogwild_threads", "1", "whose updates follow each other");
  // Episodes of one step make as many unrolls.
  const std::int64_t steps = c.fleet.actors * c.actor.envs * c.actor.unroll_length;
  out->If(c.replay.capacity_items < steps,
          {"replay.capacity_items", "fleet.actors", "actor.envs", "actor.unroll_length"},
          "{} is less than the {} steps of a rollout, so that unrolls could be evicted before they "
          "are used; raise it to at least {}",
          c.replay.capacity_items, steps, steps);
  if (c.fleet.learners <= 1) {
    need(c.replay.shards == 1, "replay.shards", "1", "whose rollouts come from one queue");
    return;
  }
  // Each learner has its own queue, which an equal number of actors fills.
  need(c.replay.scope == ReplayScope::kLocal, "replay.scope", "\"local\"",
       "where each of several learners has its own rollouts");
}

}  // namespace

void CheckUnrolls(const Config& c, Conflicts* out) {
  const AlgorithmKind algorithm = c.learner.algorithm;
  const bool learns = LearnsFromUnrolls(algorithm), unrolls = c.actor.unroll_length > 0;
  const std::string name = TomlString(AlgorithmName(c.learner));
  out->If(learns && !unrolls, {"actor.unroll_length", "learner.algorithm"},
          "is 0, but learner.algorithm = {} learns from unrolls; set their steps, for example 32",
          name);
  out->If(unrolls && !learns && algorithm != AlgorithmKind::kOwn,
          {"actor.unroll_length", "learner.algorithm"},
          "{} is supported by learner.algorithm = \"r2d2\", \"pqn\", \"vtrace\", \"ppo\" and own "
          "algorithms only, not by {}; set 0, or change the algorithm",
          c.actor.unroll_length, name);
  CheckSequences(c, out);
  CheckSynchronous(c, out);
  CheckReplayed(c, out);
  if (!unrolls) return;
  out->If(c.actor.n_step != ActorConfig().n_step && algorithm != AlgorithmKind::kR2d2,
          {"actor.n_step", "actor.unroll_length"},
          "{} has no effect on unrolls, which contain every reward; omit it", c.actor.n_step);
  out->If(!c.learner.demonstrations.empty(), {"learner.demonstrations", "actor.unroll_length"},
          "are transitions, which do not fit into batches of unrolls; omit it, or set 0");
  if (!IsOnPolicy(algorithm)) return;
  // Old experience needs corrections, which pqn does not have, and V-trace only within bounds.
  out->If(c.replay.max_times_sampled == 0, {"replay.max_times_sampled", "learner.algorithm"},
          "is 0, but learner.algorithm = {} learns from new experience only; set the number of "
          "times that an unroll is used, for example 1",
          name);
  CheckKeysOfUnrolls(c, out);
}

}  // namespace troop
