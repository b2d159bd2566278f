// The contract of Network, for every transport.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "net/transport/host_name.h"
#include "net/transport/sim_network.h"
#include "tests/contracts/network_contract.h"
#include "tests/core/temp_folder.h"

namespace troop {
namespace {

class ZmqWorld : public NetworkWorld {
 public:
  std::unique_ptr<Network> MakeNetwork(const NetworkOptions& options) override {
    auto network = MakeZmqNetwork(options);
    EXPECT_TRUE(network.ok()) << network.status().ToString();
    return std::move(network).value();
  }
  Time Now() override { return SystemClock().Now(); }
  void Rest(Network& network) override { network.Wait(Now(), Now() + Milliseconds(1)); }
};

class IpcWorld final : public ZmqWorld {
 public:
  std::string Endpoint() override {
    return "ipc://" + folder_.path() + "/" + std::to_string(next_++);
  }

 private:
  TempFolder folder_;
  int next_ = 0;
};

class TcpWorld final : public ZmqWorld {
 public:
  std::string Endpoint() override { return "tcp://127.0.0.1:0"; }
};

class InprocWorld final : public ZmqWorld {
 public:
  std::string Endpoint() override { return "inproc://test-" + std::to_string(next_++); }
  bool shares_big_parts() const override { return true; }

 private:
  int next_ = 0;
};

class SimWorld final : public NetworkWorld {
 public:
  std::unique_ptr<Network> MakeNetwork(const NetworkOptions& options) override {
    return hub_->MakeNetwork(options);
  }
  std::string Endpoint() override { return "inproc://test-" + std::to_string(next_++); }
  Time Now() override { return clock_.Now(); }
  void Rest(Network&) override { clock_.Advance(Milliseconds(1)); }
  bool shares_big_parts() const override { return true; }

 private:
  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  ManualClock clock_;
  int next_ = 0;
};

template <class World>
std::unique_ptr<NetworkWorld> MakeWorld() {
  return std::make_unique<World>();
}

INSTANTIATE_TEST_SUITE_P(ZmqIpc, NetworkContract, testing::Values(&MakeWorld<IpcWorld>));
INSTANTIATE_TEST_SUITE_P(ZmqTcp, NetworkContract, testing::Values(&MakeWorld<TcpWorld>));
INSTANTIATE_TEST_SUITE_P(ZmqInproc, NetworkContract, testing::Values(&MakeWorld<InprocWorld>));
INSTANTIATE_TEST_SUITE_P(Simulated, NetworkContract, testing::Values(&MakeWorld<SimWorld>));

// Counts of this process's connected TCP sockets: all, and those with a fixed send buffer size.
struct Connections {
  int all = 0, fixed = 0;
  bool known = true;  // the kernel supports SO_BUF_LOCK
};
Connections CountConnections() {
  constexpr int kSndbufLock = 1, kSoBufLock = 72;  // as Linux 5.14 has them
  Connections found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) continue;
    ++found.all;
    int locked = 0;
    size = sizeof locked;
    found.known &= getsockopt(fd, SOL_SOCKET, kSoBufLock, &locked, &size) == 0;
    found.fixed += (locked & kSndbufLock) != 0 ? 1 : 0;
  }
  return found;
}

// The kernel's room grows with what a long link holds; within a machine it only leaves the caches.
TEST(TcpNetworkTest, LimitsSendBufferOnlyWithinMachine) {
  for (const bool all_interfaces : {false, true}) {
    EchoService service;
    TcpWorld world;
    const auto network = world.MakeNetwork({.insecure = all_interfaces});
    const auto listener =
        network->Listen(all_interfaces ? "tcp://0.0.0.0:0" : "tcp://127.0.0.1:0", &service);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    const std::string& bound = (*listener)->endpoint();
    const auto channel =
        network->Connect("tcp://127.0.0.1" + bound.substr(bound.rfind(':')), ActorOptions());
    ASSERT_TRUE(channel.ok()) << channel.status().ToString();
    for (const Time end = world.Now() + Seconds(20);
         (*channel)->peer() != PeerState::kUp && world.Now() < end;) {
      if (!network->Pump(world.Now())) world.Rest(*network);
    }
    ASSERT_EQ((*channel)->peer(), PeerState::kUp);
    const Connections found = CountConnections();
    if (!found.known) GTEST_SKIP() << "needs Linux 5.14";
    EXPECT_EQ(found.all, 2);
    EXPECT_EQ(found.fixed, all_interfaces ? 1 : 2)
        << "a listener on all interfaces must not fix the size";
  }
}

bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in6 here{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const bool has = bind(fd, reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0;
  close(fd);
  return has;
}

// "No such device", for a name as for an IPv6 address.
TEST(TcpNetworkTest, ListensAtHostNamesAndBothAddressFamilies) {
  std::vector<std::string> hosts{"127.0.0.1", "localhost"};
  if (HasIpv6()) hosts.emplace_back("[::1]");
  for (const std::string& host : hosts) {
    EchoService service;
    TcpWorld world;
    const auto network = world.MakeNetwork({});
    const auto listener = network->Listen("tcp://" + host + ":0", &service);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    const std::string& bound = (*listener)->endpoint();
    for (const std::string& to : {bound, "tcp://" + host + bound.substr(bound.rfind(':'))}) {
      const auto channel = network->Connect(to, ActorOptions());
      ASSERT_TRUE(channel.ok()) << channel.status().ToString();
      for (const Time end = world.Now() + Seconds(20);
           (*channel)->peer() != PeerState::kUp && world.Now() < end;) {
        if (!network->Pump(world.Now())) world.Rest(*network);
      }
      EXPECT_EQ((*channel)->peer(), PeerState::kUp) << to;
    }
  }
}

TEST(TcpNetworkTest, ListenErrorNamesFailedHost) {
  EchoService service;
  const auto network = TcpWorld().MakeNetwork({.insecure = true});
  for (const auto& [host, why] :
       {std::pair("nowhere.invalid", "can't resolve nowhere.invalid"),
        std::pair("192.0.2.1", "192.0.2.1: not an address of this machine"),
        std::pair("::1", "an IPv6 address requires brackets: [::1]:0")}) {
    const auto listener = network->Listen(fmt::format("tcp://{}:0", host), &service);
    ASSERT_FALSE(listener.ok()) << host;
    EXPECT_EQ(listener.status().code(), Code::kInvalidArgument) << host;
    EXPECT_NE(listener.status().message().find(why), std::string::npos)
        << listener.status().message();
  }
}

TEST(HostNameTest, KeepsHostNameUnlessItIsIpv6Only) {
  EXPECT_EQ(*ResolveAddresses(*ParseEndpoint("tcp://127.0.0.1:5")),
            std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(*ResolveAddresses(*ParseEndpoint("tcp://[::1]:5")), std::vector<std::string>{"[::1]"});
  EXPECT_EQ(*ResolveAddresses(*ParseEndpoint("tcp://*:5")), std::vector<std::string>{"*"});
  EXPECT_EQ(ResolveAddresses(*ParseEndpoint("tcp://localhost:5"))->front(), "127.0.0.1");
  for (const char* kept : {"tcp://localhost:5", "tcp://nowhere.invalid:5", "ipc:///a",
                           "tcp://127.0.0.1:5#aa", "tcp://[::1]:5"}) {
    EXPECT_EQ(ReplaceIpv6OnlyHost(kept), kept);
  }
}

}  // namespace
}  // namespace troop
