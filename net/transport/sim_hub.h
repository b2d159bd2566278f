#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/rpc/call_server.h"
#include "net/transport/sim_network.h"

namespace troop {

// Internal to net/transport/sim_network.h: the queues between the ends of a simulated network and,
// with fault injection, connections that open and close.

// Maximum number of queued messages per client, server and direction, like the high-water mark of
// ZeroMQ.
inline constexpr int kSimQueueMax = 64;

// The frames of one encoded message.
struct SimFrames {
  Buffer first;
  std::vector<Buffer> big;
};

// The interfaces of a channel and of a server toward the hub.
class SimClientEnd {
 public:
  virtual ~SimClientEnd() = default;
  virtual const std::string& served_by() const = 0;  // endpoint of its server
  virtual void Drop() = 0;      // the connection ended; unread messages are lost
  virtual void NoteNews() = 0;  // a message arrived, or the connection opened or closed
  std::size_t waiting() const { return inbox_.size(); }
  void Enqueue(SimFrames frames) {
    inbox_.push_back(std::move(frames));
    NoteNews();
  }

 protected:
  std::deque<SimFrames> inbox_;
};

class SimServerEnd {
 public:
  virtual ~SimServerEnd() = default;
  virtual bool Full(std::uint64_t channel) const = 0;
  virtual void Enqueue(std::uint64_t channel, SimFrames frames) = 0;
  virtual std::size_t waiting() const = 0;
  virtual const std::string& place() const = 0;
};

// A blocked direction between two places, and the time at which it was blocked.
struct SimPartition {
  std::string from, to;
  Time since{};
};

// One connection between a channel and the server of its endpoint.
struct SimLink {
  std::string client, server;  // places
  Duration dead_after{};
  bool up = false;
  std::uint64_t epoch = 0;  // increases with each new connection
  Time retry_at{};          // time of the next connection attempt while down
  Time last[2] = {};        // arrival time of the newest message: to the client, to the server
  std::size_t waiting[2] = {};
  std::deque<SimFrames> held[2];  // messages that arrived while the direction was blocked
};
enum SimDirection { kToClient = 0, kToServer = 1 };

// A message in flight.
struct SimPacket {
  std::uint64_t channel = 0, epoch = 0;
  SimDirection way = kToClient;
  bool survives = false;  // survives the end of its connection
  SimFrames frames;
};

// The state that all networks of a hub share. Channels and servers are registered here while they
// exist.
struct SimHubState {
  std::map<std::string, SimServerEnd*, std::less<>> servers;  // by endpoint
  std::map<std::uint64_t, SimClientEnd*> channels;            // by id
  std::uint64_t next_id = 1;

  // Send a message from one side to the other; all messages take one of these two paths.
  bool DeliverToServer(std::uint64_t channel, SimFrames frames);
  SendResult DeliverToChannel(std::uint64_t channel, SimFrames frames);

  // ---- With fault injection ----

  SimNetworkModel* network_model = nullptr;
  Time now{};
  std::map<std::uint64_t, SimLink> links;  // by channel
  std::map<std::pair<Time, std::uint64_t>, SimPacket> flights;
  std::uint64_t next_flight = 0, delivered = 0;
  std::set<std::uint64_t> down;      // closed links, including those of destroyed channels
  std::size_t held = 0;              // number of held messages over all links
  std::vector<SimPartition> blocks;  // blocked directions
  std::map<std::string, Time, std::less<>> frozen;
  std::set<std::string, std::less<>> dead;

  // Steps of a message: it is launched, lands, and arrives unless lost or held.
  void Launch(std::uint64_t channel, SimLink* link, SimDirection way, SimFrames frames);
  void Land(SimPacket flight);
  void Arrive(std::uint64_t channel, SimLink* link, SimDirection way, SimFrames frames);
  void End(std::uint64_t channel, SimLink* link);
  void ReleaseHeld(std::uint64_t channel, SimLink* link);
  void DropHeld(SimLink* link);
  const SimPartition* Blocked(std::string_view from, std::string_view to) const;
  bool Frozen(std::string_view place) const { return frozen.contains(place); }
  Time SilentSince(const SimLink& link) const;
  // True if no open connection is disturbed.
  bool calm() const { return blocks.empty() && frozen.empty() && held == 0; }
  // Ends connections that were silent for dead_after.
  void EndSilent();
  // Reopens connections whose retry is due and possible.
  void Reconnect();
  bool CanConnect(const SimLink& link, const SimClientEnd& channel) const;
  void Advance(Time now);
  Time next_event() const;
};

}  // namespace troop
