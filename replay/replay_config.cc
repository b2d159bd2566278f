// Declares the config keys of the replay and of its tables.
#include "replay/replay_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

// Nouns for messages about replay.tables.
constexpr ConfigListKind kTableKind{.entry = "table",
                                    .example = "{name = \"main\", observation = \"f32[4]\"}",
                                    .required = "name",
                                    .required_example = "name = \"main\""};

}  // namespace

void VisitKeys(ReplayConfig& c, ConfigVisitor& v) {
  v.Visit({"replay.capacity_items", "Maximum number of items; the remover evicts the excess.",
           Between(1, 1 << 30)},
          c.capacity_items);
  v.Visit({"replay.min_items", "Number of items required before the first batch is sampled.",
           Between(1, 1 << 30)},
          c.min_items);
  v.Visit({"replay.alpha", "Priority exponent: 0 samples uniformly, 1 in proportion to |TD error|.",
           Between(0, 2)},
          c.alpha);
  v.Visit({"replay.beta",
           "Exponent of the importance weights; 1 fully corrects the bias of prioritized sampling.",
           Between(0, 1)},
          c.beta);
  v.Visit({"replay.final_beta",
           "Importance exponent at the last update, reached linearly from replay.beta (1 in Schaul "
           "et al. 2016); 0 keeps replay.beta constant.",
           Between(0, 1)},
          c.final_beta);
  v.Visit({"replay.priority_epsilon",
           "Constant added to |TD error|, so that every item can be sampled.", AtLeast(0)},
          c.priority_epsilon);
  v.Visit({"replay.trim_every_updates",
           "Updates between evictions of the items beyond replay.capacity_items, which may be "
           "exceeded in between; 0 evicts at every insert.",
           Between(0, kConfigMany)},
          c.trim_every_updates);
  // Rate limiter and memory.
  v.Visit({"replay.samples_per_insert",
           "Target ratio of sampled to inserted items; the side that is ahead waits. 0 disables "
           "the rate limiter; the learner then stops after the last agent step, or after "
           "run.max_updates if that is set.",
           AtLeast(0)},
          c.samples_per_insert);
  v.Visit({"replay.samples_per_insert_tolerance_rate",
           "Tolerance of the rate limiter (its error buffer), as a fraction of "
           "samples_per_insert·min_items.",
           LeftOpen(0, 1e6)},
          c.samples_per_insert_tolerance_rate);
  v.Visit({.name = "replay.memory_bytes_max",
           .doc = "Memory limit of a full replay in bytes; a run that needs more is rejected at "
                  "the start. 0 means three quarters of this machine's memory.",
           .range = Between(0, kConfigMany),
           .whole = true},
          c.memory_bytes_max);
  // Distribution.
  v.Visit(
      {"replay.shards",
       "Number of replay processes; each stores the items of a part of the environments, and has "
       "an equal part of min_items and capacity_items.",
       Between(1, 256)},
      c.shards);
  v.Visit({.name = "replay.scope",
           .doc = "\"global\": every learner samples from all shards. \"local\": learner i samples "
                  "from shard i only, which is filled by actors i, i + fleet.learners, … (the "
                  "bundles of Gorila)."},
          c.scope);
  v.Visit({.name = "replay.placement",
           .doc = "\"host\": the replay samples batches. \"gpu\": the learner samples from a "
                  "replica of the table in GPU memory (docs/guide/gpu.md)."},
          c.placement);
  v.Visit({.name = "replay.compression",
           .doc = "Compression of stored and sent observations; auto uses lz4 for images of at "
                  "least 1 KiB."},
          c.compression);
  // Sampling and eviction.
  v.Visit({.name = "replay.sampler",
           .doc = "Sampling distribution or order: in proportion to priority^alpha, uniform, by "
                  "age (fifo, lifo), or by priority (lowest, highest)."},
          c.sampler);
  v.Visit({.name = "replay.remover",
           .doc = "Choice of items to evict from a full replay; reservoir keeps a uniform sample "
                  "of all items inserted so far."},
          c.remover);
  v.Visit({"replay.evict_alpha",
           "Priority exponent of remover = \"prioritized\"; lower values evict low priorities more "
           "reliably (-0.4 in Horgan et al. 2018).",
           Between(-2, 2)},
          c.evict_alpha);
  v.Visit({"replay.max_times_sampled",
           "Number of times an item is sampled before it is evicted; 0 means no limit.",
           Between(0, 1e9)},
          c.max_times_sampled);
  v.Visit({"replay.max_policy_age",
           "Maximum age, in updates, of the weights that produced an item; older items are no "
           "longer sampled. 0 means no limit.",
           Between(0, 1e9)},
          c.max_policy_age);
  v.Visit({"replay.decode_threads",
           "Additional learner threads that decode batches; 0 decodes on the learner thread.",
           Between(0, 256)},
          c.decode_threads);
  // Persistence.
  v.Visit({"replay.persist",
           "Also store the replay in the run folder; a restarted replay process and a resumed run "
           "then keep its contents."},
          c.persist);
  v.Visit({.name = "replay.durability",
           .doc = "Durability that an insert has when it is acknowledged: in memory, or on disk "
                  "(requires persist)."},
          c.durability);
  v.Visit({"replay.spill_to_disk", "Spill old frames from memory to disk (requires persist)."},
          c.spill_to_disk);
  // Stand-alone replay, and tables.
  v.Visit({"replay.listen", "Listen address of `troop replay`."}, c.listen);
  v.Visit({"replay.dir", "Folder for the files of `troop replay` (with persist)."}, c.dir);
  v.Visit({"replay.tables",
           "Tables that `troop replay` serves; a training run serves them in addition to its own "
           "table. Empty means only the table that a run of this config has."},
          kTableKind, c.tables, VisitKeys);
}

