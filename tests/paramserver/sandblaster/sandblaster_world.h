#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "net/wire/codec.h"
#include "paramserver/sandblaster/sandblaster_coordinator.h"
#include "paramserver/sandblaster/vector_shard.h"
#include "tests/nn/lbfgs/lbfgs_fixture.h"

namespace troop::test {

// A fleet in simulated time: one event after another, a delay for each message, a duration for each
// portion. Its function is the logistic regression of lbfgs_fixture.h.
template <class T>
class SandblasterWorld {
 public:
  using Coordinator = SandblasterCoordinator;
  using Place = Coordinator::Place;
  struct Setup {
    Coordinator::Options options;
    int iterations = 20;
    double message_s = 1e-4;
    std::vector<double> portion_s;  // [workers]
  };
  explicit SandblasterWorld(const Setup& setup) : setup_(setup), coordinator_(setup.options) {
    const std::vector<T> zeros(kSize);
    for (int k = 0; k < setup.options.shards; ++k) {
      const ShardSlice slice = ShardSliceOf(kSize, setup.options.shards, k);
      for (int r = 0; r < setup.options.replicas; ++r) {
        shards_[{k, r}] = std::make_unique<VectorShard<T>>(
            setup.options.lbfgs.history, setup.options.portions,
            std::span<const T>(zeros).subspan(std::size_t(slice.begin),
                                              std::size_t(slice.end - slice.begin)));
      }
    }
    alive_.assign(std::size_t(setup.options.workers), true);
    for (int w = 0; w < setup.options.workers; ++w) At(0, [this, w] { Seek(w); });
    At(0, [this] { Broadcast(); });
  }

  void At(double time, std::function<void()> event) {
    events_.push({time, order_++, std::move(event)});
  }
  // Runs until the iterations are made; the limit of events bounds a fault of the test.
  void Run() {
    for (int i = 0; i < 5'000'000 && !events_.empty() && !Ended(); ++i) {
      auto event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      now_ = event.time;
      event.work();
    }
    EXPECT_TRUE(Ended()) << "after " << iterates_.size() << " iterations: " << status_.ToString();
  }

  // A dead coordinator is replaced some time later, from what the shards have.
  void KillCoordinator() {
    if (!up_) return;
    up_ = false;
    ++incarnation_;
    At(now_ + 0.005, [this] {
      std::vector<SandblasterHead> heads;
      Coordinator::Options options = setup_.options;
      options.term = std::uint64_t(++takeovers_);
      for (const auto& [place, shard] : shards_) {
        if (shard != nullptr) heads.push_back(*shard->Follow(options.term));
      }
      auto next = Coordinator::TakeOver(options, heads);
      ASSERT_TRUE(next.ok()) << next.status().ToString();
      coordinator_ = *std::move(next);
      for (const auto& [place, shard] : shards_) {
        if (shard != nullptr) continue;
        EXPECT_TRUE(coordinator_.ShardDied({place.first, place.second}).ok());
      }
      up_ = true;
      Broadcast();
    });
  }
  void KillShard(int shard, int replica) {
    shards_[{shard, replica}] = nullptr;
    if (!up_) return;
    status_ = coordinator_.ShardDied({shard, replica});
    Broadcast();
  }
  // A new replica is a copy of a live one.
  void RestartShard(int shard, int replica, int from) {
    shards_[{shard, replica}] = std::make_unique<VectorShard<T>>(*shards_[{shard, from}]);
    if (!up_) return;
    coordinator_.ShardJoined({shard, replica});
    Broadcast();
  }
  void KillWorker(int worker) {
    alive_[std::size_t(worker)] = false;
    if (up_) coordinator_.WorkerDied(worker);
  }

  double now() const { return now_; }
  const Coordinator& coordinator() const { return coordinator_; }
  const std::vector<std::vector<double>>& iterates() const { return iterates_; }
  std::size_t command_bytes_max() const { return command_bytes_max_; }
  const std::vector<int>& counted() const { return counted_; }  // by portion, all evaluations
  int takeovers() const { return takeovers_; }
  const Status& status() const { return status_; }

 private:
  static constexpr std::int64_t kSize = 8;
  struct Event {
    double time = 0;
    std::int64_t order = 0;
    std::function<void()> work;
    bool operator<(const Event& other) const {
      return std::pair(time, order) > std::pair(other.time, other.order);
    }
  };

  bool Ended() const {
    return int(iterates_.size()) >= setup_.iterations || coordinator_.done() || !status_.ok();
  }
  void AfterMessage(std::function<void()> event) { At(now_ + setup_.message_s, std::move(event)); }

