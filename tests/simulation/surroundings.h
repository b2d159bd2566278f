#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/node.h"
#include "core/base/philox.h"
#include "fleet/roles/role_node.h"
#include "fleet/serial/serial_fleet.h"
#include "net/transport/sim_network.h"

namespace troop::simulation {

// Latencies, and what survives when a connection breaks.
class Weather final : public SimNetworkModel {
 public:
  explicit Weather(std::uint64_t seed) : rng_({.run_seed = seed, .index = 2}) {}
  Duration Delay(std::string_view from, std::string_view to, std::size_t bytes) override {
    double ms = 0.05 + 0.5 * rng_.Uniform() + double(bytes) / 1e5;
    if (rng_.Below(200) == 0) ms += rng_.Uniform(5, 300);  // a retransmitted packet
    if (from == slow || to == slow) ms += rng_.Uniform(100, 900);
    return Duration(std::int64_t(ms * 1e6));
  }
  std::size_t Survivors(std::size_t count) override {
    return count == 0 ? 0 : rng_.Below(std::uint32_t(count) + 1);
  }
  Duration Reconnect() override { return Milliseconds(50 + rng_.Below(1000)); }

  std::string slow;

 private:
  Rng rng_;
};

// Executor whose jobs take virtual time. If the process dies, unfinished jobs are lost.
class SimExecutor final : public Executor {
 public:
  SimExecutor(std::uint64_t seed, const Time* now) : rng_({.run_seed = seed}), now_(now) {}
  Result<Job> Submit(std::string_view name, std::function<void()> work) override {
    const Duration takes =
        name == "update" ? Milliseconds(3000 + rng_.Below(600)) : Milliseconds(1 + rng_.Below(200));
    last_ = std::max(last_, *now_ + takes);
    jobs_.push_back({next_, last_, std::move(work)});
    return next_++;
  }
  bool TakeDone(Job job) override {
    Run();
    return std::erase(done_, job) > 0;
  }
  void Run() {
    while (!jobs_.empty() && jobs_.front().due <= *now_) RunFirst();
  }
  // Runs the next job now; used when a process dies during it.
  bool RunFirst() {
    if (jobs_.empty()) return false;
    const Entry entry = std::move(jobs_.front());
    jobs_.pop_front();
    entry.work();
    done_.push_back(entry.job);
    return true;
  }
  Time next() const { return jobs_.empty() ? kForever : jobs_.front().due; }

 private:
  struct Entry {
    Job job;
    Time due;
    std::function<void()> work;
  };
  Rng rng_;
  const Time* const now_;
  std::deque<Entry> jobs_;
  std::vector<Job> done_;
  Time last_{};
  Job next_ = 1;
};

// A simulated process of a role.
struct Process {
  // Time of its next step, unless a fault prevents it. Cached, as there are thousands of processes.
  Time wants() {
    if (news != network->news()) {
      news = network->news();
      next = std::min({wakes_at, network->next_pump(), executor->next()});
    }
    return std::max(next, rests_until);
  }
  // Invalidates the cached time.
  void Changed() { news = ~std::uint64_t{}; }

  FleetRole role;
  std::string place;
  std::int64_t id = 0;
  std::unique_ptr<SimNetwork> network;
  std::unique_ptr<SimExecutor> executor;
  std::unique_ptr<Rendezvous> rendezvous;  // only for a learner
  std::unique_ptr<RoleNode> node;          // destroyed first
  Time rests_until{};                      // its last step takes until then
  Time wakes_at{};
  Time began{};
  bool frozen = false;
  bool replaced = false;                  // another process has taken its role
  bool served = false;                    // a replay shard that has reported what it restored
  std::uint64_t news = ~std::uint64_t{};  // the state that `next` was computed from
  Time next{};
};

inline Duration StepTakes(Role role, Rng* rng) {
  if (role == Role::kActor) return Milliseconds(200 + rng->Below(100));
  if (role == Role::kReplay || role == Role::kParamServer) return Milliseconds(1);
  return Milliseconds(5 + rng->Below(30));
}

// Counts completed `troop scale` requests.
class MoveCounter final : public Reply::Sink {
 public:
  explicit MoveCounter(std::int64_t* moves) : moves_(moves) {}
  void Answer(Message message) override { *moves_ += message.type == MessageType::kScaleReply; }

 private:
  std::int64_t* const moves_;
};

}  // namespace troop::simulation
