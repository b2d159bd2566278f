#pragma once

#include <functional>
#include <memory>

#include "core/metrics/metrics.h"
#include "net/network.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// The weight publisher: keeps a model's newest two versions, without an optimizer, so that a pull
// names a version and is never torn. Versions never decrease: an older publish is acknowledged and
// ignored. Owner: the node's thread.
class WeightsServer : public Service {
 public:
  struct Options {
    std::int64_t parameters = 0;  // P; a publish of another size is refused
    // Returns true if the coordinator has issued this incarnation (the upper 32 bits of a version),
    // or a newer one. Empty: accept all.
    std::function<bool(std::uint64_t)> version_is_issued{};
  };
  // Adds the paramserver/ counters to `metrics`.
  virtual void Report(Metrics* metrics) const = 0;
  virtual std::uint64_t version() const = 0;  // newest; 0: none yet
};
std::unique_ptr<WeightsServer> MakeWeightsServer(const WeightsServer::Options& options);

}  // namespace troop