  // Sends the current command to all that have not answered, and delivers the replies.
  void Broadcast() {
    if (!up_) return;
    const SandblasterCommand command = coordinator_.command();
    for (const auto& [key, unused] : shards_) {
      const Place place{key.first, key.second};
      if (!coordinator_.Awaits(place)) continue;
      command_bytes_max_ = std::max(command_bytes_max_, EncodeBody(command).size());
      AfterMessage([this, place, command, from = incarnation_] {
        auto& shard = shards_[{place.shard, place.replica}];
        if (shard == nullptr) return;
        const auto reply = shard->Execute(command);
        if (!reply.ok()) return;  // of an earlier term
        AfterMessage([this, place, reply = *reply, from] {
          if (from == incarnation_) Take(place, reply);
        });
      });
    }
  }
  void Take(const Place& place, const SandblasterReply& reply) {
    const std::uint64_t before = coordinator_.command().number;
    status_ = coordinator_.TakeReply(place, reply);
    const auto iterations = std::size_t(coordinator_.lbfgs().iterations());
    if (iterations > iterates_.size()) iterates_.push_back(Weights());
    if (coordinator_.command().number != before) Broadcast();
  }
  std::vector<double> Weights() const {
    std::vector<double> all;
    for (int k = 0; k < setup_.options.shards; ++k) {
      const auto part = Live(k).weights();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  const VectorShard<T>& Live(int shard) const {
    for (int r = 0;; ++r) {
      if (shards_.at({shard, r}) != nullptr) return *shards_.at({shard, r});
    }
  }

  // A worker requests a portion, or tries again later.
  void Seek(int worker) {
    if (!alive_[std::size_t(worker)]) return;
    const std::uint64_t number = coordinator_.command().number;
    const auto portion = up_ ? coordinator_.TakePortion(worker) : std::nullopt;
    if (!portion) {
      At(now_ + 20 * setup_.message_s, [this, worker] { Seek(worker); });
      return;
    }
    AfterMessage([this, worker, number, portion = *portion] { Compute(worker, number, portion); });
  }
  void Compute(int worker, std::uint64_t number, int portion) {
    std::vector<T> weights;
    for (int k = 0; k < setup_.options.shards; ++k) {
      const auto part = Live(k).Pull(number);
      // The evaluation has ended meanwhile.
      if (!part.ok()) return At(now_ + setup_.message_s, [this, worker] { Seek(worker); });
      weights.insert(weights.end(), part->begin(), part->end());
    }
    const double end = now_ + setup_.portion_s[std::size_t(worker)];
    At(end, [this, worker, number, portion, weights] {
      if (!alive_[std::size_t(worker)]) return;
      const std::size_t n = FixtureExamples().x.size(), all = std::size_t(setup_.options.portions);
      std::vector<T> gradient(kSize);
      const double value = LogisticPart<T>(n * std::size_t(portion) / all,
                                           n * (std::size_t(portion) + 1) / all, weights, gradient);
      AfterMessage([=, this] { Deliver(worker, {number, portion, value, {}}, gradient); });
    });
  }
  // Adds the parts to all live replicas, then reports the portion.
  void Deliver(int worker, typename VectorShard<T>::Part part, const std::vector<T>& gradient) {
    bool counted = false;
    for (const auto& [key, shard] : shards_) {
      if (shard == nullptr) continue;
      const ShardSlice slice = ShardSliceOf(kSize, setup_.options.shards, key.first);
      part.gradient = std::span<const T>(gradient).subspan(std::size_t(slice.begin),
                                                           std::size_t(slice.end - slice.begin));
      const auto added = shard->Add(part);
      ASSERT_TRUE(added.ok()) << added.status().ToString();
      counted |= *added;
    }
    counted_.resize(std::size_t(setup_.options.portions));
    if (counted) ++counted_[std::size_t(part.portion)];
    AfterMessage([=, this, from = incarnation_] {
      if (up_ && from == incarnation_) {
        const bool before = coordinator_.gathering();
        coordinator_.PortionDone(worker, part.number, part.portion);
        if (before && !coordinator_.gathering()) Broadcast();
      }
      Seek(worker);
    });
  }

  const Setup setup_;
  Coordinator coordinator_;
  std::map<std::pair<int, int>, std::unique_ptr<VectorShard<T>>> shards_;  // nullptr: dead
  std::vector<bool> alive_;
  std::priority_queue<Event> events_;
  double now_ = 0;
  std::int64_t order_ = 0;
  bool up_ = true;  // the coordinator
  int incarnation_ = 0, takeovers_ = 0;
  std::vector<std::vector<double>> iterates_;
  std::vector<int> counted_;
  std::size_t command_bytes_max_ = 0;
  Status status_;
};

}  // namespace troop::test
