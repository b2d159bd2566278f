#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/call_server.h"
#include "net/sim_network.h"

namespace troop {

// What lies between the ends of a simulated network: queues, and under a weather connections that
// stand, end and begin. Inside of net/sim_network.h.

// What may wait between one client and one server in each direction, as ZeroMQ's high-water mark.
inline constexpr int kSimQueueMax = 64;

struct SimFrames {
  Buffer first;
  std::vector<Buffer> big;
};

// What the hub knows of a channel and of a server.
class SimClientEnd {
 public:
  virtual ~SimClientEnd() = default;
  virtual const std::string& served_by() const = 0;  // endpoint
  virtual void Drop() = 0;      // its connection ended, and what it has not read is lost
  virtual void NoteNews() = 0;  // something came, or its connection stands or ends by now
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

// A place and when it became silent.
struct SimSilence {
  std::string from, to;
  Time since{};
};

// One connection, of a channel to whoever serves its endpoint.
struct SimLink {
  std::string client, server;  // places
  Duration dead_after{};
  bool up = false;
  std::uint64_t epoch = 0;  // grows with each new connection
  Time retry_at{};          // while it is down
  Time last[2] = {};        // arrival of the newest message: to the client, to the server
  std::size_t waiting[2] = {};
  std::deque<SimFrames> held[2];  // arrived behind a block
};
enum SimWay { kToClient = 0, kToServer = 1 };

struct SimFlight {
  std::uint64_t channel = 0, epoch = 0;
  SimWay way = kToClient;
  bool survives = false;  // the end of its connection
  SimFrames frames;
};

// What all networks of a hub share. Channels and servers register here while they live.
struct SimHubState {
  std::map<std::string, SimServerEnd*, std::less<>> servers;  // by endpoint
  std::map<std::uint64_t, SimClientEnd*> channels;            // by id
  std::uint64_t next_id = 1;

  // The only ways from one side to the other.
  bool DeliverToServer(std::uint64_t channel, SimFrames frames);
  SendResult DeliverToChannel(std::uint64_t channel, SimFrames frames);

  // ---- Under a weather ----

  SimWeather* weather = nullptr;
  Time now{};
  std::map<std::uint64_t, SimLink> links;  // by channel
  std::map<std::pair<Time, std::uint64_t>, SimFlight> flights;
  std::uint64_t next_flight = 0, delivered = 0;
  std::set<std::uint64_t> down;    // links, also of channels that are gone
  std::size_t held = 0;            // messages, of all links
  std::vector<SimSilence> blocks;  // directions in which nothing gets through
  std::map<std::string, Time, std::less<>> frozen;
  std::set<std::string, std::less<>> dead;

  void Launch(std::uint64_t channel, SimLink* link, SimWay way, SimFrames frames);
  void Land(SimFlight flight);
  void Arrive(std::uint64_t channel, SimLink* link, SimWay way, SimFrames frames);
  void End(std::uint64_t channel, SimLink* link);
  void ReleaseHeld(std::uint64_t channel, SimLink* link);
  void DropHeld(SimLink* link);
  const SimSilence* Blocked(std::string_view from, std::string_view to) const;
  bool Frozen(std::string_view place) const { return frozen.contains(place); }
  Time SilentSince(const SimLink& link) const;
  // Nothing hinders the connections that stand.
  bool calm() const { return blocks.empty() && frozen.empty() && held == 0; }
  void EndSilent();
  void Reconnect();
  bool CanConnect(const SimLink& link, const SimClientEnd& channel) const;
  void Advance(Time now);
  Time next_event() const;
};

}  // namespace troop
