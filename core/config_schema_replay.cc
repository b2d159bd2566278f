#include "core/config_schema.h"

namespace troop {
namespace {

const std::vector<std::string_view> kCodecs = {"auto", "none", "lz4", "zstd"};
const std::vector<std::string_view> kSamplers = {"prioritized", "uniform", "fifo",
                                                 "lifo",        "lowest",  "highest"};
const std::vector<std::string_view> kRemovers = {"fifo",   "lifo",    "uniform",    "reservoir",
                                                 "lowest", "highest", "prioritized"};

}  // namespace

void VisitReplay(Config::ReplayKeys& c, ConfigVisitor& v) {
  v.Visit({"replay.capacity_items", "Items kept; the oldest leave first.", Between(1, 1 << 30)},
          c.capacity_items);
  v.Visit({"replay.min_items", "No batch is drawn before so many items are there.",
           Between(1, 1 << 30)},
          c.min_items);
  v.Visit({"replay.alpha", "Priority exponent: 0 draws uniformly, 1 in proportion to |TD error|.",
           Between(0, 2)},
          c.alpha);
  v.Visit({"replay.beta", "Importance weights' exponent: 1 removes the bias of prioritized draws.",
           Between(0, 1)},
          c.beta);
  v.Visit({"replay.final_beta",
           "Exponent at the run's last update: it rises linearly from beta (Schaul et al. 2016: to "
           "1). 0: beta throughout.",
           Between(0, 1)},
          c.final_beta);
  v.Visit({"replay.priority_epsilon", "Added to |TD error|, so that every item can be drawn.",
           AtLeast(0)},
          c.priority_epsilon);
  v.Visit({"replay.trim_every_updates",
           "Updates between two trims to the capacity, which is soft; 0: trim at every insert.",
           Between(0, kConfigMany)},
          c.trim_every_updates);
  v.Visit({"replay.samples_per_insert",
           "Times that an item is sampled on average; the faster side waits. 0: neither side "
           "waits, and the run ends with its last step.",
           AtLeast(0)},
          c.samples_per_insert);
  v.Visit(
      {"replay.ratio_error", "Slack of that ratio, as a fraction of samples_per_insert·min_items.",
       AboveUpTo(0, 1e6)},
      c.ratio_error);
  v.Visit({.name = "replay.memory_bytes_max",
           .doc = "Refuse to start when the full replay takes more; 0: three quarters of this "
                  "machine's memory.",
           .range = Between(0, kConfigMany),
           .whole = true},
          c.memory_bytes_max);
  v.Visit({"replay.shards",
           "Replay processes. Items, minimum and capacity are spread over them by environment.",
           Between(1, 256)},
          c.shards);
  v.Visit({.name = "replay.scope",
           .doc = "\"global\": every learner draws from all shards. \"local\": shard i is learner "
                  "i's own, filled by the actors i, i + learners, … (Gorila's bundles).",
           .choices = {"global", "local"}},
          c.scope);
  v.Visit({.name = "replay.placement",
           .doc = "Who draws batches: the replay, or the learner's GPU, which then has all of its "
                  "experience in its own memory (docs/guide/gpu.md).",
           .choices = {"host", "gpu"}},
          c.placement);
  v.Visit({.name = "replay.codec",
           .doc = "How observations are kept and sent; auto: lz4 for pictures of 1 KiB and more.",
           .choices = kCodecs},
          c.codec);
  v.Visit({.name = "replay.sampler",
           .doc = "What is drawn: by priority^alpha, at random, or in an order.",
           .choices = kSamplers},
          c.sampler);
  v.Visit({.name = "replay.remover",
           .doc = "What leaves a full replay; reservoir: of all items ever, each is kept alike.",
           .choices = kRemovers},
          c.remover);
  v.Visit({"replay.evict_alpha",
           "Exponent of remover = \"prioritized\": the lower, the surer low priorities leave "
           "(Horgan et al. 2018: -0.4).",
           Between(-2, 2)},
          c.evict_alpha);
  v.Visit({"replay.max_times_sampled", "An item leaves after so many draws; 0: no limit.",
           Between(0, 1e9)},
          c.max_times_sampled);
  v.Visit({"replay.max_policy_age",
           "Items of weights that are so many updates old are not drawn any more; 0: no limit.",
           Between(0, 1e9)},
          c.max_policy_age);
  v.Visit({"replay.decode_threads",
           "Threads that help the learner decode batches; 0: its own thread does it alone.",
           Between(0, 256)},
          c.decode_threads);
  v.Visit({"replay.persist",
           "Keep the replay in the run's folder too: a replay that dies, and a run that is "
           "resumed, go on with it."},
          c.persist);
  v.Visit({.name = "replay.ack",
           .doc = "When an insert is acknowledged: in memory, or once it is on disk (persist).",
           .choices = {"memory", "disk"}},
          c.ack);
  v.Visit({"replay.spill",
           "Give the memory of old experience back to the system; it is read from its files "
           "(persist)."},
          c.spill);
  v.Visit({"replay.listen", "Where `troop replay` binds."}, c.listen);
  v.Visit({"replay.dir", "Folder of what `troop replay` keeps on disk (persist)."}, c.dir);
  v.Visit({"replay.tables",
           "The tables of `troop replay`; in a run, tables beside its own. Empty: its own alone."},
          c.tables);
}

void VisitReplayTable(ReplayTableConfig& t, ConfigVisitor& v) {
  v.Visit({"name", "What clients call it."}, t.name);
  v.Visit({"observation", "Type and shape of one frame, such as \"u8[84, 84]\"."}, t.observation);
  v.Visit({"action", "Type and shape of one step's action; \"i32[]\" is a single integer."},
          t.action);
  v.Visit({"state", "Type and shape of the recurrent state that comes with an item; empty: none."},
          t.state);
  v.Visit({.name = "view",
           .doc = "How items look at frames: the ends of n steps, or every step.",
           .choices = {"transition", "sequence"}},
          t.view);
  v.Visit({"length", "Steps of an item, at most.", Between(1, 1024)}, t.length);
  v.Visit({"stack", "Frames that make an observation.", Between(1, 64)}, t.stack);
  v.Visit({"burn_in", "Steps before a sequence, for the recurrent state alone.", Between(0, 1024)},
          t.burn_in);
  v.Visit({.name = "codec", .doc = "As replay.codec.", .choices = kCodecs}, t.codec);
  v.Visit({"capacity_items", "Items kept.", Between(1, 1 << 30)}, t.capacity_items);
  v.Visit({"min_items", "No batch is drawn before so many items are there.", Between(1, 1 << 30)},
          t.min_items);
  v.Visit({.name = "sampler", .doc = "As replay.sampler.", .choices = kSamplers}, t.sampler);
  v.Visit({.name = "remover", .doc = "As replay.remover.", .choices = kRemovers}, t.remover);
  v.Visit({"alpha", "As replay.alpha.", Between(0, 2)}, t.alpha);
  v.Visit({"evict_alpha", "As replay.evict_alpha.", Between(-2, 2)}, t.evict_alpha);
  v.Visit({"priority_epsilon", "As replay.priority_epsilon.", AtLeast(0)}, t.priority_epsilon);
  v.Visit({"max_times_sampled", "As replay.max_times_sampled.", Between(0, 1e9)},
          t.max_times_sampled);
  v.Visit({"max_policy_age", "As replay.max_policy_age.", Between(0, 1e9)}, t.max_policy_age);
  v.Visit({"samples_per_insert", "As replay.samples_per_insert; 0: nobody waits.", AtLeast(0)},
          t.samples_per_insert);
  v.Visit({"ratio_error", "As replay.ratio_error.", AboveUpTo(0, 1e6)}, t.ratio_error);
}

}  // namespace troop
