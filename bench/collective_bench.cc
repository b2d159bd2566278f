// All-reduce between processes: bandwidth over sockets and shared memory, latency of small buffers,
// and the time to detect a death and to form a new group.
//
// collective_bench [--quick] [--only CASE]
//
// Prints one JSON object per case; collective_peers.py runs the same cases with Gloo and Open MPI.
// `check`: the first sums of the first all-reduce, where element i of rank r is (i + 1) (r + 1) /
// 8. Timed calls sum zeros in place, so that values stay constant.
#include <signal.h>
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

#include "collective/group.h"
#include "core/base/check.h"
#include "core/base/time.h"
#include "core/storage/json.h"

namespace troop {
namespace {

constexpr std::int64_t kLarge = 25'000'000;
constexpr std::int64_t kSmall = 256;
constexpr int kSmallRounds = 200;  // per measured value
constexpr int kChecked = 8;
constexpr int kRanksAtMost = 4;

Time Now() { return SystemClock().Now(); }
double MillisecondsSince(Time begin) { return ToSeconds(Now() - begin) * 1e3; }

struct Case {
  const char* name;
  GroupOptions::Path path;
  int ranks;
  std::int64_t elements;
};
constexpr Case kCases[] = {
    {"tcp-25M-2", GroupOptions::Path::kTcp, 2, kLarge},
    {"tcp-25M-4", GroupOptions::Path::kTcp, 4, kLarge},
    {"shm-25M-2", GroupOptions::Path::kShm, 2, kLarge},
    {"shm-25M-4", GroupOptions::Path::kShm, 4, kLarge},
    {"tcp-256-4", GroupOptions::Path::kTcp, 4, kSmall},
    {"shm-256-4", GroupOptions::Path::kShm, 4, kSmall},
};

// Communication between the processes of a case: a pair of sockets for each, one end with the
// parent.
struct Text {
  char address[64];
};

template <class T>
void Put(int fd, const T& value) {
  TROOP_CHECK(send(fd, &value, sizeof value, MSG_NOSIGNAL) == sizeof value, "a rank exited");
}
template <class T>
T Get(int fd) {
  T value;
  TROOP_CHECK(recv(fd, &value, sizeof value, 0) == sizeof value, "a rank exited");
  return value;
}

std::unique_ptr<Collective> JoinGroup(int fd, GroupOptions options) {
  options.group = "bench";
  auto entry = GroupEntry::Listen(options);
  TROOP_CHECK(entry.ok(), "{}", entry.status().ToString());
  Text text{};
  std::strncpy(text.address, entry->self().address.c_str(), sizeof text.address - 1);
  Put(fd, text);
  std::vector<Member> members;
  for (int rank = 0; rank < options.size; ++rank) {
    members.push_back({rank, entry->self().host, Get<Text>(fd).address});
  }
  auto group = std::move(*entry).Join(members);
  TROOP_CHECK(group.ok(), "{}", group.status().ToString());
  return std::move(*group);
}

void Must(const Status& status) { TROOP_CHECK(status.ok(), "{}", status.ToString()); }

struct Measured {
  int count = 0;
  double values[16] = {};
  double check[kChecked] = {};
};

Measured MeasureCase(const Case& c, Collective& group, int repeats) {
  Measured measured{.count = repeats};
  const Tensor x(DType::kF32, {c.elements});
  const auto values = x.as<float>();
  for (std::int64_t i = 0; i < c.elements; ++i) {
    values[std::size_t(i)] = float(i % 1024 + 1) * float(group.rank() + 1) / 8;
  }
  const Op sum{.kind = OpKind::kAllReduce};
  Must(RunOp(group, sum, x, x));
  std::copy_n(values.begin(), kChecked, measured.check);
  std::ranges::fill(values, 0.0f);
  const int rounds = c.elements == kSmall ? kSmallRounds : 1;
  for (int repeat = -1; repeat < repeats; ++repeat) {  // the first is a warm-up
    Must(RunOp(group, {.kind = OpKind::kBarrier}, {}, {}));
    const Time begin = Now();
    for (int round = 0; round < rounds; ++round) Must(RunOp(group, sum, x, x));
    if (repeat >= 0) measured.values[repeat] = MillisecondsSince(begin) / rounds;
  }
  return measured;
}

class Processes {
 public:
  // Runs f(rank, socket) in a process for each rank.
  template <class F>
  Processes(int ranks, F f) {
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      TROOP_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "no pair");
      const pid_t pid = fork();
      if (pid == 0) {
        close(ends[0]);
        f(rank, ends[1]);
        _exit(0);
      }
      close(ends[1]);
      pids_.push_back(pid);
      fds_.push_back(ends[0]);
    }
  }
  ~Processes() {
    for (const int fd : fds_) close(fd);
    for (const pid_t pid : pids_) waitpid(pid, nullptr, 0);
  }
  // Exchanges the addresses of the ranks in `ranks`.
  void Introduce(const std::vector<int>& ranks) {
    std::vector<Text> texts;
    for (const int rank : ranks) texts.push_back(Get<Text>(fds_[std::size_t(rank)]));
    for (const int rank : ranks) {
      for (const Text& text : texts) Put(fds_[std::size_t(rank)], text);
    }
  }
  int fd(int rank) const { return fds_[std::size_t(rank)]; }
  pid_t pid(int rank) const { return pids_[std::size_t(rank)]; }

