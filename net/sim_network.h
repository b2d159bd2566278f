#pragma once

#include <memory>

#include "net/network.h"

namespace troop {

// The simulated network: any number of Networks within one thread (serial mode). Messages pass
// through the wire format and arrive in the order they were sent; nothing is lost. Time is what is
// given to Pump, so equal programs give equal bytes. Big parts are shared, not copied.
class SimHub {
 public:
  virtual ~SimHub() = default;
  // May outlive the hub.
  virtual std::unique_ptr<Network> MakeNetwork(const NetworkOptions& options = {}) = 0;
};
std::unique_ptr<SimHub> MakeSimHub();

}  // namespace troop
