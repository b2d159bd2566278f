// Declares the config keys of the inference servers.
#include "actors/inference/inference_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(InferenceConfig& c, ConfigVisitor& v) {
  v.Visit({"inference.servers",
           "Number of inference servers with actor.inference = \"server\"; actor i uses server i "
           "modulo this number.",
           Between(1, 1024)},
          c.servers);
  v.Visit(
      {"inference.max_batch_size", "Maximum number of observations per batch.", Between(1, 65536)},
      c.max_batch_size);
  v.Visit({"inference.batch_timeout_s",
           "Seconds that an incomplete batch waits for more requests, unless every client has sent "
           "one.",
           Between(0, 1)},
          c.batch_timeout_s);
  v.Visit(
      {"inference.weight_sync_s", "Seconds between checks for newer weights.", Between(0, 3600)},
      c.weight_sync_s);
  v.Visit(
      {.name = "inference.device", .doc = "Device of the policy; auto uses a GPU if there is one."},
      c.device);
}

}  // namespace troop
