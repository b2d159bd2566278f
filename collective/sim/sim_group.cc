// Implements groups over simulated pipes. All ranks share one World, whose clock jumps to the next
// arrival when a rank is idle.
#include "collective/sim/sim_group.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "collective/engine/engine.h"
#include "core/base/philox.h"

namespace troop {

// The pipes of all ranks and the virtual clock. One mutex protects everything.
class SimGroup::World {
 public:
  explicit World(const SimGroupOptions& options)
      : options_(options),
        rng_({.run_seed = options.seed, .purpose = Purpose::kTest}),
        ends_(std::size_t(options.size)),
        pipes_(std::size_t(options.size) * std::size_t(options.size)) {}

  const SimGroupOptions& options() const { return options_; }

  Time Now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  // Accepts a bounded number of bytes and schedules their arrival.
  std::size_t Send(int from, int to, std::span<const std::byte> first,
                   std::span<const std::byte> second) {
    const std::lock_guard lock(mutex_);
    // A dead rank's messages vanish, as those of a killed process do.
    if (EndOf(from).dead) return 0;
    std::string bytes(reinterpret_cast<const char*>(first.data()), first.size());
    bytes.append(reinterpret_cast<const char*>(second.data()), second.size());
    // A bound makes partial sends common, which real sockets show only under load.
    if (bytes.size() > options_.piece_bytes_max) bytes.resize(options_.piece_bytes_max);
    const std::size_t sent = bytes.size();
    Deliver(from, to, {.bytes = std::move(bytes)});
    return sent;
  }

  // Takes what has arrived, up to the room.
  std::size_t Receive(int to, int from, std::span<std::byte> first, std::span<std::byte> second) {
    const std::lock_guard lock(mutex_);
    std::string& arrived = PipeOf(from, to).arrived;
    const std::size_t head = std::min(first.size(), arrived.size());
    const std::size_t rest = std::min(second.size(), arrived.size() - head);
    if (head > 0) std::memcpy(first.data(), arrived.data(), head);
    if (rest > 0) std::memcpy(second.data(), arrived.data() + head, rest);
    arrived.erase(0, head + rest);
    return head + rest;
  }

  // Sends a failure to all other ranks.
  void Tell(int from, const Failure& failure) {
    const std::lock_guard lock(mutex_);
    if (EndOf(from).dead) return;
    for (int to = 0; to < options_.size; ++to) {
      if (to != from) Deliver(from, to, {.failure = failure});
    }
  }

  // An orderly exit: good-byes to all, after the bytes sent before.
  void Leave(int rank) {
    const std::lock_guard lock(mutex_);
    End& end = EndOf(rank);
    if (end.dead || end.gone) return;
    end.gone = true;
    for (int to = 0; to < options_.size; ++to) {
      if (to != rank) Deliver(rank, to, {.left = true});
    }
    Announce();
  }

  // Marks the rank dead; the others see it after the bytes sent before.
  void Kill(int rank) {
    const std::lock_guard lock(mutex_);
    if (EndOf(rank).dead) return;
    const Failure dead{Unavailable("rank {} has died", rank), rank};
    for (int to = 0; to < options_.size; ++to) {
      // Like a closed socket: the failure arrives after all earlier bytes.
      if (to != rank) Deliver(rank, to, {.failure = dead});
    }
    EndOf(rank).dead = true;
    EndOf(rank).failure = Failure{Cancelled("rank {} was killed", rank), rank};
    // An event, so that a blocked Idle of the killed rank returns as well.
    ++EndOf(rank).events;
    Announce();
  }

  void Cut(int from, int to) {
    const std::lock_guard lock(mutex_);
    PipeOf(from, to).cut = true;
  }

  std::optional<Failure> failure(int rank) const {
    const std::lock_guard lock(mutex_);
    return ends_[std::size_t(rank)].failure;
  }
  bool said_goodbye(int rank, int peer) {
    const std::lock_guard lock(mutex_);
    return PipeOf(peer, rank).left;
  }
  bool left(int rank, int peer) {
    const std::lock_guard lock(mutex_);
    const Pipe& pipe = PipeOf(peer, rank);
    // Bytes before the good-bye must be read first.
    return pipe.left && pipe.arrived.empty();
  }

  void Advance(Duration duration) {
    const std::lock_guard lock(mutex_);
    AdvanceTo(now_ + duration);
  }

  // Blocks until an event for `rank` since its last Idle. With pieces in flight, time jumps to the
  // next arrival; otherwise other threads may still act, so time follows the real clock.
  void Idle(int rank, Time until) {
    std::unique_lock lock(mutex_);
    End& end = EndOf(rank);
    while (end.events == end.noticed) {
      if (!under_way_.empty()) {
        AdvanceTo(under_way_.begin()->first);
        continue;
      }
      if (now_ >= until) break;
      // The real wait lets the threads of other ranks run; without it, time would stand still.
      if (changed_.wait_for(lock, Milliseconds(1)) == std::cv_status::timeout) {
        AdvanceTo(now_ + Milliseconds(1));
      }
    }
    end.noticed = end.events;
  }

  // World of one color of a Split; the first rank creates it.
  std::shared_ptr<World> Part(std::uint64_t split, int color, const SimGroupOptions& options) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<World>& part = parts_[{split, color}];
    if (part == nullptr) part = std::make_shared<World>(options);
    return part;
  }

 private:
  // Bytes, a failure or a good-bye in flight.
  struct Piece {
    int from = 0, to = 0;
    std::string bytes;
    std::optional<Failure> failure;
    bool left = false;
  };
  // One direction between two ranks.
  struct Pipe {
    std::string arrived;
    Time last{};  // arrival of the newest piece, which later ones must not overtake
    bool cut = false;
    bool left = false;
  };
  // State of one rank. Idle returns when `events` differs from `noticed`.
  struct End {
    bool dead = false, gone = false;
    std::uint64_t events = 0, noticed = 0;
    std::optional<Failure> failure;
  };

