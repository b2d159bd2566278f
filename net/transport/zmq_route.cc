// Implements the ids of channels on a socket.
#include "net/transport/zmq_route.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "core/base/check.h"

namespace troop {

// Never 0, which stands for no channel.
std::uint64_t RandomId() {
  std::uint64_t id = 0;
  while (id == 0) {
    TROOP_CHECK(getrandom(&id, sizeof id, 0) == sizeof id, "can't get random numbers: {}",
                std::strerror(errno));
  }
  return id;
}

// ZeroMQ reserves ids that begin with a zero byte, hence the prefix.
Route RouteOf(std::uint64_t channel) {
  Route route;
  route[0] = std::byte{'T'};
  std::memcpy(route.data() + 1, &channel, sizeof channel);
  return route;
}

}  // namespace troop
