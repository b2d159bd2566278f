#include "net/sim_network.h"

#include <algorithm>
#include <deque>
#include <map>
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

// What all networks of a hub share. Channels and servers register here while they live.
struct Hub {
  std::map<std::string, SimServer*, std::less<>> servers;   // by endpoint
  std::unordered_map<std::uint64_t, SimChannel*> channels;  // by id
  std::uint64_t next_id = 1;

  // The only ways from one side to the other; a policy of delays and losses would act here.
  bool DeliverToServer(const std::string& endpoint, std::uint64_t channel, Frames frames);
  SendResult DeliverToChannel(std::uint64_t channel, Frames frames);
};

class SimChannel final : public CallChannel {
 public:
  SimChannel(std::shared_ptr<Hub> hub, std::shared_ptr<Members> members, std::string endpoint,
             const ChannelOptions& options, const NetworkOptions& network)
      : CallChannel(std::move(endpoint), options, network, hub->next_id++, false),
        hub_(std::move(hub)),
        members_(std::move(members)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->channels[id()] = this;
    members_->channels.Add(this);
  }
  ~SimChannel() override {
    SayGoodbye();
    members_->channels.Remove(this);
    hub_->channels.erase(id());
  }

  bool Pump(Time now) {
    const bool served = hub_->servers.contains(this->endpoint());
    if (served && !attached_) Connected(now);
    if (!served && attached_) Disconnected(now);
    attached_ = served;
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

  // A server is gone: what it sent but we did not read is lost with it.
  void Drop() {
    inbox_.clear();
    attached_ = false;
    Disconnected(Time{});
  }
  std::deque<Frames>& inbox() { return inbox_; }

 protected:
  bool Transmit(const Envelope& envelope, const Message& message) override {
    return hub_->DeliverToServer(endpoint(), id(), Encode(envelope, message));
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Members> members_;
  WireLimits limits_;
  bool attached_ = false;
  std::deque<Frames> inbox_;
};

class SimServer final : public CallServer {
 public:
  SimServer(std::shared_ptr<Hub> hub, std::string endpoint, Service* service,
            const NetworkOptions& network)
      : CallServer(service, network, hub->next_id++, false),
        hub_(std::move(hub)),
        endpoint_(std::move(endpoint)),
        limits_{network.message_bytes_max, network.parts_max} {
    hub_->servers[endpoint_] = this;
  }
  // Off the hub at once: Replies may hold the object longer.
  void Leave() {
    Close();
    inbox_.clear();
    hub_->servers.erase(endpoint_);
    for (const auto& [id, channel] : hub_->channels) {
      if (channel->endpoint() == endpoint_) channel->Drop();
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

  bool Enqueue(std::uint64_t channel, Frames frames) {
    if (waiting_[channel] >= kQueueMax) return false;
    ++waiting_[channel];
    inbox_.emplace_back(channel, std::move(frames));
    return true;
  }
  const std::string& endpoint() const { return endpoint_; }

 protected:
  SendResult Transmit(std::uint64_t channel, const Envelope& envelope,
                      const Message& message) override {
    return hub_->DeliverToChannel(channel, Encode(envelope, message));
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::string endpoint_;
  WireLimits limits_;
  std::deque<std::pair<std::uint64_t, Frames>> inbox_;
  std::unordered_map<std::uint64_t, int> waiting_;  // by channel
};

bool Hub::DeliverToServer(const std::string& endpoint, std::uint64_t channel, Frames frames) {
  const auto server = servers.find(endpoint);
  return server != servers.end() && server->second->Enqueue(channel, std::move(frames));
}

SendResult Hub::DeliverToChannel(std::uint64_t channel, Frames frames) {
  const auto found = channels.find(channel);
  if (found == channels.end()) return SendResult::kGone;
  std::deque<Frames>& inbox = found->second->inbox();
  if (inbox.size() >= kQueueMax) return SendResult::kFull;
  inbox.push_back(std::move(frames));
  return SendResult::kSent;
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

class SimNetwork final : public Network {
 public:
  SimNetwork(std::shared_ptr<Hub> hub, const NetworkOptions& options)
      : hub_(std::move(hub)), options_(options) {}

  Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                           const ChannelOptions& options) override {
    TROOP_RETURN_IF_ERROR(ParseEndpoint(endpoint).status());
    return std::unique_ptr<Channel>(
        std::make_unique<SimChannel>(hub_, members_, std::string(endpoint), options, options_));
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
    auto server = std::make_shared<SimServer>(hub_, std::move(name), service, options_);
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

  void Wait(Time /*now*/, Time /*until*/) override {}
  void Wake() override {}

 private:
  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Members> members_ = std::make_shared<Members>();
  const NetworkOptions options_;
};

class Simulation final : public SimHub {
 public:
  std::unique_ptr<Network> MakeNetwork(const NetworkOptions& options) override {
    return std::make_unique<SimNetwork>(hub_, options);
  }

 private:
  std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
};

}  // namespace

std::unique_ptr<SimHub> MakeSimHub() { return std::make_unique<Simulation>(); }

}  // namespace troop