  // REQUIRES for all private functions: the caller holds the mutex.
  End& EndOf(int rank) { return ends_[std::size_t(rank)]; }
  Pipe& PipeOf(int from, int to) { return pipes_[std::size_t(from * options_.size + to)]; }

  // Schedules a piece after a random delay, in order per pipe.
  void Deliver(int from, int to, Piece piece) {
    Pipe& pipe = PipeOf(from, to);
    if (pipe.cut) return;
    piece.from = from;
    piece.to = to;
    Duration delay = options_.delay_min;
    if (options_.delay_max > delay) {
      const auto range = std::uint32_t((options_.delay_max - delay).count());
      delay += Duration(rng_.Below(range + 1));
    }
    // A later piece may draw a shorter delay, but a stream has an order.
    pipe.last = std::max(pipe.last, now_ + delay);
    if (pipe.last <= now_) return Arrive(std::move(piece));
    under_way_.emplace(pipe.last, std::move(piece));
  }

  // Hands a piece to its receiver. The first failure is kept.
  void Arrive(Piece piece) {
    Pipe& pipe = PipeOf(piece.from, piece.to);
    pipe.arrived += piece.bytes;
    pipe.left |= piece.left;
    End& end = EndOf(piece.to);
    if (piece.failure && !end.failure) end.failure = std::move(piece.failure);
    ++end.events;
    Announce();
  }

  // Moves the clock and delivers what is due.
  void AdvanceTo(Time time) {
    now_ = std::max(now_, time);
    while (!under_way_.empty() && under_way_.begin()->first <= now_) {
      Piece piece = std::move(under_way_.begin()->second);
      under_way_.erase(under_way_.begin());
      Arrive(std::move(piece));
    }
    Announce();
  }

  void Announce() { changed_.notify_all(); }

  const SimGroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Time now_{};
  Rng rng_;
  std::vector<End> ends_;
  std::vector<Pipe> pipes_;
  std::multimap<Time, Piece> under_way_;
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<World>> parts_;
};

namespace {

using World = SimGroup::World;

// One rank's Wire in a World.
class SimWire final : public Wire {
 public:
  SimWire(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  ~SimWire() override { world_->Leave(rank_); }
  int rank() const override { return rank_; }
  int size() const override { return world_->options().size; }
  std::size_t Send(int peer, std::span<const std::byte> first,
                   std::span<const std::byte> second) override {
    return world_->Send(rank_, peer, first, second);
  }
  std::size_t Receive(int peer, std::span<std::byte> first, std::span<std::byte> second) override {
    return world_->Receive(rank_, peer, first, second);
  }
  void Idle(Time until) override { world_->Idle(rank_, until); }
  std::optional<Failure> failure() const override { return world_->failure(rank_); }
  bool said_goodbye(int peer) const override { return world_->said_goodbye(rank_, peer); }
  bool left(int peer) const override { return world_->left(rank_, peer); }
  void Abort(const Failure& failure) override { world_->Tell(rank_, failure); }
  Time Now() const override { return world_->Now(); }

 private:
  const std::shared_ptr<World> world_;
  const int rank_;
};

std::unique_ptr<Collective> MakeRank(std::shared_ptr<World> world, int rank);

// Splits a group: an all-gather of color and key, then a new World per color.
Result<std::unique_ptr<Collective>> SplitWorld(World& world, std::uint64_t split, Collective& group,
                                               int color, int key) {
  Tensor mine(DType::kI32, {2});
  mine.as<std::int32_t>()[0] = color;
  mine.as<std::int32_t>()[1] = key;
  Tensor all(DType::kI32, {group.size(), 2});
  TROOP_RETURN_IF_ERROR(RunOp(group, {.kind = OpKind::kAllGather}, mine, all));
  // A negative color: this rank takes part in the exchange, but in no new group.
  if (color < 0) return std::unique_ptr<Collective>();
  const auto values = all.as<std::int32_t>();
  SimGroupOptions options = world.options();
  options.size = 0;
  int place = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::size_t at = std::size_t(2 * rank);
    if (values[at] != color) continue;
    ++options.size;
    // The order of key, then of rank, as MPI_Comm_split has it.
    if (std::pair(values[at + 1], rank) < std::pair(key, group.rank())) ++place;
  }
  return MakeRank(world.Part(split, color, options), place);
}

// Without HostTopology: simulated ranks use the wire only.
std::unique_ptr<Collective> MakeRank(std::shared_ptr<World> world, int rank) {
  const Duration timeout = world->options().timeout;
  // All ranks split in the same order, so equal counts name the same split.
  auto split = [world, count = std::uint64_t{0}](Collective& group, int color, int key) mutable {
    return SplitWorld(*world, ++count, group, color, key);
  };
  return std::make_unique<Engine>(
      std::make_unique<SimWire>(world, rank),
      EngineOptions{.name = "simulated group", .timeout = timeout, .split = std::move(split)});
}

}  // namespace

SimGroup::SimGroup(const SimGroupOptions& options) : world_(std::make_shared<World>(options)) {}
std::unique_ptr<Collective> SimGroup::Rank(int rank) { return MakeRank(world_, rank); }
void SimGroup::Kill(int rank) { world_->Kill(rank); }
void SimGroup::Cut(int from, int to) { world_->Cut(from, to); }
void SimGroup::Advance(Duration duration) { world_->Advance(duration); }
Time SimGroup::Now() const { return world_->Now(); }

}  // namespace troop
