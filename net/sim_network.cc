#include "net/sim_network.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "net/call_channel.h"
#include "net/call_server.h"
#include "net/endpoint.h"
#include "net/roster.h"
#include "net/wire.h"

namespace troop {
namespace {

// What may wait between one client and one server in each direction, as ZeroMQ's high-water mark.
constexpr int kQueueMax = 64;

struct Frames {
  Buffer first;
  std::vector<Buffer> big;
};

Frames Encode(const Envelope& envelope, const Message& message) {
  MutableBuffer first(FirstFrameBytes(message));
  EncodeFirstFrame(envelope, message, first.bytes());
  Frames frames{std::move(first).Freeze(), {}};
  for (const Buffer& part : message.parts) {
    if (IsBigPart(part.size())) frames.big.push_back(part);
  }
  return frames;
}

class SimChannel;
class SimServer;

// Those of one network.
struct Members {
  Roster<SimChannel> channels;
  Roster<SimServer> servers;
};

// A place and when it became silent.
struct Silence {
  std::string from, to;
  Time since{};
};

// One connection, of a channel to whoever serves its endpoint.
struct Link {
  std::string client, server;  // places
  Duration dead_after{};
  bool up = false;
  std::uint64_t epoch = 0;  // grows with each new connection
  Time retry_at{};          // while it is down
  Time last[2] = {};        // arrival of the newest message: to the client, to the server
  std::size_t waiting[2] = {};
  std::deque<Frames> held[2];  // arrived behind a block
};
enum Way { kToClient = 0, kToServer = 1 };

struct Flight {
  std::uint64_t channel = 0, epoch = 0;
  Way way = kToClient;
  bool survives = false;  // the end of its connection
  Frames frames;
};

// What all networks of a hub share. Channels and servers register here while they live.
struct Hub {
  std::map<std::string, SimServer*, std::less<>> servers;  // by endpoint
  std::map<std::uint64_t, SimChannel*> channels;           // by id
  std::uint64_t next_id = 1;

  // The only ways from one side to the other.
  bool DeliverToServer(SimChannel* channel, Frames frames);
  SendResult DeliverToChannel(std::uint64_t channel, Frames frames);

  // ---- Under a weather ----

  SimWeather* weather = nullptr;
  Time now{};
  std::map<std::uint64_t, Link> links;  // by channel
  std::map<std::pair<Time, std::uint64_t>, Flight> flights;
  std::uint64_t next_flight = 0, delivered = 0;
  int links_down = 0;    // or of channels that are gone
  std::size_t held = 0;  // messages, of all links
  std::vector<Silence> blocks;
  std::map<std::string, Time, std::less<>> frozen;
  std::set<std::string, std::less<>> dead;

  void Launch(std::uint64_t channel, Link* link, Way way, Frames frames);
  void Land(Flight flight);
  void Arrive(std::uint64_t channel, Link* link, Way way, Frames frames);
  void End(std::uint64_t channel, Link* link);
  void ReleaseHeld(std::uint64_t channel, Link* link);
  void DropHeld(Link* link);
  const Silence* Blocked(std::string_view from, std::string_view to) const;
  bool Frozen(std::string_view place) const { return frozen.contains(place); }
  Time SilentSince(const Link& link) const;
  // Every connection stands, and nothing hinders it.
  bool calm() const { return blocks.empty() && frozen.empty() && links_down == 0 && held == 0; }
  bool CanConnect(const Link& link, const SimChannel& channel) const;
  void Advance(Time now);
  Time next_event() const;
};

class SimChannel final : public CallChannel {
 public:
  SimChannel(std::shared_ptr<Hub> hub, std::shared_ptr<Members> members, std::string endpoint,
             const ChannelOptions& options, const NetworkOptions& network, std::string place)
      : CallChannel(std::move(endpoint), options, network, hub->next_id++, false),
        hub_(std::move(hub)),
        members_(std::move(members)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->channels[id()] = this;
    hub_->links[id()] = {.client = std::move(place), .dead_after = network.dead_after};
    ++hub_->links_down;
    members_->channels.Add(this);
  }
  ~SimChannel() override {
    SayGoodbye();
    members_->channels.Remove(this);
    hub_->channels.erase(id());
    if (hub_->weather == nullptr) {
      hub_->links.erase(id());
    } else if (Link& link = hub_->links.at(id()); std::exchange(link.up, false)) {
      ++hub_->links_down;  // until its last words have arrived
    }
  }