void VisitKeys(ReplayTableConfig& t, ConfigVisitor& v) {
  v.Visit({"name", "Name by which clients refer to the table."}, t.name);
  v.Visit({"observation", "Type and shape of one frame, such as \"u8[84, 84]\"."}, t.observation);
  v.Visit({"action", "Type and shape of the action of one step; \"i32[]\" is a single integer."},
          t.action);
  v.Visit({"state", "Type and shape of the recurrent state stored with an item; empty means none."},
          t.state);
  v.Visit({.name = "view",
           .doc = "Frames that an item contains: the first and the last of n steps "
                  "(\"transition\"), or those of every step (\"sequence\")."},
          t.view);
  v.Visit({"length", "Maximum number of steps of an item.", Between(1, 1024)}, t.length);
  v.Visit({"stack", "Number of frames per observation.", Between(1, 64)}, t.stack);
  v.Visit({"burn_in", "Steps before a sequence that only warm up the recurrent state.",
           Between(0, 1024)},
          t.burn_in);
  v.Visit({.name = "compression", .doc = "Compression; see replay.compression."}, t.compression);
  v.Visit({"capacity_items", "Maximum number of items.", Between(1, 1 << 30)}, t.capacity_items);
  v.Visit({"min_items", "Number of items required before the first batch is sampled.",
           Between(1, 1 << 30)},
          t.min_items);
  v.Visit({.name = "sampler", .doc = "Order of sampling; see replay.sampler."}, t.sampler);
  v.Visit({.name = "remover", .doc = "Choice of items to evict; see replay.remover."}, t.remover);
  v.Visit({"alpha", "Priority exponent; see replay.alpha.", Between(0, 2)}, t.alpha);
  v.Visit({"evict_alpha", "Priority exponent of eviction; see replay.evict_alpha.", Between(-2, 2)},
          t.evict_alpha);
  v.Visit({"priority_epsilon", "Constant added to priorities; see replay.priority_epsilon.",
           AtLeast(0)},
          t.priority_epsilon);
  v.Visit({"max_times_sampled",
           "Number of times an item is sampled before it is evicted; 0 means no limit.",
           Between(0, 1e9)},
          t.max_times_sampled);
  v.Visit(
      {"max_policy_age",
       "Maximum age of the policy of sampled items; see replay.max_policy_age. 0 means no limit.",
       Between(0, 1e9)},
      t.max_policy_age);
  v.Visit({"samples_per_insert",
           "Target ratio of sampled to inserted items; 0 disables the rate limiter.", AtLeast(0)},
          t.samples_per_insert);
  v.Visit({"samples_per_insert_tolerance_rate",
           "Error buffer of the rate limiter; see replay.samples_per_insert_tolerance_rate.",
           LeftOpen(0, 1e6)},
          t.samples_per_insert_tolerance_rate);
}

}  // namespace troop
