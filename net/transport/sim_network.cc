// Implements the simulated Network: channels and servers in memory, over the real wire format.
#include "net/transport/sim_network.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/rpc/call_channel.h"
#include "net/rpc/call_server.h"
#include "net/rpc/stable_list.h"
#include "net/transport/endpoint.h"
#include "net/transport/sim_hub.h"
#include "net/wire/frame.h"

namespace troop {
namespace {

// Encodes a message as ZeroMQ would send it: big parts as separate frames.
SimFrames Encode(const Envelope& envelope, const Message& message) {
  MutableBuffer first(FirstFrameBytes(message));
  EncodeFirstFrame(envelope, message, first.bytes());
  SimFrames frames{std::move(first).Freeze(), {}};
  for (const Buffer& part : message.parts) {
    if (IsBigPart(part.size())) frames.big.push_back(part);
  }
  return frames;
}

class SimChannel;
class SimServer;

// The channels and servers of one network.
struct Members {
  StableList<SimChannel> channels;
  StableList<SimServer> servers;
  // A changed value means work for Pump: messages arrived, or a connection changed.
  std::uint64_t news = 0;
};

// Client side: a CallChannel whose messages enter the hub.
class SimChannel final : public CallChannel, public SimClientEnd {
 public:
  SimChannel(std::shared_ptr<SimHubState> hub, std::shared_ptr<Members> members,
             std::string endpoint, const ChannelOptions& options, const NetworkOptions& network,
             std::string place)
      : CallChannel(std::move(endpoint), options, network, hub->next_id++, false),
        hub_(std::move(hub)),
        members_(std::move(members)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->channels[id()] = this;
    hub_->links[id()] = {.client = std::move(place), .dead_after = network.dead_after};
    // The link starts closed; the hub connects it when both ends may.
    hub_->down.insert(id());
    members_->channels.Add(this);
  }
  ~SimChannel() override {
    SayGoodbye();
    members_->channels.Remove(this);
    hub_->channels.erase(id());
    if (hub_->network_model == nullptr) {
      hub_->links.erase(id());
      hub_->down.erase(id());
    } else {
      hub_->links.at(id()).up = false;
      hub_->down.insert(id());  // stays until its last messages have arrived
    }
  }

  // Only messages that were there at the start: a Pump is bounded even if handlers send.
  bool Pump(Time now) {
    Attach(now);
    bool busy = false;
    for (std::size_t n = inbox_.size(); n > 0; --n) {
      const SimFrames frames = std::move(inbox_.front());
      inbox_.pop_front();
      busy = true;
      // The hub loses messages but never damages them: an invalid one is a bug of the encoder.
      const Result<WireHeader> header = CheckFirstFrame(frames.first.bytes(), limits_);
      TROOP_CHECK(header.ok(), "{}", header.status().message());
      Result<Message> message = DecodeMessage(*header, frames.first.bytes(), frames.big);
      Receive(header->envelope, std::move(message).value(), now);
    }
    return Tick(now) || busy;
  }

  // On the loss of the connection, unread messages are lost with it.
  void Drop() override {
    inbox_.clear();
    attached_ = 0;
    Disconnected(Time{});
    NoteNews();
  }
  void NoteNews() override { ++members_->news; }
  const std::string& served_by() const override { return endpoint(); }
  // A changed connection is news too, because Attach must report it.
  bool has_news() const { return !inbox_.empty() || attached_ != Connection(); }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override {
    return hub_->DeliverToServer(id(), Encode(envelope, message));
  }

 private:
  // Returns the number of the current connection; 0 if not connected.
  std::uint64_t Connection() const {
    // Without a model a connection exists exactly as long as its server.
    if (hub_->network_model == nullptr) return hub_->servers.contains(endpoint()) ? 1 : 0;
    const SimLink& link = hub_->links.at(id());
    return link.up ? link.epoch : 0;
  }
  // Reports changes of the connection to CallChannel.
  void Attach(Time now) {
    const std::uint64_t connection = Connection();
    if (connection == attached_) return;
    // A link that closed and opened again in between reports both changes.
    if (attached_ != 0) Disconnected(now);
    if (connection != 0) Connected(now);
    attached_ = connection;
  }

  std::shared_ptr<SimHubState> hub_;
  std::shared_ptr<Members> members_;
  WireLimits limits_;
  std::uint64_t attached_ = 0;  // last connection reported to CallChannel
};

// Server side: a CallServer whose messages enter the hub.
class SimServer final : public CallServer, public SimServerEnd {
 public:
  SimServer(std::shared_ptr<SimHubState> hub, std::string endpoint, Service* service,
            const NetworkOptions& network, std::string place, std::shared_ptr<Members> members)
      : CallServer(service, network, hub->next_id++),
        hub_(std::move(hub)),
        members_(std::move(members)),
        endpoint_(std::move(endpoint)),
        place_(std::move(place)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->servers[endpoint_] = this;
  }
  // Leaves the hub at once; pending Replies may keep the object alive longer.
  void Leave() {
    Close();
    inbox_.clear();
    hub_->servers.erase(endpoint_);
    for (const auto& [id, channel] : hub_->channels) {
      if (channel->served_by() != endpoint_) continue;
      if (hub_->network_model == nullptr) {
        channel->Drop();
      } else if (SimLink& link = hub_->links.at(id); link.up) {
        hub_->End(id, &link);  // messages that have arrived are still read
      }
    }
  }

