// Declares the config keys of run folder, metrics and log.
#include "fleet/config/sections/log_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(LogConfig& c, ConfigVisitor& v) {
  v.Visit({"log.dir", "Parent folder of the run folder."}, c.dir);
  v.Visit({"log.metrics_every_s", "Seconds between lines of metrics.jsonl.", Between(0.01, 86400)},
          c.metrics_every_s);
  v.Visit({.name = "log.level", .doc = "Lowest level that is logged."}, c.level);
}

}  // namespace troop