  bool Pump(Time now) {
    Attach(now);
    bool busy = false;
    for (std::size_t n = inbox_.size(); n > 0; --n) {
      const Frames frames = std::move(inbox_.front());
      inbox_.pop_front();
      busy = true;
      const Result<WireHeader> header = CheckFirstFrame(frames.first.bytes(), limits_);
      TROOP_CHECK(header.ok(), "{}", header.status().message());
      Result<Message> message = DecodeMessage(*header, frames.first.bytes(), frames.big);
      Receive(header->envelope, std::move(message).value(), now);
    }
    return Tick(now) || busy;
  }

  // The connection is gone: what came over it and was not read is lost with it.
  void Drop() {
    inbox_.clear();
    attached_ = 0;
    Disconnected(Time{});
  }
  std::deque<Frames>& inbox() { return inbox_; }
  bool has_news() const { return !inbox_.empty() || attached_ != Connection(); }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override {
    return hub_->DeliverToServer(this, Encode(envelope, message));
  }

 private:
  // 0: none.
  std::uint64_t Connection() const {
    if (hub_->weather == nullptr) return hub_->servers.contains(endpoint()) ? 1 : 0;
    const Link& link = hub_->links.at(id());
    return link.up ? link.epoch : 0;
  }
  void Attach(Time now) {
    const std::uint64_t connection = Connection();
    if (connection == attached_) return;
    if (attached_ != 0) Disconnected(now);
    if (connection != 0) Connected(now);
    attached_ = connection;
  }

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Members> members_;
  WireLimits limits_;
  std::uint64_t attached_ = 0;  // the connection it knows of
  std::deque<Frames> inbox_;
};

class SimServer final : public CallServer {
 public:
  SimServer(std::shared_ptr<Hub> hub, std::string endpoint, Service* service,
            const NetworkOptions& network, std::string place)
      : CallServer(service, network, hub->next_id++, false),
        hub_(std::move(hub)),
        endpoint_(std::move(endpoint)),
        place_(std::move(place)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->servers[endpoint_] = this;
  }
  // Off the hub at once: Replies may hold the object longer.
  void Leave() {
    Close();
    inbox_.clear();
    hub_->servers.erase(endpoint_);
    for (const auto& [id, channel] : hub_->channels) {
      if (channel->endpoint() != endpoint_) continue;
      if (hub_->weather == nullptr) {
        channel->Drop();
      } else if (Link& link = hub_->links.at(id); link.up) {
        hub_->End(id, &link);  // what has arrived is read yet
      }
    }
  }

  bool Pump(Time now) {
    bool busy = false;
    for (std::size_t n = inbox_.size(); n > 0 && !closed(); --n) {
      auto [channel, frames] = std::move(inbox_.front());
      inbox_.pop_front();
      if (--waiting_[channel] == 0) waiting_.erase(channel);
      busy = true;
      const Result<WireHeader> header = CheckFirstFrame(frames.first.bytes(), limits_);
      TROOP_CHECK(header.ok(), "{}", header.status().message());
      Result<Message> message = DecodeMessage(*header, frames.first.bytes(), std::move(frames.big));
      const Status received = Receive(header->envelope, std::move(message).value(), now);
      TROOP_CHECK(received.ok(), "{}", received.message());
    }
    return Tick(now) || busy;
  }

