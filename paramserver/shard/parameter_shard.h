#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/node.h"
#include "core/base/status.h"
#include "core/metrics/histogram.h"
#include "core/metrics/metrics.h"
#include "nn/optimizer.h"
#include "nn/optimizer_config.h"
#include "nn/parallel/hogwild_arena.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/shard/copy_on_write_floats.h"
#include "paramserver/shard/outlier_filter.h"
#include "paramserver/shard/push_dedup.h"
#include "paramserver/shard/shard_map.h"
#include "paramserver/shard/sync_policy.h"
#include "paramserver/weight_snapshot.h"

namespace troop {

// A learner's push to one shard: the gradient (kLocalSgd: the value) of the shard's ranges, in
// consecutive parts.
struct ShardPush {
  PushId id;
  std::uint64_t epoch = 0;   // epoch of the shard map that defines the ranges
  std::uint64_t clock = 0;   // version of this shard that the gradient was computed at
  std::uint64_t step = 0;    // newest version that the learner pulled from any shard
  float learning_rate = 0;   // an update uses the largest learning rate of its pushes
  float loss = 0, norm = 0;  // input of the guards; norm of the gradient over all shards
  std::vector<GradientPayload> parts;
};

// One applied update: the data that the owner needs to answer pushes and a backup needs to repeat
// the update.
struct ShardUpdate {
  // A push that was applied or dropped, and is therefore never applied again.
  struct Settled {
    PushId id;
    float loss = 0, norm = 0;
    bool judged = false;  // true if counted in the guards' statistics
    template <class A>
    void serialize(A& a) {
      a(id, loss, norm, judged);
    }
  };
  std::uint64_t from = 0, version = 0;  // versions before and after the update
  float scale = 1, learning_rate = 0;
  bool average_values = false;
  std::vector<Settled> settled;  // pushes applied by it, and pushes dropped since the last one
  std::vector<SyncPolicy::Member> members;
  // [n] f32, the summed gradient; empty if every push was dropped. Kept only if Options::keep_sums.
  Buffer sum;

  template <class A>
  void serialize(A& a) {
    a(from, version, scale, learning_rate, average_values, settled, members);
  }
};

// The parameters of some ranges of the arena, with their optimizer. Applies each push once;
// SyncPolicy decides when and with which weight. A push is settled if it was applied or dropped,
// and held until then. No clock, lock or socket; owner: a parameter server's loop.
// Invariants:
// 1. A push is settled at most once over all snapshots, reshardings and takeovers of its ranges.
// 2. Equal pushes in equal order give equal bytes, whatever the shard map.
// 3. A snapshot that was returned never changes.
// 4. Versions increase by one. Exception in synchronous modes: a shard restored from an old
//    snapshot adopts the version of the other shards with its next update (ShardPush::step).
// Memory: value, optimizer slots, up to two versions, one sum, and the held pushes.
// Hogwild! (Recht et al. 2011; SyncMode::kAsync only): several threads apply updates concurrently,
// without locks (HogwildArena). The order of updates is then nondeterministic, and so are the last
// bits (invariant 2). version() counts complete updates only; a pull may contain some elements of
// an incomplete update. One thread gives the same bytes as none.
class ParameterShard {
 public:
  struct Options {
    OptimizerConfig optimizer;
    std::vector<ParamRange> ranges;     // sorted, disjoint ranges that this shard holds
    std::vector<ParamRange> undecayed;  // sorted ranges of the arena without weight decay
    std::uint64_t epoch = 1;            // epoch of the shard map
    SyncOptions sync;
    GradientFilterOptions guards;  // limits beyond which pushes are dropped
    // 1: only the newest version can be pulled; an update copies it only if a reader still uses it.
    // 2: the version before it, too, so that several synchronous shards can serve the same version;
    // costs a copy per update.
    int versions_kept = 2;
    // Maximum number of updates; later pushes are dropped. 0: no limit.
    std::uint64_t updates_max = 0;
    bool keep_sums = false;  // true if a backup repeats the updates (ShardUpdate::sum)
    // Hogwild: executor that applies updates; nullptr: none. REQUIRES: it outlives the shard and
    // has room for kApplyingMax jobs.
    Executor* hogwild = nullptr;
  };
  // Hogwild: limits of the updates that run or are queued on threads, and of the held pushes, which
  // wait for one of those places.
  static constexpr std::size_t kApplyingMax = 64, kHeldMax = 256;
  // Result of a push. The owner answers a push once it is settled.
  enum class Outcome {
    kHeld,      // not settled yet: a later ShardUpdate lists it
    kRepeated,  // a repeat of a settled push
    kLate,      // dropped: its version no longer counts, or updates_max is reached
    kTooOld,    // dropped: its staleness exceeds the limit of the guards
    kOutlier,   // dropped: its loss or norm exceeds the limit of the guards
  };

