// Server, actor and learner processes of the suite `replay`, over ipc or tcp.

#include "bench/replay_service.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "core/base/check.h"
#include "core/base/executor.h"
#include "core/storage/storage.h"
#include "net/wire/codec.h"
#include "replay/service/messages.h"

namespace troop::bench {
namespace {

constexpr std::size_t kEndpointMax = 200;
constexpr int kInsertWindow =
    256;  // messages: a group commit of 10 ms for a million items a second
constexpr int kDiskThreads = 2;

double OwnSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// Forwards all calls, and measures the CPU time of samples.
class TimedService final : public Service {
 public:
  TimedService(ReplayServer* server, DrawTimes* times) : server_(server), times_(times) {}
  void Handle(Message message, Reply reply) override {
    const bool draw = message.type == MessageType::kSample;
    const double begin = draw ? OwnSeconds() : 0;
    server_->Handle(std::move(message), std::move(reply));
    if (!draw) return;
    const std::uint64_t n = times_->count.load(std::memory_order_relaxed);
    times_->us[n % DrawTimes::kMax] = float(1e6 * (OwnSeconds() - begin));
    times_->count.store(n + 1, std::memory_order_release);
  }
  void PeerChanged(const Origin& peer, PeerState state) override {
    server_->PeerChanged(peer, state);
  }

