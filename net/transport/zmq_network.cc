// Implements Network over ZeroMQ: the channels and servers of one thread, and the wait for them.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "net/network.h"
#include "net/rpc/stable_list.h"
#include "net/transport/endpoint.h"
#include "net/transport/zmq_channel.h"
#include "net/transport/zmq_server.h"

namespace troop {
namespace {

// Display name of an endpoint, without the key after #.
std::string NameOf(std::string_view endpoint) {
  return std::string(endpoint.starts_with("tcp://") ? endpoint.substr(0, endpoint.find('#'))
                                                    : endpoint);
}

// Owns a server; its destruction frees the endpoint.
class ZmqListener final : public Listener {
 public:
  ZmqListener(std::shared_ptr<ZmqServer> server, std::shared_ptr<StableList<ZmqServer>> servers)
      : server_(std::move(server)), servers_(std::move(servers)) {
    servers_->Add(server_.get());
  }
  ~ZmqListener() override {
    servers_->Remove(server_.get());
    server_->Leave();
  }
  const std::string& endpoint() const override { return server_->endpoint(); }

 private:
  std::shared_ptr<ZmqServer> server_;
  std::shared_ptr<StableList<ZmqServer>> servers_;
};

// All sockets of a thread, with one poll(2) over their descriptors.
class ZmqNetwork final : public Network {
 public:
  ZmqNetwork(std::shared_ptr<ZmqContext> context, const NetworkOptions& options, int wake_fd)
      : context_(std::move(context)), options_(options), wake_fd_(wake_fd) {}
  ~ZmqNetwork() override { close(wake_fd_); }

  Result<std::unique_ptr<Channel>> Connect(std::string_view endpoint,
                                           const ChannelOptions& options) override;
  Result<std::unique_ptr<Listener>> Listen(std::string_view endpoint, Service* service) override;
  Status Redirect(std::string_view from, std::string_view to) override;
  bool Pump(Time now) override;
  void Wait(Time now, Time until) override;
  void Watch(int fd) override { watched_fd_ = fd; }
  void Wake() override {
    const std::uint64_t one = 1;
    // fails only if already awake
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  }

 private:
  // Polls the descriptors for at most `limit`.
  void Poll(Duration limit);

  std::shared_ptr<ZmqContext> context_;
  std::shared_ptr<StableList<ZmqChannel>> channels_ = std::make_shared<StableList<ZmqChannel>>();
  std::shared_ptr<StableList<ZmqServer>> servers_ = std::make_shared<StableList<ZmqServer>>();
  const NetworkOptions options_;
  const int wake_fd_;
  int watched_fd_ = -1;
  Time now_{};
  std::vector<pollfd> polls_;
};

// Rejects configurations whose handshake could never succeed.
Result<std::unique_ptr<Channel>> ZmqNetwork::Connect(std::string_view endpoint,
                                                     const ChannelOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  if (parsed.transport == Endpoint::kTcp && parsed.port == 0) {
    return InvalidArgument("can't connect to {}: port 0 is only for listening", endpoint);
  }
  if (parsed.key && options_.keys == nullptr) {
    return FailedPrecondition("{} requires a key; give one (--key FILE, or security.keys)",
                              endpoint.substr(0, endpoint.find('#')));
  }
  if (parsed.transport == Endpoint::kTcp && options_.keys != nullptr && !parsed.key &&
      options_.keys->coordinators.empty()) {
    return InvalidArgument(
        "{} contains no coordinator key, so the server at {} can't be authenticated",
        options_.keys->file, endpoint);
  }
  auto channel = std::make_unique<ZmqChannel>(
      ZmqChannel::Owner{.context = context_, .list = channels_, .options = options_}, parsed,
      NameOf(endpoint), options);
  TROOP_RETURN_IF_ERROR(channel->Open(now_));
  return std::unique_ptr<Channel>(std::move(channel));
}

// Compares names without keys. A channel keeps its id; only its socket is replaced.
Status ZmqNetwork::Redirect(std::string_view from, std::string_view to) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(to));
  const std::string before = NameOf(from), after = NameOf(to);
  if (before == after) return Status::Ok();
  channels_->ForEach([&](ZmqChannel& channel) {
    if (channel.endpoint() == before) channel.MoveTo(parsed, after, now_);
  });
  return Status::Ok();
}

Result<std::unique_ptr<Listener>> ZmqNetwork::Listen(std::string_view endpoint, Service* service) {
  TROOP_ASSIGN_OR_RETURN(const Endpoint parsed, ParseEndpoint(endpoint));
  TROOP_RETURN_IF_ERROR(CheckMayListen(endpoint, options_.keys != nullptr, options_.insecure));
  auto server = std::make_shared<ZmqServer>(service, options_, parsed);
  TROOP_RETURN_IF_ERROR(server->Open(context_, parsed, options_));
  return std::unique_ptr<Listener>(std::make_unique<ZmqListener>(std::move(server), servers_));
}

bool ZmqNetwork::Pump(Time now) {
  now_ = now;
  Poll(Duration::zero());
  bool busy = false;
  servers_->ForEach([&](ZmqServer& server) {
    // A handler may destroy its listener.
    const auto alive = server.shared_from_this();
    busy |= server.Pump(now);
  });
  channels_->ForEach([&](ZmqChannel& channel) { busy |= channel.Pump(now); });
  return busy;
}

// Messages that are already queued cause no new event of a descriptor, so they are checked first.
void ZmqNetwork::Wait(Time now, Time until) {
  bool ready = false;
  servers_->ForEach([&](ZmqServer& server) {
    until = std::min(until, server.next_pump());
    ready |= server.socket().Readable();
  });
  channels_->ForEach([&](ZmqChannel& channel) {
    until = std::min(until, channel.next_tick());
    ready |= channel.socket().Readable();
  });
  if (!ready && until > now) Poll(until - now);
}

void ZmqNetwork::Poll(Duration limit) {
  // poll(2) ignores negative descriptors.
  polls_ = {{wake_fd_, POLLIN, 0}, {watched_fd_, POLLIN, 0}};
  servers_->ForEach([&](ZmqServer& server) { server.socket().AddPolls(polls_); });
  channels_->ForEach([&](ZmqChannel& channel) { channel.socket().AddPolls(polls_); });
  constexpr Duration kLongest = Seconds(3600);
  const auto ns = std::min(limit, kLongest).count();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  if (ppoll(polls_.data(), polls_.size(), &timeout, nullptr) <= 0) return;
  const pollfd* results = polls_.data();
  // The read resets the counter, so several Wakes count as one.
  if ((results++)->revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(wake_fd_, &count, sizeof count);
  }
  ++results;  // the watched descriptor is read by its owner
  // In the order of AddPolls above.
  servers_->ForEach([&](ZmqServer& server) { server.socket().TakePolls(results); });
  channels_->ForEach([&](ZmqChannel& channel) { channel.socket().TakePolls(results); });
}

}  // namespace

Result<std::unique_ptr<Network>> MakeZmqNetwork(const NetworkOptions& options) {
  TROOP_ASSIGN_OR_RETURN(std::shared_ptr<ZmqContext> context, ZmqContext::Get());
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0)
    return ResourceExhausted("can't create an event descriptor: {}", std::strerror(errno));
  return std::unique_ptr<Network>(
      std::make_unique<ZmqNetwork>(std::move(context), options, wake_fd));
}

}  // namespace troop