  // Creates a shard of version updates + 1. value: [n] f32, the concatenated ranges after `updates`
  // updates. Errors: kInvalidArgument: invalid options, another size, or a non-finite value.
  static Result<std::unique_ptr<ParameterShard>> Make(const Options& options,
                                                      std::span<const float> value,
                                                      std::uint64_t updates = 0);
  // Restores a shard from snapshots of one or several shards, for a restart or for resharding.
  // Together they hold each of options.ranges exactly once, and possibly other ranges. A push that
  // is settled in any of the snapshots is settled in the new shard. A push that only some of the
  // old shards had settled cannot be repeated, because its epoch is older. REQUIRES: no push was
  // held when the snapshots were taken. Errors: kInvalidArgument: invalid options, or no snapshot;
  // kDataLoss: a damaged snapshot; kFailedPrecondition: another format or optimizer, or a range is
  // missing or duplicated.
  static Result<std::unique_ptr<ParameterShard>> Restore(const Options& options,
                                                         std::span<const Buffer> snapshots);
  // Checks that the bytes are an intact snapshot; its ranges are not compared with those of any
  // shard. Errors: kDataLoss: damaged; kFailedPrecondition: another format.
  static Status CheckSnapshot(const Buffer& snapshot);
  // Destroys the shard. Hogwild: blocks until the threads have completed the updates in flight.
  ~ParameterShard();
  // Serializes the state that Restore reads, with a checksum. Held pushes are excluded: they were
  // not acknowledged, so learners repeat them. O(n). REQUIRES: applying() == 0.
  Buffer Snapshot();
  // Serializes only the elements of `ranges`. REQUIRES: as above; `ranges` are sorted, and each is
  // inside one of the shard's ranges.
  Buffer Snapshot(std::span<const ParamRange> ranges);

  // Adds a member, which synchronous updates wait for. No effect if it is one already.
  void Join(std::int32_t learner) { policy_.Join(learner); }
  // Removes a member. Call ApplyNext afterwards, because an update may have waited for it.
  void Leave(std::int32_t learner) { policy_.Leave(learner); }

  // Accepts a push; dropped ones count as accepted. Errors: kInvalidArgument: malformed;
  // kFailedPrecondition: the push has another epoch, or its learner is not a member or must pull
  // first; kAborted: the incarnation was replaced; kResourceExhausted: too many learners, or
  // kHeldMax pushes are held (retry later).
  Result<Outcome> Push(ShardPush push);
  // Applies the update that is due and returns it; call until it returns nullopt. Hogwild: submits
  // all due updates to the threads and returns one that is complete, or nullopt; call again when
  // the threads wake the owner. `begins` = false: starts no new update.
  std::optional<ShardUpdate> ApplyNext(bool begins = true);
  // Repeats an update of the primary on its backup. Errors: kFailedPrecondition: not the next
  // update (restore from a snapshot first), or pushes are held; kDataLoss: another size, a
  // non-finite value, or unsorted members; kInvalidArgument: an unaligned sum;
  // kResourceExhausted: too many learners.
  Status Follow(const ShardUpdate& update);

