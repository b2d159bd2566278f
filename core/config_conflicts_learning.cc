#include <algorithm>
#include <utility>

#include "core/config_conflicts.h"

namespace troop {
namespace {

void CheckSync(const Config& c, Conflicts* out) {
  const Config::ParamServerKeys& p = c.paramserver;
  const std::string mode = TomlString(p.mode);
  const bool k_of_n = p.mode == "k_of_n", local_sgd = p.mode == "local_sgd";
  out->If(p.k > 1 && !k_of_n, {"paramserver.k", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set 1, or change the mode", mode);
  out->If(p.cancel && !k_of_n, {"paramserver.cancel", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set false, or change the mode", mode);
  out->If(p.per_batch && !k_of_n, {"paramserver.per_batch", "paramserver.mode"},
          "only paramserver.mode = \"k_of_n\" has it, not {}; set false, or change the mode", mode);
  out->If(p.staleness > 0 && p.mode != "ssp", {"paramserver.staleness", "paramserver.mode"},
          "only paramserver.mode = \"ssp\" has it, not {}; set 0, or change the mode", mode);
  out->If(p.warm_start_updates > 0 && p.mode != "async",
          {"paramserver.warm_start_updates", "paramserver.mode"},
          "only paramserver.mode = \"async\" has it, not {}; set 0, or change the mode", mode);
  out->If(p.damp_stale && (p.mode == "bsp" || local_sgd),
          {"paramserver.damp_stale", "paramserver.mode"},
          "nothing is stale in {}; set false, or change the mode", mode);
  out->If(k_of_n && !p.per_batch && c.mesh.tp == 1 && c.mesh.dp == 0 && p.k > c.fleet.learners,
          {"paramserver.k", "fleet.learners", "paramserver.per_batch"},
          "{} of fleet.learners = {}, one push each; lower it, or set paramserver.per_batch = true",
          p.k, c.fleet.learners);
  // A model in parts pushes once.
  const std::int64_t workers =
      c.mesh.dp > 0 ? c.mesh.dp : c.fleet.learners / std::max<std::int64_t>(1, c.mesh.tp);
  const bool meshed = c.learner.sync == "paramserver" && (c.mesh.tp > 1 || c.mesh.dp > 0);
  out->If(k_of_n && !p.per_batch && meshed && p.k > workers,
          {"paramserver.k", "mesh.dp", "paramserver.per_batch"},
          "{} of {} workers, one push each; lower it, or set paramserver.per_batch = true", p.k,
          workers);
  out->If(!IsSupervised(c) && (p.push_every == 0 || p.fetch_every == 0),
          {"paramserver.push_every", "paramserver.fetch_every", "learner.algorithm"},
          "0 is a pass over reviews, and there are none; set at least 1");
  // Where a push is waited for, the version after it is what the next one is computed at; and who
  // is too far ahead waits for its pull: a push without one would be refused, and lost.
  const bool waits = p.mode == "bsp" || p.mode == "ssp" || local_sgd || (k_of_n && !p.per_batch);
  out->If(waits && p.fetch_every != p.push_every && (local_sgd || p.fetch_every > p.push_every),
          {"paramserver.fetch_every", "paramserver.push_every", "paramserver.mode"},
          "{} with paramserver.push_every = {}: in {} a pull follows each push; make them the same",
          p.fetch_every, p.push_every, mode);
  out->If(local_sgd && p.codec != "none", {"paramserver.codec", "paramserver.mode"},
          "{} is for gradients, {} pushes values; set \"none\"", TomlString(p.codec), mode);
  const bool averages = c.learner.sync == "paramserver" && local_sgd;
  out->If(averages && c.optimizer.type != "sgd", {"optimizer.type", "paramserver.mode"},
          "in {} a learner's own steps are plain SGD's; set \"sgd\", and a learning rate for it",
          mode);
  out->If(averages && c.optimizer.type == "sgd" && c.optimizer.momentum > 0,
          {"optimizer.momentum", "paramserver.mode"},
          "in {} a learner's own steps are plain SGD's; set 0", mode);
}

void CheckShardThreads(const Config& c, Conflicts* out) {
  const std::int64_t threads = c.paramserver.hogwild_threads;
  if (threads == 1) return;
  out->If(
      c.paramserver.mode != "async", {"paramserver.hogwild_threads", "paramserver.mode"},
      "only where each push is an update by itself, \"async\", not {}; set 1, or change the mode",
      TomlString(c.paramserver.mode));
  out->If(c.paramserver.backup, {"paramserver.hogwild_threads", "paramserver.backup"},
          "{} threads make updates in no order that a backup could repeat; set 1, or false there",
          threads);
  out->If(c.fleet.mode == "serial", {"paramserver.hogwild_threads", "fleet.mode"},
          "{} threads at once give other bytes each time; set 1, or fleet.mode = \"processes\"",
          threads);
}

void CheckHogwild(const Config& c, Conflicts* out) {
  if (c.learner.hogwild_threads == 1) return;
  out->If(c.fleet.learners > 1, {"learner.hogwild_threads", "fleet.learners"},
          "{} threads of one learner; {} learners agree in another way: set one of the two to 1",
          c.learner.hogwild_threads, c.fleet.learners);
  out->If(c.learner.sync == "paramserver", {"learner.hogwild_threads", "learner.sync"},
          "the parameter shards step the weights; set 1, or learner.sync = \"allreduce\"");
  out->If(c.fleet.mode == "serial", {"learner.hogwild_threads", "fleet.mode"},
          "{} threads at once give other bytes each time; set 1, or fleet.mode = \"processes\"",
          c.learner.hogwild_threads);
  out->If(c.network.normalize_observations,
          {"learner.hogwild_threads", "network.normalize_observations"},
          "{} threads would each have statistics of their own; set 1, or scale observations in the "
          "environment",
          c.learner.hogwild_threads);
  out->If(c.optimizer.policy_learning_rate > 0,
          {"learner.hogwild_threads", "optimizer.policy_learning_rate"},
          "threads on the same weights have one learning rate; set 1, or 0 there");
}

void CheckDpg(const Config& c, Conflicts* out) {
  const bool dpg = c.learner.algorithm == "dpg";
  out->If(!dpg && !c.network.critic_layers.empty(), {"network.critic_layers", "learner.algorithm"},
          "only learner.algorithm = \"dpg\" has a critic; leave them out, or change that");
  out->If(dpg && c.actor.epsilon_steps > 0, {"actor.epsilon_steps", "learner.algorithm"},
          "continuous actions explore with noise; set 0, and see actor.noise_sigma");
  out->If(!dpg && c.optimizer.policy_learning_rate > 0,
          {"optimizer.policy_learning_rate", "learner.algorithm"},
          "only learner.algorithm = \"dpg\" has a policy of its own; leave it out, or change that");
  out->If(c.optimizer.policy_learning_rate > 0 && c.learner.sync == "paramserver",
          {"optimizer.policy_learning_rate", "learner.sync"},
          "the parameter shards' optimizer has one learning rate; set 0, or learner.sync = "
          "\"allreduce\"");
  const bool values = dpg || c.learner.algorithm == "dqn";
  out->If(!values && c.learner.critic != "scalar", {"learner.critic", "learner.algorithm"},
          "only \"dqn\" and \"dpg\" learn values; leave it out, or change that");
  out->If(c.learner.critic == "quantile" && c.learner.loss != "huber",
          {"learner.critic", "learner.loss"},
          "quantiles are learned by the Huber loss; set learner.loss = \"huber\"");
  out->If(c.learner.v_min >= c.learner.v_max, {"learner.v_min", "learner.v_max"},
          "{} is not below learner.v_max = {}; lower it", TomlNumber(c.learner.v_min),
          TomlNumber(c.learner.v_max));
}

}  // namespace

void CheckAgreement(const Config& c, Conflicts* out) {
  CheckHogwild(c, out);
  CheckShardThreads(c, out);
  CheckSync(c, out);
  CheckDpg(c, out);
}

void CheckSupervised(const Config& c, Conflicts* out) {
  const std::string algorithm = TomlString(c.learner.algorithm);
  out->If(c.data.reviews.empty(), {"data.reviews", "learner.algorithm"},
          "is empty, but learner.algorithm = {} learns reviews; name the folder or archive of "
          "aclImdb, or a CSV",
          algorithm);
  out->If(c.data.vocabulary.empty(), {"data.vocabulary", "learner.algorithm"},
          "is empty, but learner.algorithm = {} learns reviews; name a vocabulary", algorithm);
  out->If(c.data.tokens_max > c.model.positions, {"data.tokens_max", "model.positions"},
          "{} is more than model.positions = {}; lower it, or raise that", c.data.tokens_max,
          c.model.positions);
  out->If(c.model.hidden % 16 != 0, {"model.hidden"}, "{} is no multiple of 16", c.model.hidden);
  out->If(c.model.hidden % c.model.heads != 0, {"model.heads", "model.hidden"},
          "{} heads can't share model.hidden = {} evenly", c.model.heads, c.model.hidden);
  out->If(c.data.word_dropout > 0 && c.learner.algorithm != "classifier",
          {"data.word_dropout", "learner.algorithm"},
          "hides words from a classifier; learner.algorithm = {} masks those that it learns",
          algorithm);
  const bool lstm = c.model.family == "lstm";
  out->If(lstm && c.learner.algorithm != "classifier", {"model.family", "learner.algorithm"},
          "\"lstm\" has no learner.algorithm = {}; take \"classifier\", or another family",
          algorithm);
  out->If(lstm && c.mesh.tp > 1, {"mesh.tp", "model.family"},
          "\"lstm\" can't be cut into parts; set 1, or take another family");
  out->If(lstm && !c.model.pretrained.empty(), {"model.pretrained", "model.family"},
          "there is no such file of an \"lstm\"; leave it out");
  out->If(c.model.family == "bert" && c.model.embedding != 0 && c.model.embedding != c.model.hidden,
          {"model.embedding", "model.family"},
          "only \"albert\" has another one than model.hidden = {}; set 0", c.model.hidden);
  out->If(c.mesh.dp > 0 && c.fleet.learners > 1 && c.mesh.dp * c.mesh.tp != c.fleet.learners,
          {"mesh.dp", "mesh.tp", "fleet.learners"},
          "{} x mesh.tp = {} are not fleet.learners = {}; leave that one out", c.mesh.dp, c.mesh.tp,
          c.fleet.learners);
  out->If(c.mesh.dp == 0 && c.fleet.learners > 1 && c.fleet.learners % c.mesh.tp != 0,
          {"mesh.tp", "fleet.learners"}, "{} learners are no multiple of it; set mesh.dp instead",
          c.fleet.learners);
  out->If(c.mesh.dp * c.mesh.tp > 256, {"mesh.dp", "mesh.tp"},
          "{} x {} learners; at most 256 are possible", c.mesh.dp, c.mesh.tp);
  const std::int64_t workers =
      c.mesh.dp > 0 ? c.mesh.dp : std::max<std::int64_t>(1, c.fleet.learners / c.mesh.tp);
  out->If(!c.mesh.shares.empty() && std::int64_t(c.mesh.shares.size()) != workers,
          {"mesh.shares", "mesh.dp"}, "{} shares of {} workers; give one a worker",
          c.mesh.shares.size(), workers);
  out->If(c.learner.hogwild_threads > 1, {"learner.hogwild_threads", "learner.algorithm"},
          "learner.algorithm = {} has none; set 1, and see mesh.dp", algorithm);
  out->If(c.fleet.mode == "serial" && c.mesh.tp > 1, {"mesh.tp", "fleet.mode"},
          "learners that share a product wait for each other, and here one thread plays all; set "
          "1, or fleet.mode = \"processes\"");
  out->If(c.mesh.tp > c.model.heads, {"mesh.tp", "model.heads"},
          "{} learners can't share {} heads; lower it", c.mesh.tp, c.model.heads);
}

}  // namespace troop
