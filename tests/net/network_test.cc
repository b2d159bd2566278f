// The contract of Network, for every transport.
#include "net/sim_network.h"
#include "tests/contracts/network_contract.h"
#include "tests/net/temp_folder.h"

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

}  // namespace
}  // namespace troop