  bool Full(std::uint64_t channel) const {
    const auto found = waiting_.find(channel);
    return found != waiting_.end() && found->second >= kQueueMax;
  }
  void Enqueue(std::uint64_t channel, Frames frames) {
    ++waiting_[channel];
    inbox_.emplace_back(channel, std::move(frames));
  }
  bool has_mail() const { return !inbox_.empty(); }
  std::size_t waiting() const { return inbox_.size(); }
  const std::string& endpoint() const { return endpoint_; }
  const std::string& place() const { return place_; }

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override {
    return hub_->DeliverToChannel(channel, Encode(envelope, message));
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::string endpoint_, place_;
  WireLimits limits_;
  std::deque<std::pair<std::uint64_t, Frames>> inbox_;
  std::unordered_map<std::uint64_t, int> waiting_;  // by channel
};

bool Hub::DeliverToServer(SimChannel* channel, Frames frames) {
  const auto server = servers.find(channel->endpoint());
  if (server == servers.end()) return false;
  if (weather == nullptr) {
    if (server->second->Full(channel->id())) return false;
    server->second->Enqueue(channel->id(), std::move(frames));
    return true;
  }
  Link& link = links.at(channel->id());
  if (!link.up || dead.contains(link.client)) return false;
  if (link.waiting[kToServer] >= kQueueMax || server->second->Full(channel->id())) return false;
  Launch(channel->id(), &link, kToServer, std::move(frames));
  return true;
}

SendResult Hub::DeliverToChannel(std::uint64_t channel, Frames frames) {
  const auto found = channels.find(channel);
  if (found == channels.end()) return SendResult::kGone;
  std::deque<Frames>& inbox = found->second->inbox();
  if (weather == nullptr) {
    if (inbox.size() >= kQueueMax) return SendResult::kFull;
    inbox.push_back(std::move(frames));
    return SendResult::kSent;
  }
  Link& link = links.at(channel);
  if (!link.up || dead.contains(link.server)) return SendResult::kGone;
  if (inbox.size() + link.waiting[kToClient] >= kQueueMax) return SendResult::kFull;
  Launch(channel, &link, kToClient, std::move(frames));
  return SendResult::kSent;
}

// ---- Under a weather ----------------------------------------------------------------------------

void Hub::Launch(std::uint64_t channel, Link* link, Way way, Frames frames) {
  std::size_t bytes = frames.first.size();
  for (const Buffer& part : frames.big) bytes += part.size();
  const bool up = way == kToServer;
  const Duration delay =
      weather->Delay(up ? link->client : link->server, up ? link->server : link->client, bytes);
  link->last[way] = std::max(link->last[way], now + delay);
  ++link->waiting[way];
  flights.emplace(std::pair(link->last[way], next_flight++),
                  Flight{channel, link->epoch, way, false, std::move(frames)});
}

void Hub::Land(Flight flight) {
  Link& link = links.at(flight.channel);
  --link.waiting[flight.way];
  if (flight.epoch != link.epoch && !flight.survives) return;
  const bool up = flight.way == kToServer;
  const std::string_view from = up ? link.client : link.server, to = up ? link.server : link.client;
  // A message that outlived its connection is in the server's kernel already.
  if (!flight.survives && (!link.held[flight.way].empty() || Blocked(from, to) != nullptr)) {
    ++link.waiting[flight.way];
    ++held;
    link.held[flight.way].push_back(std::move(flight.frames));
    return;
  }
  Arrive(flight.channel, &link, flight.way, std::move(flight.frames));
}

void Hub::Arrive(std::uint64_t channel, Link* link, Way way, Frames frames) {
  ++delivered;
  if (way == kToClient) {
    const auto found = channels.find(channel);
    if (found != channels.end()) found->second->inbox().push_back(std::move(frames));
    return;
  }
  for (const auto& [endpoint, server] : servers) {
    if (server->place() == link->server) {
      // Of several servers at one place the one that the channel named.
      const auto found = channels.find(channel);
      if (found != channels.end() && found->second->endpoint() != endpoint) continue;
      server->Enqueue(channel, std::move(frames));
      return;
    }
  }
}

// What was on its way to the client is lost; of what was on its way to the server the first may
// arrive yet.
void Hub::End(std::uint64_t channel, Link* link) {
  link->up = false;
  ++links_down;
  ++link->epoch;
  link->retry_at = now + weather->Reconnect();
  DropHeld(link);
  std::vector<Flight*> to_server;
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
  const std::size_t survivors = reachable ? weather->Survivors(to_server.size()) : 0;
  for (std::size_t i = 0; i < std::min(survivors, to_server.size()); ++i) {
    to_server[i]->survives = true;
  }
}

void Hub::DropHeld(Link* link) {
  for (auto& waiting : link->held) {
    held -= waiting.size();
    waiting.clear();
  }
}

void Hub::ReleaseHeld(std::uint64_t channel, Link* link) {
  for (const Way way : {kToClient, kToServer}) {
    const bool up = way == kToServer;
    const std::string_view from = up ? link->client : link->server;
    const std::string_view to = up ? link->server : link->client;
    if (link->held[way].empty() || Blocked(from, to) != nullptr) continue;
    for (Frames& frames : std::exchange(link->held[way], {})) {
      --link->waiting[way];
      --held;
      Arrive(channel, link, way, std::move(frames));
    }
  }
}

const Silence* Hub::Blocked(std::string_view from, std::string_view to) const {
  for (const Silence& block : blocks) {
    if (block.from == from && block.to == to) return &block;
  }
  return nullptr;
}

// Since when one side hears nothing of the other; kForever: they hear each other.
Time Hub::SilentSince(const Link& link) const {
  Time since = kForever;
  for (const auto& [a, b] :
       {std::pair(&link.client, &link.server), std::pair(&link.server, &link.client)}) {
    if (const Silence* block = Blocked(*a, *b)) since = std::min(since, block->since);
    const auto found = frozen.find(*a);
    if (found != frozen.end()) since = std::min(since, found->second);
  }
  return since;
}

bool Hub::CanConnect(const Link& link, const SimChannel& channel) const {
  const auto server = servers.find(channel.endpoint());
  if (server == servers.end()) return false;
  const std::string& place = server->second->place();
  return !dead.contains(link.client) && !dead.contains(place) && !Frozen(link.client) &&
         !Frozen(place) && Blocked(link.client, place) == nullptr &&
         Blocked(place, link.client) == nullptr;
}

void Hub::Advance(Time to) {
  now = std::max(now, to);
  while (!flights.empty() && flights.begin()->first.first <= now) {
    Flight flight = std::move(flights.begin()->second);
    flights.erase(flights.begin());
    Land(std::move(flight));
  }
  if (calm()) return;
  std::erase_if(links, [this](const auto& entry) {
    const Link& link = entry.second;
    const bool gone = !channels.contains(entry.first) && link.waiting[0] + link.waiting[1] == 0;
    links_down -= gone;
    return gone;
  });
  for (auto& [id, link] : links) {
    const auto channel = channels.find(id);
    if (channel == channels.end()) {  // destroyed: nothing is held for it
      for (const Way way : {kToClient, kToServer}) {
        link.waiting[way] -= std::min(link.waiting[way], link.held[way].size());
      }
      DropHeld(&link);
      continue;
    }
    if (link.up) {
      const Time since = SilentSince(link);
      if (since != kForever && now - since >= link.dead_after) {
        End(id, &link);
      } else {
        ReleaseHeld(id, &link);
      }
    } else if (now >= link.retry_at && CanConnect(link, *channel->second)) {
      --links_down;
      link.server = servers.at(channel->second->endpoint())->place();
      link.up = true;
      ++link.epoch;
    }
  }
}

Time Hub::next_event() const {
  Time next = flights.empty() ? kForever : flights.begin()->first.first;
  if (calm()) return next;
  for (const auto& [id, link] : links) {
    if (link.up) {
      const Time since = SilentSince(link);
      if (since != kForever) next = std::min(next, since + link.dead_after);
      const bool held = !link.held[0].empty() || !link.held[1].empty();
      if (held && since == kForever) next = std::min(next, now);
    } else if (const auto channel = channels.find(id);
               channel != channels.end() && CanConnect(link, *channel->second)) {
      next = std::min(next, std::max(link.retry_at, now));
    }
  }
  return next;
}

class SimListener final : public Listener {
 public:
  SimListener(std::shared_ptr<SimServer> server, std::shared_ptr<Members> members)
      : server_(std::move(server)), members_(std::move(members)) {
    members_->servers.Add(server_.get());
  }
  ~SimListener() override {
    members_->servers.Remove(server_.get());
    server_->Leave();
  }
  const std::string& endpoint() const override { return server_->endpoint(); }