 private:
  std::vector<pid_t> pids_;
  std::vector<int> fds_;
};

void Print(const std::string& name, const Measured& measured, bool checked) {
  JsonArray values, check;
  for (int i = 0; i < measured.count; ++i) values.Add(JsonText::Rounded(measured.values[i], 5));
  for (int i = 0; i < kChecked; ++i) check.Add(JsonText::Rounded(measured.check[i], 9));
  JsonObject row;
  row.Add("case", name).Add("metric", "time").Add("unit", "ms").Add("values", values);
  if (checked) row.Add("check", check);
  std::printf("%s\n", row.str().c_str());
  std::fflush(stdout);
}

void RunCase(const Case& c, int repeats) {
  Processes processes(c.ranks, [&](int rank, int fd) {
    auto group = JoinGroup(fd, {.rank = rank, .size = c.ranks, .path = c.path});
    const Measured measured = MeasureCase(c, *group, repeats);
    if (rank == 0) Put(fd, measured);
    group.reset();
  });
  std::vector<int> all;
  for (int rank = 0; rank < c.ranks; ++rank) all.push_back(rank);
  processes.Introduce(all);
  Print(c.name, Get<Measured>(processes.fd(0)), true);
}

// Kills one of four ranks during all-reduces; measures the time to the last error of the others,
// and to the end of the first all-reduce of the remaining three.
void RunDeath(const char* name, GroupOptions::Path path, int repeats) {
  Measured noticed{.count = repeats}, rebuilt{.count = repeats};
  for (int repeat = 0; repeat < repeats; ++repeat) {
    Processes processes(kRanksAtMost, [&](int rank, int fd) {
      const Tensor x(DType::kF32, {1'000'000});
      const Op sum{.kind = OpKind::kAllReduce};
      auto group = JoinGroup(fd, {.epoch = 1, .rank = rank, .size = kRanksAtMost, .path = path});
      Must(RunOp(*group, sum, x, x));
      Put(fd, Now());
      while (RunOp(*group, sum, x, x).ok()) {
      }
      Put(fd, Now());
      group.reset();
      group = JoinGroup(fd, {.epoch = 2, .rank = rank, .size = kRanksAtMost - 1, .path = path});
      Must(RunOp(*group, sum, x, x));
      Put(fd, Now());
    });
    processes.Introduce({0, 1, 2, 3});
    for (int rank = 0; rank < kRanksAtMost; ++rank) Get<Time>(processes.fd(rank));
    usleep(20'000);
    const Time killed = Now();
    kill(processes.pid(3), SIGKILL);
    Time last = killed, end = killed;
    for (int rank = 0; rank < 3; ++rank) last = std::max(last, Get<Time>(processes.fd(rank)));
    processes.Introduce({0, 1, 2});
    for (int rank = 0; rank < 3; ++rank) end = std::max(end, Get<Time>(processes.fd(rank)));
    noticed.values[repeat] = ToSeconds(last - killed) * 1e3;
    rebuilt.values[repeat] = ToSeconds(end - last) * 1e3;
  }
  Print(fmt::format("{}-kill-noticed", name), noticed, false);
  Print(fmt::format("{}-rebuild-3", name), rebuilt, false);
}

int Main(int argc, char** argv) {
  bool quick = false;
  std::string_view only;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--quick") quick = true;
    if (std::string_view(argv[i]) == "--only" && i + 1 < argc) only = argv[++i];
  }
  const int repeats = quick ? 3 : 7;
  for (const Case& c : kCases) {
    if (only.empty() || only == c.name) RunCase(c, repeats);
  }
  if (only.empty() || only == "kill") {
    RunDeath("tcp", GroupOptions::Path::kTcp, repeats);
    RunDeath("shm", GroupOptions::Path::kShm, repeats);
  }
  return 0;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) { return troop::Main(argc, argv); }