  // True if this learner may continue with the current version (SyncPolicy::MayPull).
  bool MayPull(std::int32_t learner) const { return policy_.MayPull(learner); }
  // Returns version `exact`; 0: the newest. Errors: kNotFound: no longer kept, or not yet reached.
  Result<WeightSnapshot> Pull(std::uint64_t exact = 0);

  // True if this learner has pushed or joined before, or if one more fits.
  bool HasRoomFor(std::int32_t learner) const;
  std::uint64_t epoch() const { return options_.epoch; }
  std::uint64_t version() const { return policy_.version() - applying_.size(); }
  std::int64_t size() const { return std::int64_t(value().size()); }
  std::size_t held() const { return held_.size(); }
  std::size_t applying() const { return applying_.size(); }  // updates in flight on threads
  const SyncPolicy& policy() const { return policy_; }
  // REQUIRES: applying() == 0.
  std::span<const float> value() const { return value_.values(); }
  Optimizer& optimizer() { return *optimizer_; }
  const Histogram& staleness() const { return staleness_; }  // of applied pushes, in versions
  // Writes the counters and the staleness as metrics paramserver/….
  void Report(Metrics* metrics) const;

 private:
  struct Held {
    ShardPush push;
    bool judged = false;
  };
  // An update of one push that a thread is applying.
  struct Applying {
    ShardPush push;
    bool judged = false;
    SyncPolicy::Term term;
    float scale = 1;
    std::vector<Optimizer::Group> groups;
    Executor::Job job = 0;
  };
  struct Counters {
    std::uint64_t updates = 0, applied = 0, repeated = 0, late = 0, too_old = 0, outliers = 0;
  };
  struct Source;

  ParameterShard(const Options& options, std::unique_ptr<Optimizer> optimizer);
  static Result<std::unique_ptr<ParameterShard>> MakeEmpty(const Options& options);
  Status CheckPush(const ShardPush& push) const;
  bool Holds(const PushId& id) const;
  bool Judge(std::int32_t learner, float loss, float norm);
  bool IsBeyondLast() const;
  void Drop(const ShardPush& push, bool judged);
  static bool IsDense(const SyncPolicy::Update& update, const ShardPush& push);
  using Parts = std::vector<std::span<const float>>;
  Parts Sum(const SyncPolicy::Update& update, ShardUpdate* out);
  void BeginApplying();
  static void Apply(HogwildArena* arena, const Applying& update);
  std::optional<ShardUpdate> TakeApplied();
  void KeepVersion(std::uint64_t version);
  void Carry(const ShardUpdate& update, const Parts& sum);
  std::vector<ParamRange> PlacesOf(std::span<const ParamRange> ranges) const;
  static Result<Source> ReadSnapshot(const Buffer& snapshot);
  Status TakeState(std::span<const Source> sources);
  Status TakeRange(const ParamRange& range, std::size_t at, std::span<const Source> sources);

  Options options_;
  std::unique_ptr<Optimizer> optimizer_;
  SyncPolicy policy_;
  PushDedup dedup_;
  OutlierFilter losses_, norms_;
  std::vector<Optimizer::Group> groups_;  // parts of value_ with and without weight decay
  CopyOnWriteFloats value_;
  std::unique_ptr<HogwildArena> arena_;  // Hogwild: shared access to value_ and optimizer_
  std::vector<std::unique_ptr<Applying>> applying_;
  MutableBuffer sum_;
  std::map<std::uint64_t, Held> held_;  // by SyncPolicy::Arrival::id
  std::uint64_t next_id_ = 1;
  std::vector<ShardUpdate::Settled> dropped_;  // pushes dropped since the last update
  WeightSnapshot newest_, previous_;           // version 0: none yet
  Histogram staleness_;
  Counters counters_;
};

}  // namespace troop
