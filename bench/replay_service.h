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
#include "replay/server.h"

// Servers and actors in processes of their own, as in a run, and a client that doesn't decode.
namespace troop::bench {

// Memory that a parent shares with its children.
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

// What a server tells of its work: the own time of its thread for each draw of kBatch items.
struct DrawTimes {
  static constexpr std::size_t kMax = 1 << 18;
  std::atomic<std::uint64_t> count = 0;
  float us[kMax] = {};
};

// What a parent tells the actors in a child, and what they tell it.
struct ActorOrders {
  std::atomic<double> items_per_s = 0;  // of all together; 0: as many as the service takes
  std::atomic<std::int64_t> items = 0;  // acknowledged
};

// A child that runs `work` until it is killed, which happens at the latest when this dies.
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

// One shard in a process of its own.
class ServerProcess {
 public:
  // transport: "ipc" or "tcp". folder: where tables are kept, and inserts are acknowledged when
  // they are on the disk; empty: nowhere.
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
// `frames`: may be null; the server then knows no dictionaries.
ReplayServer::Options ServerOptions(const Setting& setting, const AtariFrames* frames,
                                    std::int64_t items);

// Sends calls of a Feeder, as many at a time as a window holds. Owner: one thread.
class RawWriter {
 public:
  RawWriter(std::unique_ptr<Channel> channel, const Setting& setting, const AtariFrames* frames,
            StreamId stream, int window);
  void Poll();             // takes answers
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

// Draws batches and sends the same priorities back; frames stay as they are. Owner: one thread.
class RawSampler {
 public:
  RawSampler(std::unique_ptr<Channel> channel, const Setting& setting, int window);
  // Sends what fits, takes what has come. Returns the seconds that each answer took.
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
  Drawn drawn_;
  std::vector<std::uint64_t> key_;
  std::vector<float> priority_;
  std::uint64_t taken_ = 0;
  std::int64_t items_ = 0;
};

std::unique_ptr<Channel> Connect(Network* network, const std::string& endpoint, Role role,
                                 int index);
// Until `items` were acknowledged; returns items per second of `parts` equal parts.
std::vector<double> Fill(Network* network, const std::string& endpoint, const Setting& setting,
                         const AtariFrames* frames, std::int64_t items, int parts);

}  // namespace troop::bench