  bool Pump(Time now) {
    bool busy = false;
    // A handler may close the server, whose other messages are then not read.
    for (std::size_t n = inbox_.size(); n > 0 && !closed(); --n) {
      auto [channel, frames] = std::move(inbox_.front());
      inbox_.pop_front();
      if (--waiting_[channel] == 0) waiting_.erase(channel);
      busy = true;
      const Result<WireHeader> header = CheckFirstFrame(frames.first.bytes(), limits_);
      TROOP_CHECK(header.ok(), "{}", header.status().message());
      Result<Message> message = DecodeMessage(*header, frames.first.bytes(), std::move(frames.big));
      const Status received = Receive(header->envelope, std::move(message).value(), now);
      // The hub has no foreign clients, so a violation of the call protocol is a bug.
      TROOP_CHECK(received.ok(), "{}", received.message());
    }
    return Tick(now) || busy;
  }

  // Limit per channel, like the high-water mark of a ZeroMQ connection.
  bool Full(std::uint64_t channel) const override {
    const auto found = waiting_.find(channel);
    return found != waiting_.end() && found->second >= kSimQueueMax;
  }
  void Enqueue(std::uint64_t channel, SimFrames frames) override {
    ++waiting_[channel];
    ++members_->news;
    inbox_.emplace_back(channel, std::move(frames));
  }
  bool has_mail() const { return !inbox_.empty(); }
  std::size_t waiting() const override { return inbox_.size(); }
  const std::string& endpoint() const { return endpoint_; }
  const std::string& place() const override { return place_; }

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override {
    return hub_->DeliverToChannel(channel, Encode(envelope, message));
  }

 private:
  std::shared_ptr<SimHubState> hub_;
  std::shared_ptr<Members> members_;
  std::string endpoint_, place_;
  WireLimits limits_;
  std::deque<std::pair<std::uint64_t, SimFrames>> inbox_;
  std::unordered_map<std::uint64_t, int> waiting_;  // by channel
};

// Owns a server; its destruction removes the server from the hub.
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

// The network of one place.
class SimNetworkImpl final : public SimNetwork {
 public:
  SimNetworkImpl(std::shared_ptr<SimHubState> hub, const NetworkOptions& options, std::string place)
      : hub_(std::move(hub)), options_(options), place_(std::move(place)) {
    hub_->dead.erase(place_);  // a new process starts there
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
      // Free ports are assigned in order, so that runs are reproducible.
      constexpr std::uint64_t kFirstFreePort = 49152;  // RFC 6335: dynamic ports
      name = "tcp://" + parsed.address.substr(0, parsed.address.rfind(':') + 1) +
             std::to_string(kFirstFreePort + hub_->next_id++ % (65536 - kFirstFreePort));
    }
    if (hub_->servers.contains(name)) {
      return AlreadyExists("{} is in use by this process; choose another endpoint", name);
    }
    auto server =
        std::make_shared<SimServer>(hub_, std::move(name), service, options_, place_, members_);
    return std::unique_ptr<Listener>(std::make_unique<SimListener>(std::move(server), members_));
  }

  bool Pump(Time now) override {
    bool busy = false;
    members_->servers.ForEach([&](SimServer& server) {
      // A handler may destroy its listener.
      const auto alive = server.shared_from_this();
      busy |= server.Pump(now);
    });
    members_->channels.ForEach([&](SimChannel& channel) { busy |= channel.Pump(now); });
    return busy;
  }

  // Time{} means at once: messages are unread, or a connection has changed.
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

  std::uint64_t news() const override { return members_->news; }

  // Time is virtual: the owner of the hub advances it and pumps, so nothing blocks.
  void Wait(Time /*now*/, Time /*until*/) override {}
  void Wake() override {}

 private:
  std::shared_ptr<SimHubState> hub_;
  std::shared_ptr<Members> members_ = std::make_shared<Members>();
  const NetworkOptions options_;
  const std::string place_;
};

// Implements SimHub on the shared state.
class Simulation final : public SimHub {
 public:
  std::unique_ptr<SimNetwork> MakeNetwork(const NetworkOptions& options,
                                          std::string place) override {
    return std::make_unique<SimNetworkImpl>(hub_, options, std::move(place));
  }
  void SetNetworkModel(SimNetworkModel* network_model) override {
    hub_->network_model = network_model;
  }
  void Advance(Time now) override { hub_->Advance(now); }
  Time next_event() const override { return hub_->next_event(); }
  // A block has a direction. Its messages are held until the block or the connection ends.
  void Block(std::string_view from, std::string_view to, bool blocked) override {
    std::erase_if(hub_->blocks,
                  [&](const SimPartition& b) { return b.from == from && b.to == to; });
    if (blocked) hub_->blocks.push_back({std::string(from), std::string(to), hub_->now});
  }
  // Ends connections in both directions.
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
    // Messages to a killed process can't survive its connections.
    for (auto& [when, flight] : hub_->flights) {
      if (hub_->links.at(flight.channel).server == place) flight.survives = false;
    }
  }
  std::uint64_t delivered() const override { return hub_->delivered; }
  // Messages that are not handled yet: in flight, in an inbox, or held by a block.
  std::size_t waiting() const override {
    std::size_t all = hub_->flights.size();
    for (const auto& [id, channel] : hub_->channels) all += channel->waiting();
    for (const auto& [endpoint, server] : hub_->servers) all += server->waiting();
    for (const auto& [id, link] : hub_->links) all += link.held[0].size() + link.held[1].size();
    return all;
  }

 private:
  std::shared_ptr<SimHubState> hub_ = std::make_shared<SimHubState>();
};

}  // namespace

std::unique_ptr<SimHub> MakeSimHub() { return std::make_unique<Simulation>(); }

}  // namespace troop
