#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/network.h"

namespace troop {

// Fault injection: the hub queries it for the delay of every message between two places (SimHub).
// A hub without a model delivers messages at once.
class SimNetworkModel {
 public:
  virtual ~SimNetworkModel() = default;
  // Returns the delay of a message. Messages of one connection keep their order regardless of it.
  virtual Duration Delay(std::string_view from, std::string_view to, std::size_t bytes) = 0;
  // Returns how many of the `count` messages in flight to the server still arrive after their
  // connection ended; they arrive late, possibly after their repeats.
  virtual std::size_t Survivors(std::size_t count) = 0;
  // Returns the time from the end of a connection until its channel tries to reconnect.
  virtual Duration Reconnect() = 0;
};

// A network of one simulated process.
class SimNetwork : public Network {
 public:
  // Time of the next work for Pump: now if messages have arrived.
  virtual Time next_pump() const = 0;
  // Counter of external events; valid only with fault injection. next_pump stays constant until
  // this counter changes, or this network or one of its channels is called.
  virtual std::uint64_t news() const = 0;
};

// The simulator: any number of Networks within one thread (serial mode, tests). Messages pass
// through the wire format and arrive in the order they were sent. Time is only what is passed to
// Pump and Advance, so equal programs give equal bytes. Big parts are shared, not copied.
//
// With fault injection each network is a *place*, and connections behave like those of ZeroMQ over
// TCP: nothing is lost while a connection is open. It ends by Break or Kill, or when one side was
// silent for NetworkOptions::dead_after. Then messages in flight are lost, except for those that
// SimNetworkModel::Survivors lets through.
class SimHub {
 public:
  virtual ~SimHub() = default;
  // Creates the network of a place; for a killed place, that of a new process. It may outlive the
  // hub.
  virtual std::unique_ptr<SimNetwork> MakeNetwork(const NetworkOptions& options = {},
                                                  std::string place = {}) = 0;

  // ---- Fault injection; REQUIRES: `network_model` outlives its use by the hub ----

  virtual void SetNetworkModel(SimNetworkModel* network_model) = 0;
  // Delivers messages that are due, and closes and opens connections.
  virtual void Advance(Time now) = 0;
  virtual Time next_event() const = 0;  // time of the next work for Advance
  // Blocks one direction: messages are held, and the connection ends some time later.
  virtual void Block(std::string_view from, std::string_view to, bool blocked) = 0;
  // Ends the connections between two places now.
  virtual void Break(std::string_view a, std::string_view b) = 0;
  // Simulates a stopped process: its sockets are silent, and messages to it wait. The caller must
  // not run the process meanwhile.
  virtual void Freeze(std::string_view place, bool frozen) = 0;
  // Simulates kill -9: connections end, and later actions of the place's objects have no effect.
  virtual void Kill(std::string_view place) = 0;
  // Numbers of messages delivered so far, and waiting in all queues.
  virtual std::uint64_t delivered() const = 0;
  virtual std::size_t waiting() const = 0;
};
std::unique_ptr<SimHub> MakeSimHub();

}  // namespace troop
