// Reference semantics of the synchronization modes (BSP, k-of-n, SSP, async, local SGD), replayed
// from the arrival order that the real run recorded.
#include "apps/selfcheck/trace_replay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

namespace troop {
namespace {

// A learner: computes once all shards have answered its pull.
struct Learner {
  struct Push {
    Doubles payload;                    // [P]
    std::vector<std::uint64_t> clocks;  // of each shard
    double loss = 0;                    // of the last gradient
  };
  Doubles value, sum, moved;            // [P]: local parameters, gradient sum, local movement
  Doubles pulled;                       // [P], received parameters
  std::vector<std::uint64_t> versions;  // last received, by shard
  std::set<int> answered;               // shards that answered the open pull
  std::map<std::uint64_t, Push> pushes;
  Doubles residual;  // error feedback of its encoders
  std::int64_t steps = 0, pulled_at = 0, pushed_at = 0;
  std::uint64_t sequence = 0;
};

// A shard: held pushes are those accepted but not applied, parked learners wait for a pull reply.
struct Shard {
  struct Held {
    std::int32_t learner = 0;
    std::uint64_t order = 0, clock = 0;
    bool dropped = false;
    Doubles gradient;  // of the shard's elements
  };
  std::vector<std::size_t> elements;
  std::uint64_t version = 1, next_order = 0;
  std::int64_t steps = 0;
  std::map<std::int32_t, std::uint64_t> clocks;  // of the learners that have joined
  std::map<std::int32_t, ReferenceGuard> losses, norms;
  std::vector<Held> held;
  std::set<std::int32_t> parked;
  bool backed_up = true;
};

class Replay {
 public:
  Replay(const SyncCase& sync_case, const ToyModel& problem, const ShardMap& map)
      : case_(sync_case), problem_(problem), optimizer_(sync_case.config, problem) {
    const std::vector<float> first = problem.FirstValue();
    value_.assign(first.begin(), first.end());
    for (const std::int32_t id : map.shards()) {
      Shard& shard = shards_.emplace_back();
      shard.backed_up = !case_.backup;
      for (const ParamRange& range : map.RangesOf(id)) {
        for (auto i = range.begin; i < range.end; ++i) shard.elements.push_back(std::size_t(i));
      }
    }
    for (int i = 0; i < case_.sync.learners; ++i) {
      Learner& learner = learners_.emplace_back();
      learner.value = learner.pulled = learner.residual = Doubles(value_.size());
      learner.sum = learner.moved = learner.value;
      learner.versions.resize(shards_.size());
    }
  }

  // Processes one message.
  Status Take(const SyncArrival& arrival) {
    if (arrival.backed_up) {
      shards_[std::size_t(arrival.shard)].backed_up = true;
      Settle(arrival.shard);
      return Status::Ok();
    }
    if (arrival.learner < 0 || arrival.learner >= case_.sync.learners) {
      return DataLoss("a message of an unknown learner {}", arrival.learner);
    }
    if (arrival.push) TROOP_RETURN_IF_ERROR(TakePush(arrival));
    if (!arrival.push) TakePull(arrival.shard, arrival.learner);
    Settle(arrival.shard);
    return Status::Ok();
  }

  // The result after all messages.
  SyncExpected Finish() const {
    SyncExpected expected{.value = value_};
    for (const Shard& shard : shards_) expected.versions.push_back(shard.version);
    return expected;
  }

 private:
  SyncMode mode() const { return case_.sync.mode; }
  // True if each push is a separate update.
  bool immediate() const {
    return mode() == SyncMode::kAsync || (mode() == SyncMode::kSsp && case_.sync.staleness > 0);
  }
  // True if gradients of older versions are ignored.
  bool fresh_only() const { return mode() == SyncMode::kKOfN ? case_.sync.cancel : !immediate(); }
  bool complete(const Shard& shard) const {
    return shard.clocks.size() >= std::size_t(case_.sync.learners);
  }
  // Clock of the slowest learner; 0 until all have joined.
  std::uint64_t Slowest(const Shard& shard) const {
    if (!complete(shard)) return 0;
    std::uint64_t least = shard.clocks.begin()->second;
    for (const auto& [learner, clock] : shard.clocks) least = std::min(least, clock);
    return least;
  }
  static bool Waits(const Shard& shard, std::int32_t learner) {
    return std::ranges::find(shard.held, learner, &Shard::Held::learner) != shard.held.end();
  }

