#pragma once

#include <functional>
#include <memory>

#include "core/metrics.h"
#include "net/network.h"
#include "paramserver/client.h"

namespace troop {

// One parameter shard without an optimizer: the weight publisher. Keeps the newest two versions, so
// that a pull names a version and is never torn. Versions never go back: an older publish is
// answered and ignored. Owner: the node's thread.
class ParameterServer : public Service {
 public:
  struct Options {
    std::int64_t parameters = 0;  // P; a publish of another size is refused
    // True if the coordinator has issued what a version has in its upper half, a learner's
    // incarnation, or a newer one. Empty: all are taken.
    std::function<bool(std::uint64_t)> version_is_issued{};
  };
  virtual void Report(Metrics* metrics) const = 0;
  virtual std::uint64_t version() const = 0;
};
std::unique_ptr<ParameterServer> MakeParameterServer(const ParameterServer::Options& options);

}  // namespace troop