 private:
  ReplayServer* const server_;
  DrawTimes* const times_;
};

[[noreturn]] void Serve(ReplayServer::Options options, const std::string& folder,
                        const std::string& wanted, DrawTimes* times, int tell) {
  auto network = MakeZmqNetwork();
  TROOP_CHECK(network.ok(), "{}", network.status().ToString());
  ThreadExecutor executor(kDiskThreads, [n = network->get()] { n->Wake(); });
  std::unique_ptr<Storage> storage;
  if (!folder.empty()) {
    auto made = MakeDiskStorage(folder);
    TROOP_CHECK(made.ok(), "{}", made.status().ToString());
    storage = std::move(made).value();
    options.executor = &executor;
    options.storage = storage.get();
    options.ack_on_disk = true;
  }
  auto server = MakeReplayServer(options);
  TROOP_CHECK(server.ok(), "{}", server.status().ToString());
  TimedService timed(server->get(), times);
  auto listener = (*network)->Listen(wanted, &timed);
  TROOP_CHECK(listener.ok(), "{}", listener.status().ToString());
  std::array<char, kEndpointMax> endpoint{};
  (*listener)->endpoint().copy(endpoint.data(), endpoint.size() - 1);
  TROOP_CHECK(write(tell, endpoint.data(), endpoint.size()) == ssize_t(endpoint.size()),
              "the benchmark exited");
  const SystemClock clock;
  while (true) {
    const Time now = clock.Now();
    (*server)->Tick(now);
    if (!(*network)->Pump(now)) (*network)->Wait(now, now + Milliseconds(10));
  }
}

}  // namespace

template <class T>
Shared<T>::Shared() {
  void* const memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TROOP_CHECK(memory != MAP_FAILED, "cannot map shared memory");
  value_ = new (memory) T;
}
template <class T>
Shared<T>::~Shared() {
  munmap(value_, sizeof(T));
}
template class Shared<DrawTimes>;
template class Shared<ActorOrders>;

Child::Child(const std::function<void()>& work) : pid_(fork()) {
  TROOP_CHECK(pid_ >= 0, "fork failed");
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  work();
  _exit(0);
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::size_t Child::resident_bytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * std::size_t(sysconf(_SC_PAGESIZE));
}

ServerProcess::ServerProcess(const ReplayServer::Options& options, const std::string& transport,
                             const std::string& folder) {
  static int number = 0;
  const std::string wanted =
      transport == "tcp"
          ? "tcp://127.0.0.1:0"
          : "ipc:///tmp/troop_bench_" + std::to_string(getpid()) + "_" + std::to_string(number++);
  std::array<int, 2> ends{};
  TROOP_CHECK(pipe(ends.data()) == 0, "cannot create a pipe");
  child_ = std::make_unique<Child>([&] { Serve(options, folder, wanted, draws(), ends[1]); });
  close(ends[1]);
  std::array<char, kEndpointMax> endpoint{};
  TROOP_CHECK(read(ends[0], endpoint.data(), endpoint.size()) == ssize_t(endpoint.size()),
              "the server exited early");
  close(ends[0]);
  endpoint_ = endpoint.data();
}

ServerProcess::~ServerProcess() {
  child_.reset();
  if (!endpoint_.starts_with("ipc://")) return;
  const std::string socket = endpoint_.substr(6);
  unlink(socket.c_str());
  unlink((socket + ".lock").c_str());
}

ReplayServer::Options ServerOptions(const Setting& setting, const AtariFrames* frames,
                                    std::int64_t items) {
  std::vector<Buffer> dictionaries;
  if (frames != nullptr) {
    for (const auto& d : frames->dictionaries()) dictionaries.push_back(DictionaryBytes(*d));
  }
  return {.tables = {{.table = {.trajectory = setting.trajectory,
                                .view = setting.view,
                                .codec = setting.codec,
                                .capacity_items = items},
                      .samples_per_insert = 0,
                      .dictionaries = std::move(dictionaries)}}};
}

std::unique_ptr<Channel> Connect(Network* network, const std::string& endpoint, Role role,
                                 int index) {
  static std::uint64_t incarnation = std::uint64_t(getpid()) << 20;
  auto channel = network->Connect(
      endpoint, {.origin = {.role = role, .index = index, .incarnation = ++incarnation},
                 .window = 2 * kInsertWindow});
  TROOP_CHECK(channel.ok(), "{}", channel.status().ToString());
  return std::move(channel).value();
}

// ---- Inserts ------------------------------------------------------------------------------------

RawWriter::RawWriter(std::unique_ptr<Channel> channel, const Setting& setting,
                     const AtariFrames* frames, StreamId stream, int window)
    : setting_(setting),
      channel_(std::move(channel)),
      feeder_(setting, frames, stream),
      window_(std::size_t(window)) {}

void RawWriter::Poll() {
  std::erase_if(open_, [this](const Open& open) {
    const auto answer = channel_->Poll(open.ticket);
    if (!answer) return false;
    TROOP_CHECK(answer->ok(), "insert failed: {}", answer->status().ToString());
    acknowledged_ += open.items;
    return true;
  });
}

bool RawWriter::TryPush(Time now) {
  if (open_.size() >= window_ || !channel_->CanSend()) return false;
  if (!next_) {
    const EncodedInsert call = feeder_.Next();
    next_items_ = std::int64_t(call.items.size());
    next_ = PackInsert(0, setting_.trajectory, setting_.codec, call.chunks, call.items);
  }
  const auto ticket = channel_->Send(*next_, now + Seconds(60));
  if (!ticket.ok()) return false;
  open_.push_back({*ticket, next_items_});
  next_.reset();
  return true;
}

std::vector<double> Fill(Network* network, const std::string& endpoint, const Setting& setting,
                         const AtariFrames* frames, std::int64_t items, int parts) {
  RawWriter writer(Connect(network, endpoint, Role::kActor, 0), setting, frames, 1, kInsertWindow);
  std::vector<double> rates;
  const SystemClock clock;
  double begin = WallSeconds();
  std::int64_t before = 0;
  while (int(rates.size()) < parts) {
    const Time now = clock.Now();
    bool busy = network->Pump(now);
    writer.Poll();
    for (int i = 0; i < kInsertWindow && writer.TryPush(now); ++i) busy = true;
    if (writer.items() >= std::int64_t(rates.size() + 1) * items / parts) {
      const double end = WallSeconds();
      rates.push_back(double(writer.items() - before) / (end - begin));
      before = writer.items();
      begin = end;
    }
    if (!busy) network->Wait(now, now + Milliseconds(10));
  }
  return rates;
}

// ---- Draws --------------------------------------------------------------------------------------

RawSampler::RawSampler(std::unique_ptr<Channel> channel, const Setting& setting, int window)
    : setting_(setting), channel_(std::move(channel)), window_(std::size_t(window)) {}

std::span<const double> RawSampler::Poll(Time now) {
  took_.clear();
  std::erase_if(open_, [this](const Open& open) {
    auto answer = channel_->Poll(open.ticket);
    if (!answer) return false;
    TROOP_CHECK(answer->ok(), "sample failed: {}", answer->status().ToString());
    took_.push_back(WallSeconds() - open.begin);
    Take(**answer);
    return true;
  });
  while (open_.size() < window_ && channel_->CanSend()) {
    Message message{.type = MessageType::kSample,
                    .body = EncodeBody(SampleBody{.batch_size = std::uint32_t(kBatch),
                                                  .batches = 1,
                                                  .charge = std::uint32_t(kBatch),
                                                  .updates = std::uint32_t(key_.size()),
                                                  .taken = taken_})};
    if (!key_.empty()) message.parts.push_back(PackUpdates(key_, priority_));
    const auto ticket = channel_->Send(message, now + Seconds(60));
    if (!ticket.ok()) break;
    key_.clear();
    priority_.clear();
    open_.push_back({*ticket, WallSeconds()});
  }
  return took_;
}

void RawSampler::Take(const Message& reply) {
  const auto body = DecodeBody<SampleReplyBody>(reply.body);
  TROOP_CHECK(body.ok() && reply.parts.size() == 1, "invalid reply");
  const Status parsed = ParseEncodedBatch(reply.parts[0], setting_.trajectory, setting_.view,
                                          setting_.codec, &drawn_);
  TROOP_CHECK(parsed.ok() && drawn_.size() == kBatch, "{}", parsed.ToString());
  taken_ = body->reserved;
  items_ += drawn_.size();
  const std::size_t steps = drawn_.reward.size() / drawn_.key.size();
  for (std::size_t i = 0; i < drawn_.key.size(); ++i) {
    key_.push_back(drawn_.key[i]);
    priority_.push_back(drawn_.reward[i * steps]);
  }
}

}  // namespace troop::bench
