// Declares the config keys of the parameter server.
#include "paramserver/paramserver_config.h"

#include "core/config/config_visitor.h"

namespace troop {
namespace {

// Keys of paramserver.* that depend on paramserver.mode.
void VisitSync(ParamServerConfig& c, ConfigVisitor& v) {
  v.Visit(
      {.name = "paramserver.mode",
       .doc = "When gradients are applied. bsp: together, when all learners have pushed; k_of_n: "
              "together, when k have arrived; ssp: each on arrival, with bounded staleness; async: "
              "each on arrival; local_sgd: never, because the shards average the parameters of "
              "learners that run plain SGD."},
      c.mode);
  v.Visit({"paramserver.k", "k_of_n: gradients to collect before each update.", Between(1, 100000)},
          c.k);
  v.Visit({"paramserver.cancel",
           "k_of_n: drop gradients that were computed at an older version (K-sync of Dutta et al. "
           "2018)."},
          c.cancel);
  v.Visit({"paramserver.per_batch",
           "k_of_n: accept several of the k gradients from one learner (K-batch-sync and "
           "K-batch-async)."},
          c.per_batch);
  v.Visit({"paramserver.staleness",
           "ssp: maximum number of pushes by which a learner may be ahead of the slowest one (Ho "
           "et al. 2013); 0 is equivalent to bsp.",
           Between(0, kConfigMany)},
          c.staleness);
  v.Visit({"paramserver.staleness_discount",
           "k_of_n, ssp, async: scale a gradient of staleness t by 1/t (Zhang et al. 2016)."},
          c.staleness_discount);
  v.Visit({"paramserver.warm_start_updates",
           "async: number of updates at the start in which only the first learner takes part (Dean "
           "et al. 2012).",
           Between(0, kConfigMany)},
          c.warm_start_updates);
  v.Visit({"paramserver.hogwild_threads",
           "async: threads of a shard that apply pushes without locks (Hogwild!, Recht et al. "
           "2011); with more than 1, runs are not reproducible.",
           Between(1, 64)},
          c.hogwild_threads);
  v.Visit({"paramserver.pull_every",
           "Updates of a learner between pulls (n_fetch); 0 means one pass over the examples "
           "(supervised only).",
           Between(0, kConfigMany)},
          c.pull_every);
  v.Visit({"paramserver.push_every",
           "Number of updates of a learner whose gradients are summed into one push (n_push; H in "
           "local_sgd); 0 means one pass over the examples (supervised only).",
           Between(0, kConfigMany)},
          c.push_every);
}

}  // namespace

void VisitKeys(ParamServerConfig& c, ConfigVisitor& v) {
  v.Visit({"paramserver.shards",
           "Number of processes among which the parameters and their optimizer state are divided, "
           "with learner.sync = \"paramserver\".",
           Between(1, 1024)},
          c.shards);
  v.Visit(
      {.name = "paramserver.sharding",
       .doc =
           "Assignment of parameters to shards: with equal numbers of bytes, or by whole layers."},
      c.sharding);
  VisitSync(c, v);
  // Filters of gradients.
  v.Visit({"paramserver.max_staleness",
           "Staleness in versions beyond which gradients are dropped (Nair et al. 2015); 0 "
           "disables it.",
           Between(0, kConfigMany)},
          c.max_staleness);
  v.Visit({"paramserver.outlier_sigmas",
           "Drop gradients whose loss exceeds the mean by this many standard deviations (Nair et "
           "al. 2015); 0 disables it.",
           AtLeast(0)},
          c.outlier_sigmas);
  v.Visit({"paramserver.outlier_norm_sigmas",
           "Drop gradients whose norm exceeds the mean by this many standard deviations; this "
           "detects faults in the backward pass. 0 disables it.",
           AtLeast(0)},
          c.outlier_norm_sigmas);
  // Compression.
  v.Visit({.name = "paramserver.compression",
           .doc = "Compression of pushed gradients; what is not sent is added to the next gradient "
                  "(error feedback)."},
          c.compression);
  v.Visit(
      {"paramserver.topk_ratio", "top_k: fraction of the elements that is sent.", LeftOpen(0, 1)},
      c.topk_ratio);
  v.Visit({"paramserver.strom_threshold",
           "strom: elements of at least this magnitude are sent, as plus or minus this value "
           "(Strom 2015).",
           LeftOpen(0, 1e30)},
          c.strom_threshold);
  // Failover.
  v.Visit({"paramserver.backup",
           "Run a backup process for each shard, which takes over when the primary fails."},
          c.backup);
  v.Visit({"paramserver.lease_s",
           "Seconds for which the shards still wait for a dead or hung learner, counted from the "
           "end of fleet.heartbeat_timeout_s.",
           Between(0, 3600)},
          c.lease_s);
}

}  // namespace troop