  // True if the shard may answer the learner's pull: async after the warm start, SSP within the
  // staleness bound, else once the learner's push was applied.
  bool MayGoOn(const Shard& shard, std::int32_t learner) const {
    if (mode() == SyncMode::kAsync) {
      return shard.version >= case_.sync.warm_start_updates ||
             shard.clocks.begin()->first == learner;
    }
    if (immediate()) {
      return shard.clocks.at(learner) <= Slowest(shard) + case_.sync.staleness;
    }
    return case_.sync.per_batch || !Waits(shard, learner);
  }

  // A learner joins with its first pull, at the clock of the slowest one.
  void TakePull(int place, std::int32_t learner) {
    Shard& shard = shards_[std::size_t(place)];
    shard.clocks.emplace(learner, Slowest(shard));
    shard.parked.insert(learner);
  }

  // Gives the shard's present parameters to the learner, which continues after the last shard.
  void Answer(int place, std::int32_t rank) {
    Learner& learner = learners_[std::size_t(rank)];
    const Shard& shard = shards_[std::size_t(place)];
    // Shards answer at different times, so a pull may mix parameters of several versions.
    for (const std::size_t i : shard.elements) learner.pulled[i] = value_[i];
    learner.versions[std::size_t(place)] = shard.version;
    learner.answered.insert(place);
    if (learner.answered.size() == shards_.size()) ContinueRun(&learner, rank);
  }

  // Lets the learner compute and push until its next pull.
  void ContinueRun(Learner* l, std::int32_t rank) {
    l->answered.clear();
    l->value = l->pulled;
    // Local movement that is not pushed yet is kept on top of the pulled parameters.
    if (l->steps > l->pushed_at && case_.replica.push_every > 1) {
      for (std::size_t i = 0; i < l->value.size(); ++i) l->value[i] += l->moved[i];
    }
    l->pulled_at = l->steps;
    // Between pulls the learner continues on its local parameters.
    while (l->steps - l->pulled_at < case_.replica.pull_every) {
      const auto batch = std::uint64_t(l->steps) * std::uint64_t(case_.sync.learners);
      double loss = 0;
      const Doubles g = ReferenceGradient(problem_, l->value, batch + std::uint64_t(rank), &loss);
      if (l->steps == l->pushed_at) {
        l->sum.assign(g.size(), 0);
        l->moved.assign(g.size(), 0);
      }
      for (std::size_t i = 0; i < g.size(); ++i) {
        l->value[i] -= double(case_.learning_rate) * g[i];
        l->moved[i] -= double(case_.learning_rate) * g[i];
        l->sum[i] += g[i];
      }
      ++l->steps;
      if (l->steps - l->pushed_at < case_.replica.push_every) continue;
      l->pushes[++l->sequence] = {case_.replica.push_value ? l->value : l->sum, l->versions, loss};
      l->pushed_at = l->steps;
    }
  }

  ReferenceGuard& Guard(std::map<std::int32_t, ReferenceGuard>* guards, std::int32_t learner,
                        double deviations) const {
    return guards->try_emplace(learner, deviations, case_.guards).first->second;
  }

  // Decodes the push against the reference encoder, then applies the guards: staleness first, then
  // loss and norm. A dropped push still advances the learner's clock.
  Status TakePush(const SyncArrival& arrival) {
    Shard& shard = shards_[std::size_t(arrival.shard)];
    Learner& learner = learners_[std::size_t(arrival.learner)];
    const auto found = learner.pushes.find(arrival.sequence);
    if (found == learner.pushes.end() || arrival.parts.size() != 1) {
      return DataLoss("learner {}: push {} arrived before it could be computed", arrival.learner,
                      arrival.sequence);
    }
    // The clock is the shard version that the gradient was computed at.
    const std::uint64_t clock = found->second.clocks[std::size_t(arrival.shard)];
    Doubles gradient, residual;
    for (const std::size_t i : shard.elements) {
      gradient.push_back(found->second.payload[i]);
      residual.push_back(learner.residual[i]);
    }
    TROOP_ASSIGN_OR_RETURN(gradient,
                           ReferenceSent(case_.codec, arrival.parts[0], gradient, &residual));
    for (std::size_t i = 0; i < residual.size(); ++i) {
      learner.residual[shard.elements[i]] = residual[i];
    }
    const std::int64_t limit = case_.guards.staleness_max;
    bool dropped = limit >= 0 && shard.version - clock > std::uint64_t(limit);
    if (!dropped) {
      const bool loss = Guard(&shard.losses, arrival.learner, case_.guards.loss_deviations)
                            .Judge(found->second.loss);
      double squares = 0;
      for (const double x : found->second.payload) squares += x * x;
      const bool norm = Guard(&shard.norms, arrival.learner, case_.guards.norm_deviations)
                            .Judge(std::sqrt(squares));
      dropped = loss || norm;
    }
    // Judged nevertheless: the guards' statistics cover ignored gradients too.
    if (fresh_only() && clock < shard.version) return Status::Ok();
    if (dropped && immediate()) {
      ++shard.clocks[arrival.learner];
      return Status::Ok();
    }
    shard.held.push_back(
        {arrival.learner, shard.next_order++, clock, dropped, std::move(gradient)});
    return Status::Ok();
  }

