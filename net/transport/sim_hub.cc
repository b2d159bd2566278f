// Implements the message queues and simulated connections of SimHub.
#include "net/transport/sim_hub.h"

#include <algorithm>

namespace troop {

// Without fault injection messages enter the inbox of the other side directly.
bool SimHubState::DeliverToServer(std::uint64_t channel, SimFrames frames) {
  const auto server = servers.find(channels.at(channel)->served_by());
  if (server == servers.end()) return false;
  if (network_model == nullptr) {
    if (server->second->Full(channel)) return false;
    server->second->Enqueue(channel, std::move(frames));
    return true;
  }
  SimLink& link = links.at(channel);
  if (!link.up || dead.contains(link.client)) return false;
  if (link.waiting[kToServer] >= kSimQueueMax || server->second->Full(channel)) return false;
  Launch(channel, &link, kToServer, std::move(frames));
  return true;
}

SendResult SimHubState::DeliverToChannel(std::uint64_t channel, SimFrames frames) {
  const auto found = channels.find(channel);
  if (found == channels.end()) return SendResult::kGone;
  SimClientEnd& client = *found->second;
  if (network_model == nullptr) {
    if (client.waiting() >= kSimQueueMax) return SendResult::kFull;
    client.Enqueue(std::move(frames));
    return SendResult::kSent;
  }
  SimLink& link = links.at(channel);
  if (!link.up || dead.contains(link.server)) return SendResult::kGone;
  if (client.waiting() + link.waiting[kToClient] >= kSimQueueMax) return SendResult::kFull;
  Launch(channel, &link, kToClient, std::move(frames));
  return SendResult::kSent;
}

// ---- With fault injection (SimNetworkModel)
// ----------------------------------------------------------

// Puts a message in flight; its arrival is not before that of earlier ones.
void SimHubState::Launch(std::uint64_t channel, SimLink* link, SimDirection way, SimFrames frames) {
  std::size_t bytes = frames.first.size();
  for (const Buffer& part : frames.big) bytes += part.size();
  const bool up = way == kToServer;
  const Duration delay = network_model->Delay(up ? link->client : link->server,
                                              up ? link->server : link->client, bytes);
  link->last[way] = std::max(link->last[way], now + delay);
  ++link->waiting[way];
  flights.emplace(std::pair(link->last[way], next_flight++),
                  SimPacket{channel, link->epoch, way, false, std::move(frames)});
}

// Ends a flight: the message is lost with its connection, held by a block, or arrives.
void SimHubState::Land(SimPacket flight) {
  SimLink& link = links.at(flight.channel);
  --link.waiting[flight.way];
  if (flight.epoch != link.epoch && !flight.survives) return;
  const bool up = flight.way == kToServer;
  const std::string_view from = up ? link.client : link.server, to = up ? link.server : link.client;
  // A message that survived its connection has already reached the kernel of the server.
  if (!flight.survives && (!link.held[flight.way].empty() || Blocked(from, to) != nullptr)) {
    ++link.waiting[flight.way];
    ++held;
    link.held[flight.way].push_back(std::move(flight.frames));
    return;
  }
  Arrive(flight.channel, &link, flight.way, std::move(flight.frames));
}

void SimHubState::Arrive(std::uint64_t channel, SimLink* link, SimDirection way, SimFrames frames) {
  ++delivered;
  if (way == kToClient) {
    const auto found = channels.find(channel);
    if (found != channels.end()) found->second->Enqueue(std::move(frames));
    return;
  }
  for (const auto& [endpoint, server] : servers) {
    if (server->place() == link->server) {
      // If several servers share a place, only the one named by the channel receives the message.
      const auto found = channels.find(channel);
      if (found != channels.end() && found->second->served_by() != endpoint) continue;
      server->Enqueue(channel, std::move(frames));
      return;
    }
  }
}

// Ends a connection. Messages in flight to the client are lost; of those in flight to the server,
// the first few may still arrive (SimNetworkModel::Survivors).
void SimHubState::End(std::uint64_t channel, SimLink* link) {
  link->up = false;
  if (const auto found = channels.find(channel); found != channels.end()) found->second->NoteNews();
  down.insert(channel);
  // Messages in flight with an older epoch are dropped on arrival, unless they survive.
  ++link->epoch;
  link->retry_at = now + network_model->Reconnect();
  DropHeld(link);
  std::vector<SimPacket*> to_server;
  std::size_t kept[2] = {};
  for (auto& [when, flight] : flights) {
    if (flight.channel != channel) continue;
    ++kept[flight.way];
    if (flight.way == kToServer && !flight.survives && flight.epoch + 1 == link->epoch) {
      to_server.push_back(&flight);
    }
  }
  link->waiting[kToClient] = kept[kToClient];
  link->waiting[kToServer] = kept[kToServer];
  const bool reachable =
      !dead.contains(link->server) && Blocked(link->client, link->server) == nullptr;
  // A blocked or dead server receives nothing more.
  const std::size_t survivors = reachable ? network_model->Survivors(to_server.size()) : 0;
  for (std::size_t i = 0; i < std::min(survivors, to_server.size()); ++i) {
    to_server[i]->survives = true;
  }
}

void SimHubState::DropHeld(SimLink* link) {
  for (auto& waiting : link->held) {
    held -= waiting.size();
    waiting.clear();
  }
}

// Delivers held messages of directions that are no longer blocked.
void SimHubState::ReleaseHeld(std::uint64_t channel, SimLink* link) {
  for (const SimDirection way : {kToClient, kToServer}) {
    const bool up = way == kToServer;
    const std::string_view from = up ? link->client : link->server;
    const std::string_view to = up ? link->server : link->client;
    if (link->held[way].empty() || Blocked(from, to) != nullptr) continue;
    for (SimFrames& frames : std::exchange(link->held[way], {})) {
      --link->waiting[way];
      --held;
      Arrive(channel, link, way, std::move(frames));
    }
  }
}

const SimPartition* SimHubState::Blocked(std::string_view from, std::string_view to) const {
  for (const SimPartition& block : blocks) {
    if (block.from == from && block.to == to) return &block;
  }
  return nullptr;
}

// Returns the time since which one side has received nothing from the other; kForever if both
// receive.
Time SimHubState::SilentSince(const SimLink& link) const {
  Time since = kForever;
  for (const auto& [a, b] :
       {std::pair(&link.client, &link.server), std::pair(&link.server, &link.client)}) {
    if (const SimPartition* block = Blocked(*a, *b)) since = std::min(since, block->since);
    const auto found = frozen.find(*a);
    if (found != frozen.end()) since = std::min(since, found->second);
  }
  return since;
}

// A connection needs a server, two live and running processes, and no block in either direction.
bool SimHubState::CanConnect(const SimLink& link, const SimClientEnd& channel) const {
  const auto server = servers.find(channel.served_by());
  if (server == servers.end()) return false;
  const std::string& place = server->second->place();
  return !dead.contains(link.client) && !dead.contains(place) && !Frozen(link.client) &&
         !Frozen(place) && Blocked(link.client, place) == nullptr &&
         Blocked(place, link.client) == nullptr;
}

// Order: messages that are due, then ends of silent connections, then new connections.
void SimHubState::Advance(Time to) {
  now = std::max(now, to);
  while (!flights.empty() && flights.begin()->first.first <= now) {
    SimPacket flight = std::move(flights.begin()->second);
    flights.erase(flights.begin());
    Land(std::move(flight));
  }
  if (!calm()) EndSilent();
  if (!down.empty()) Reconnect();
}

void SimHubState::EndSilent() {
  for (auto& [id, link] : links) {
    if (!link.up) continue;
    const Time since = SilentSince(link);
    if (since != kForever && now - since >= link.dead_after) {
      End(id, &link);
    } else {
      ReleaseHeld(id, &link);
    }
  }
}

// Reconnects the links that can, and removes links of destroyed channels once nothing of theirs is
// in flight.
void SimHubState::Reconnect() {
  for (auto it = down.begin(); it != down.end();) {
    SimLink& link = links.at(*it);
    const auto channel = channels.find(*it);
    bool still = true;
    if (channel == channels.end()) {
      for (const SimDirection way : {kToClient, kToServer}) {
        link.waiting[way] -= std::min(link.waiting[way], link.held[way].size());
      }
      DropHeld(&link);
      still = link.waiting[kToClient] + link.waiting[kToServer] > 0;
      if (!still) links.erase(*it);
    } else if (now >= link.retry_at && CanConnect(link, *channel->second)) {
      link.server = servers.at(channel->second->served_by())->place();
      link.up = true;
      ++link.epoch;
      channel->second->NoteNews();
      still = false;
    }
    it = still ? std::next(it) : down.erase(it);
  }
}

// The earliest arrival, reconnection, end of a silent connection, or release of held messages.
Time SimHubState::next_event() const {
  Time next = flights.empty() ? kForever : flights.begin()->first.first;
  for (const std::uint64_t id : down) {
    const SimLink& link = links.at(id);
    if (const auto channel = channels.find(id);
        channel != channels.end() && CanConnect(link, *channel->second)) {
      next = std::min(next, std::max(link.retry_at, now));
    }
  }
  if (calm()) return next;
  for (const auto& [id, link] : links) {
    if (!link.up) continue;
    const Time since = SilentSince(link);
    if (since != kForever) next = std::min(next, since + link.dead_after);
    const bool held = !link.held[0].empty() || !link.held[1].empty();
    if (held && since == kForever) next = std::min(next, now);
  }
  return next;
}

}  // namespace troop
