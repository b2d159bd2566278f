#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/network.h"

namespace troop {

// How long messages take between places, asked once for each. Without one they arrive at once.
class SimWeather {
 public:
  virtual ~SimWeather() = default;
  // Messages of one connection do not overtake one another, whatever this says.
  virtual Duration Delay(std::string_view from, std::string_view to, std::size_t bytes) = 0;
  // A connection ended with `count` messages on their way to the server: so many of them arrive
  // nevertheless, late, perhaps after their repeats.
  virtual std::size_t Survivors(std::size_t count) = 0;
  // Until a connection that ended is tried again.
  virtual Duration Reconnect() = 0;
};

class SimNetwork : public Network {
 public:
  // When Pump has something to do: now if messages have arrived.
  virtual Time next_pump() const = 0;
  // Under a weather: grows whenever something comes from outside. Without that, and without a call
  // to this network or its channels, next_pump stays what it was.
  virtual std::uint64_t news() const = 0;
};

// The simulated network: any number of Networks within one thread (serial mode, simulator).
// Messages pass through the wire format and arrive in the order they were sent. Time is what is
// given to Pump and Advance, so equal programs give equal bytes. Big parts are shared, not copied.
//
// Under a weather each network is a *place*, and connections behave as those of ZeroMQ over TCP:
// nothing is lost while a connection stands; it ends when one side was not heard for dead_after, or
// by Break, and then what was on its way is lost but for what the weather lets through.
class SimHub {
 public:
  virtual ~SimHub() = default;
  // May outlive the hub.
  virtual std::unique_ptr<SimNetwork> MakeNetwork(const NetworkOptions& options = {},
                                                  std::string place = {}) = 0;

  // ---- Under a weather, which outlives the hub's use of it ----

  virtual void SetWeather(SimWeather* weather) = 0;
  // Delivers what has arrived by now, ends and begins connections.
  virtual void Advance(Time now) = 0;
  virtual Time next_event() const = 0;  // when Advance has something to do
  // Nothing gets from one place to the other: it waits, and the connection ends some time later.
  virtual void Block(std::string_view from, std::string_view to, bool blocked) = 0;
  // Connections between two places end now.
  virtual void Break(std::string_view a, std::string_view b) = 0;
  // A stopped process: its sockets say nothing, what arrives waits for it.
  virtual void Freeze(std::string_view place, bool frozen) = 0;
  // kill -9: connections end, and whatever objects of the place still do is seen by nobody.
  virtual void Kill(std::string_view place) = 0;
  // Messages that arrived, so far, and those that wait in all queues.
  virtual std::uint64_t delivered() const = 0;
  virtual std::size_t waiting() const = 0;
};
std::unique_ptr<SimHub> MakeSimHub();

}  // namespace troop