  // True if the held pushes make an update.
  bool Due(const Shard& shard) const {
    if (shard.held.empty()) return false;
    if (immediate()) return true;
    if (!complete(shard)) return false;
    if (mode() == SyncMode::kKOfN) {
      if (shard.held.size() >= std::size_t(case_.sync.k)) return true;
      if (case_.sync.per_batch) return false;
    }
    return std::ranges::all_of(shard.clocks,
                               [&](const auto& entry) { return Waits(shard, entry.first); });
  }

  // Makes due updates, then answers pulls: a learner that joins may make an update due, and its
  // pull must include that update.
  void Settle(int place) {
    Shard& shard = shards_[std::size_t(place)];
    // With a backup, the next update waits until the backup has the previous one.
    while (shard.backed_up && Due(shard)) {
      std::vector<Shard::Held> taken = std::exchange(shard.held, {});
      if (immediate() && taken.size() > 1) {
        shard.held.assign(taken.begin() + 1, taken.end());
        taken.resize(1);
      }
      Update(&shard, taken);
      shard.backed_up = !case_.backup;
    }
    if (!shard.backed_up) return;
    for (const std::int32_t learner : std::set<std::int32_t>(shard.parked)) {
      if (!MayGoOn(shard, learner)) continue;
      shard.parked.erase(learner);
      Answer(place, learner);
    }
  }

  // Applies pushes as one update: their weighted mean, or for SSP their share of all learners.
  void Update(Shard* shard, const std::vector<Shard::Held>& taken) {
    Doubles sum(shard->elements.size());
    std::size_t terms = 0;
    for (const Shard::Held& held : taken) {
      ++shard->clocks[held.learner];
      if (held.dropped) continue;
      ++terms;
      // Damping divides a stale gradient by its age in updates.
      const auto age = double(shard->version - held.clock);
      const double weight = case_.sync.staleness_discount && age > 1 ? 1 / age : 1;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weight * held.gradient[i];
    }
    ++shard->version;
    if (terms == 0) return;
    // SSP scales by the number of learners, so that one push has its share of an update.
    const bool share = mode() == SyncMode::kSsp && immediate();
    const double scale = 1 / double(share ? shard->clocks.size() : terms);
    if (mode() == SyncMode::kLocalSgd) {
      // Local SGD replaces the parameters by the mean of the learners' values.
      for (std::size_t i = 0; i < sum.size(); ++i) value_[shard->elements[i]] = scale * sum[i];
      return;
    }
    optimizer_.Step(shard->elements, sum, scale, double(case_.learning_rate), ++shard->steps,
                    &value_);
  }

  const SyncCase& case_;
  const ToyModel& problem_;
  ReferenceOptimizer optimizer_;
  Doubles value_;
  std::vector<Shard> shards_;
  std::vector<Learner> learners_;
};

}  // namespace

// Deterministic: the arrival order is the only input that the real run determined.
Result<SyncExpected> ReplaySync(const SyncCase& sync_case, const ToyModel& problem,
                                const ShardMap& map, const std::vector<SyncArrival>& arrivals) {
  Replay replay(sync_case, problem, map);
  for (const SyncArrival& arrival : arrivals) TROOP_RETURN_IF_ERROR(replay.Take(arrival));
  return replay.Finish();
}

}  // namespace troop
