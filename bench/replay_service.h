#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/replay_cases.h"
#include "net/network.h"
#include "replay/service/server.h"

// Servers and actors in separate processes, as in a run, and a client that does not decode.
namespace troop::bench {

// Memory shared between a parent and its children.
template <class T>
class Shared {
 public:
  Shared();
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T* get() const { return value_; }

 private:
  T* value_;
};

// Report of a server: CPU time of its thread per sample of kBatch items.
struct DrawTimes {
  static constexpr std::size_t kMax = 1 << 18;
  std::atomic<std::uint64_t> count = 0;
  float us[kMax] = {};
};

// Commands from a parent to the actors in a child, and their report.
struct ActorOrders {
  std::atomic<double> items_per_s = 0;  // total; 0: as fast as the service accepts
  std::atomic<std::int64_t> items = 0;  // acknowledged
};

// A child that runs `work` until it is killed, at the latest when the parent exits.
// REQUIRES: this process has one thread.
class Child {
 public:
  explicit Child(const std::function<void()>& work);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  std::size_t resident_bytes() const;

 private:
  pid_t pid_;
};

// One shard in its own process.
class ServerProcess {
 public:
  // transport: "ipc" or "tcp". folder: where tables are persisted, with acknowledgement when
  // durable; empty: in memory only.
  ServerProcess(const ReplayServer::Options& options, const std::string& transport,
                const std::string& folder = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  const std::string& endpoint() const { return endpoint_; }
  const Child& process() const { return *child_; }
  DrawTimes* draws() { return times_.get(); }

 private:
  Shared<DrawTimes> times_;
  std::unique_ptr<Child> child_;
  std::string endpoint_;
};
// `frames`: may be null; the server then has no dictionaries.
ReplayServer::Options ServerOptions(const Setting& setting, const AtariFrames* frames,
                                    std::int64_t items);

// Sends calls of a Feeder, up to a window of unacknowledged ones. Owner: one thread.
class RawWriter {
 public:
  RawWriter(std::unique_ptr<Channel> channel, const Setting& setting, const AtariFrames* frames,
            StreamId stream, int window);
  void Poll();             // receives replies
  bool TryPush(Time now);  // one message; false: the window is full
  std::int64_t items() const { return acknowledged_; }

 private:
  struct Open {
    Ticket ticket;
    std::int64_t items;
  };
  const Setting setting_;
  const std::unique_ptr<Channel> channel_;
  Feeder feeder_;
  const std::size_t window_;
  std::vector<Open> open_;
  std::optional<Message> next_;
  std::int64_t next_items_ = 0, acknowledged_ = 0;
};

// Samples batches and sends the same priorities back; frames stay encoded. Owner: one thread.
class RawSampler {
 public:
  RawSampler(std::unique_ptr<Channel> channel, const Setting& setting, int window);
  // Sends up to the window and receives replies. Returns the latency of each reply in seconds.
  std::span<const double> Poll(Time now);
  std::int64_t items() const { return items_; }

 private:
  struct Open {
    Ticket ticket;
    double begin;
  };
  void Take(const Message& reply);
  const Setting setting_;
  const std::unique_ptr<Channel> channel_;
  const std::size_t window_;
  std::vector<Open> open_;
  std::vector<double> took_;
  EncodedBatch drawn_;
  std::vector<std::uint64_t> key_;
  std::vector<float> priority_;
  std::uint64_t taken_ = 0;
  std::int64_t items_ = 0;
};

std::unique_ptr<Channel> Connect(Network* network, const std::string& endpoint, Role role,
                                 int index);
// Runs until `items` are acknowledged; returns items per second for `parts` equal parts.
std::vector<double> Fill(Network* network, const std::string& endpoint, const Setting& setting,
                         const AtariFrames* frames, std::int64_t items, int parts);

}  // namespace troop::bench