 private:
  std::shared_ptr<SimServer> server_;
  std::shared_ptr<Members> members_;
};

class SimNetworkImpl final : public SimNetwork {
 public:
  SimNetworkImpl(std::shared_ptr<Hub> hub, const NetworkOptions& options, std::string place)
      : hub_(std::move(hub)), options_(options), place_(std::move(place)) {
    hub_->dead.erase(place_);  // a new process there
  }

  Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                           const ChannelOptions& options) override {
    TROOP_RETURN_IF_ERROR(ParseEndpoint(endpoint).status());
    return std::unique_ptr<Channel>(std::make_unique<SimChannel>(
        hub_, members_, std::string(endpoint), options, options_, place_));
  }

  Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) override {
    TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
    std::string name(endpoint);
    if (parsed.transport == Endpoint::kTcp && parsed.port == 0) {
      constexpr std::uint64_t kFirstFreePort = 49152;  // RFC 6335: dynamic ports
      name = "tcp://" + parsed.address.substr(0, parsed.address.rfind(':') + 1) +
             std::to_string(kFirstFreePort + hub_->next_id++ % (65536 - kFirstFreePort));
    }
    if (hub_->servers.contains(name)) {
      return AlreadyExists("{} is in use by this process; choose another endpoint", name);
    }
    auto server = std::make_shared<SimServer>(hub_, std::move(name), service, options_, place_);
    return std::unique_ptr<Listener>(std::make_unique<SimListener>(std::move(server), members_));
  }

