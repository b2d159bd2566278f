// One learner and one parameter shard, each in its process, on this machine: pushes a gradient and
// pulls the parameters, 100 MB at once, or a thousand tiny tensors; and once more over TCP, as
// between machines, but on the loopback interface.
//
// paramserver_bench [--quick] [--only CASE]
//
// Prints one JSON object per case; paramserver_peers.py runs the same with another program. The
// shard subtracts each gradient from its parameters (SGD with learning rate 1), the peer adds it.
// `check`: the absolute first parameters after three gradients, whose element i is (i % 8 + 1) / 8.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/check.h"
#include "core/base/malloc_tuning.h"
#include "core/base/time.h"
#include "core/storage/json.h"
#include "paramserver/service/shard_client.h"
#include "paramserver/service/shard_server.h"

namespace troop {
namespace {

constexpr int kChecked = 8;
constexpr int kCheckedPushes = 3;

struct Case {
  const char* name;
  std::int64_t tensors, elements;  // elements per tensor
  int rounds;                      // per measured value
  bool tcp = false;
};
constexpr Case kCases[] = {
    {"push-pull-100MB", 1, 25'000'000, 1},
    {"push-pull-1000-tiny", 1000, 16, 20},
    {"push-pull-100MB-tcp", 1, 25'000'000, 1, true},
    {"push-pull-1000-tiny-tcp", 1000, 16, 20, true},
};

Time Now() { return SystemClock().Now(); }
void Must(const Status& status) { TROOP_CHECK(status.ok(), "{}", status.ToString()); }

ShardMap MapOf(const Case& c) {
  std::vector<ParamSpec> params;
  for (std::int64_t i = 0; i < c.tensors; ++i) {
    params.push_back({.name = fmt::format("t{}.w", i), .offset = i * c.elements});
  }
  return *ShardMap::Make(Sharding::kLayer, params, c.tensors * c.elements, 1);
}

// Serves until killed.
[[noreturn]] void Serve(const Case& c, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const ShardMap map = MapOf(c);
  ParameterShard::Options options{
      .ranges = map.RangesOf(0), .sync = {.mode = SyncMode::kAsync}, .versions_kept = 1};
  options.optimizer.type = OptimizerType::kSgd;
  auto shard = ParameterShard::Make(options, std::vector<float>(std::size_t(map.parameters())));
  Must(shard.status());
  ShardServer server(std::move(*shard), {});
  const auto network = *MakeZmqNetwork();
  const std::string socket = fmt::format("ipc:///tmp/troop-bench-{}", getpid());
  const auto listener = *network->Listen(c.tcp ? "tcp://127.0.0.1:0" : socket, &server);
  char endpoint[64] = {};
  std::strncpy(endpoint, listener->endpoint().c_str(), sizeof endpoint - 1);
  TROOP_CHECK(send(fd, endpoint, sizeof endpoint, MSG_NOSIGNAL) == sizeof endpoint, "no parent");
  for (;;) {
    const Time now = Now();
    const bool busy = network->Pump(now);
    server.Tick(now);
    if (!busy) network->Wait(now, now + Milliseconds(100));
  }
}

class Learner {
 public:
  Learner(const Case& c, const std::string& endpoint) : network_(*MakeZmqNetwork()) {
    const ShardMap map = MapOf(c);
    std::vector<std::unique_ptr<Channel>> channels;
    channels.push_back(
        *network_->Connect(endpoint, {.origin = {.role = Role::kLearner, .incarnation = 1},
                                      .window_bytes = std::size_t{1} << 30}));
    client_ = std::make_unique<ShardClient>(map, std::move(channels), ShardClient::Options{});
    gradient_.resize(std::size_t(map.parameters()));
    for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] = float(i % 8 + 1) / 8;
    Pull();
  }
  std::span<const float> Pull() {
    Must(client_->RequestPull(Now()));
    for (;;) {
      const Time now = Now();
      const bool busy = network_->Pump(now);
      client_->Poll(now);
      if (const auto pulled = client_->TakePull()) return pulled->value;
      Must(client_->error());
      if (!busy) network_->Wait(now, now + Milliseconds(100));
    }
  }
  // The pulled parameters include this gradient.
  std::span<const float> PushAndPull() {
    Must(client_->Push(Now(), gradient_, 1, 1));
    return Pull();
  }

 private:
  std::unique_ptr<Network> network_;
  std::unique_ptr<ShardClient> client_;
  std::vector<float> gradient_;
};

void RunCase(const Case& c, int repeats) {
  int ends[2];
  TROOP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no pair");
  const pid_t server = fork();
  if (server == 0) Serve(c, ends[1]);
  close(ends[1]);
  char endpoint[64] = {};
  TROOP_CHECK(recv(ends[0], endpoint, sizeof endpoint, 0) == sizeof endpoint, "no server");
  Learner learner(c, endpoint);
  JsonArray check, values;
  for (int i = 1; i < kCheckedPushes; ++i) learner.PushAndPull();
  const auto value = learner.PushAndPull();
  for (int i = 0; i < kChecked; ++i) {
    check.Add(JsonText::Rounded(-value[std::size_t(i)], 9));
  }
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const Time begin = Now();
    for (int round = 0; round < c.rounds; ++round) learner.PushAndPull();
    const double ms = ToSeconds(Now() - begin) * 1e3 / c.rounds;
    values.Add(JsonText::Rounded(ms, 5));
  }
  JsonObject row;
  row.Add("case", c.name).Add("metric", "time").Add("unit", "ms");
  row.Add("values", values).Add("check", check);
  std::printf("%s\n", row.str().c_str());
  std::fflush(stdout);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  close(ends[0]);
}

int Main(int argc, char** argv) {
  RetainFreedPages();  // same as the roles
  bool quick = false;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--quick") quick = true;
    if (std::string_view(argv[i]) == "--only" && i + 1 < argc) only = argv[++i];
  }
  for (const Case& c : kCases) {
    if (only.empty() || only == c.name) RunCase(c, quick ? 5 : 11);
  }
  return 0;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
