// Implements VisitConfig, and declares the keys without a section.
#include "fleet/config/config_keys.h"

namespace troop {
namespace {

// Keys without a section, which stand at the head of a config file: version of the format, name of
// the run's folder, and seed.
void VisitTop(Config& c, ConfigVisitor& v) {
  v.Visit({"version",
           "Version of the config format; a version newer than the program supports is rejected.",
           Between(1, double(kConfigVersion))},
          c.version);
  v.Visit({"name", "Name of the run and of its folder in log.dir."}, c.name);
  v.Visit({"seed", "Seed from which every random stream of the run is derived.",
           Between(0, kConfigMany)},
          c.seed);
}

}  // namespace

// The order of the sections in docs/reference/config.md and in written configs.
void VisitConfig(Config& config, ConfigVisitor& visitor) {
  VisitTop(config, visitor);
  VisitKeys(config.run, visitor);
  VisitKeys(config.env, visitor);
  VisitKeys(config.network, visitor);
  VisitKeys(config.fleet, visitor);
  VisitKeys(config.security, visitor);
  VisitKeys(config.slurm, visitor);
  VisitKeys(config.kubernetes, visitor);
  VisitKeys(config.actor, visitor);
  VisitKeys(config.inference, visitor);
  VisitKeys(config.replay, visitor);
  VisitKeys(config.learner, visitor);
  VisitKeys(config.data, visitor);
  VisitKeys(config.features, visitor);
  VisitKeys(config.model, visitor);
  VisitKeys(config.linear, visitor);
  VisitKeys(config.mesh, visitor);
  VisitKeys(config.pipeline, visitor);
  VisitKeys(config.paramserver, visitor);
  VisitKeys(config.optimizer, visitor);
  VisitKeys(config.evaluator, visitor);
  VisitKeys(config.checkpoint, visitor);
  VisitKeys(config.log, visitor);
}

}  // namespace troop