  bool Pump(Time now) override {
    bool busy = false;
    members_->servers.ForEach([&](SimServer& server) {
      const auto alive = server.shared_from_this();
      busy |= server.Pump(now);
    });
    members_->channels.ForEach([&](SimChannel& channel) { busy |= channel.Pump(now); });
    return busy;
  }

  Time next_pump() const override {
    Time next = kForever;
    members_->servers.ForEach([&](const SimServer& server) {
      next = std::min(next, server.has_mail() ? Time{} : server.next_tick());
    });
    members_->channels.ForEach([&](const SimChannel& channel) {
      next = std::min(next, channel.has_news() ? Time{} : channel.next_tick());
    });
    return next;
  }

  void Wait(Time /*now*/, Time /*until*/) override {}
  void Wake() override {}

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Members> members_ = std::make_shared<Members>();
  const NetworkOptions options_;
  const std::string place_;
};

class Simulation final : public SimHub {
 public:
  std::unique_ptr<SimNetwork> MakeNetwork(const NetworkOptions& options,
                                          std::string place) override {
    return std::make_unique<SimNetworkImpl>(hub_, options, std::move(place));
  }
  void SetWeather(SimWeather* weather) override { hub_->weather = weather; }
  void Advance(Time now) override { hub_->Advance(now); }
  Time next_event() const override { return hub_->next_event(); }
  void Block(std::string_view from, std::string_view to, bool blocked) override {
    std::erase_if(hub_->blocks, [&](const Silence& b) { return b.from == from && b.to == to; });
    if (blocked) hub_->blocks.push_back({std::string(from), std::string(to), hub_->now});
  }
  void Break(std::string_view a, std::string_view b) override {
    for (auto& [id, link] : hub_->links) {
      const bool between =
          (link.client == a && link.server == b) || (link.client == b && link.server == a);
      if (link.up && between) hub_->End(id, &link);
    }
  }
  void Freeze(std::string_view place, bool is) override {
    if (is) {
      hub_->frozen.emplace(place, hub_->now);
    } else if (const auto found = hub_->frozen.find(place); found != hub_->frozen.end()) {
      hub_->frozen.erase(found);
    }
  }
  void Kill(std::string_view place) override {
    hub_->dead.emplace(place);
    Freeze(place, false);
    for (auto& [id, link] : hub_->links) {
      if (link.up && (link.client == place || link.server == place)) hub_->End(id, &link);
    }
    for (auto& [when, flight] : hub_->flights) {
      if (hub_->links.at(flight.channel).server == place) flight.survives = false;
    }
  }
  std::uint64_t delivered() const override { return hub_->delivered; }
  std::size_t waiting() const override {
    std::size_t all = hub_->flights.size();
    for (const auto& [id, channel] : hub_->channels) all += channel->inbox().size();
    for (const auto& [endpoint, server] : hub_->servers) all += server->waiting();
    for (const auto& [id, link] : hub_->links) all += link.held[0].size() + link.held[1].size();
    return all;
  }

 private:
  std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
};

}  // namespace

std::unique_ptr<SimHub> MakeSimHub() { return std::make_unique<Simulation>(); }

}  // namespace troop
