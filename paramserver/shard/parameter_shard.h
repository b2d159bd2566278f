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
#include "core/config/config.h"
#include "core/metrics/histogram.h"
#include "core/metrics/metrics.h"
#include "nn/optimizer.h"
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
  std::uint64_t epoch = 0;   // of the shard map that it was cut by
  std::uint64_t clock = 0;   // version that it was computed at
  std::uint64_t step = 0;    // the largest such version among all shards
  float learning_rate = 0;   // an update uses the largest of its pushes
  float loss = 0, norm = 0;  // for the guards; the norm is that of the whole push, to all shards
  std::vector<GradientPayload> parts;
};

// One applied update: what the owner needs to answer pushes, and all that a backup needs to repeat
// it.
struct ShardUpdate {
  struct Settled {
    PushId id;
    float loss = 0, norm = 0;
    bool judged = false;  // counted in the guards' statistics
    template <class A>
    void serialize(A& a) {
      a(id, loss, norm, judged);
    }
  };
  std::uint64_t from = 0, version = 0;  // before and after it
  float scale = 1, learning_rate = 0;
  bool average_values = false;
  std::vector<Settled> settled;  // applied by it, and dropped since the update before
  std::vector<SyncPolicy::Member> members;
  // [n] f32, the summed gradient; empty if every push was dropped. Kept only if Options::keep_sums.
  Buffer sum;

  template <class A>
  void serialize(A& a) {
    a(from, version, scale, learning_rate, average_values, settled, members);
  }
};

// The parameters of some ranges of the arena, with their optimizer. Applies each push once, when
// and as SyncPolicy decides. No clock, lock or socket; owner: a parameter server's loop.
// Invariants: a push is settled at most once over all snapshots, reshardings and takeovers of its
// ranges; equal pushes in equal order give equal bytes, however the arena is cut; a snapshot that
// was handed out never changes. Versions increase by one; in synchronous modes a shard restored
// from an old snapshot adopts the others' version with the next update (ShardPush::step).
// Memory: value, optimizer slots, up to two versions, one sum, and the held pushes.
// Hogwild! (Recht et al. 2011; SyncMode::kAsync only): several threads apply updates concurrently,
// without locks (HogwildArena). The invariants hold, except that the order of updates, and
// therefore the last bits, are nondeterministic. A version counts once its update is complete, and
// a pull may contain some elements of an incomplete one. One thread gives the same bytes as none.
class ParameterShard {
 public:
  struct Options {
    Config config;  // optimizer
    std::vector<ParamRange> ranges;
    std::vector<ParamRange> undecayed;  // of the arena, sorted: no optimizer.weight_decay
    std::uint64_t epoch = 1;
    SyncOptions sync;
    GradientFilterOptions guards;
    // 2: Pull(version() - 1) is possible, so that K synchronous shards can serve one version; costs
    // a copy per update. 1: only the newest; copies only if a reader has it at the next update.
    int versions_kept = 2;
    // Maximum number of updates; later pushes are dropped. 0: no limit.
    std::uint64_t updates_max = 0;
    bool keep_sums = false;  // for a backup
    // Hogwild: executor that applies updates; must outlive the shard and queue kApplyingMax jobs.
    Executor* hogwild = nullptr;
  };
  // Hogwild: limits on updates that run or are queued on threads, and on pushes held beyond those.
  static constexpr std::size_t kApplyingMax = 64, kHeldMax = 256;
  enum class Outcome {
    kHeld,      // a coming update settles it: answer it then
    kRepeated,  // already settled: answer it
    kLate,      // this and the following outcomes are settled without effect
    kTooOld,
    kOutlier,
  };

  // Creates a shard. `value`: the concatenated ranges after `updates` updates; the version is
  // updates + 1. Errors: kInvalidArgument.
  static Result<std::unique_ptr<ParameterShard>> Make(const Options& options,
                                                      std::span<const float> value,
                                                      std::uint64_t updates = 0);
  // Restores a shard from snapshots of one or several shards, which together hold every range of
  // options.ranges exactly once, and possibly more; used for restarts and for resharding. The
  // snapshots must have been taken while no push was held. A push that any of them had settled is
  // settled; those that another had not are of an older epoch and never accepted again. Errors:
  // kDataLoss: damaged; kFailedPrecondition: of another optimizer, or a range is missing or
  // duplicated.
  static Result<std::unique_ptr<ParameterShard>> Restore(const Options& options,
                                                         std::span<const Buffer> snapshots);
  // Checks that the bytes are an intact snapshot, of any ranges. Errors: as in Restore.
  static Status CheckSnapshot(const Buffer& snapshot);
  // Hogwild: blocks until the threads have completed the updates in flight.
  ~ParameterShard();
  // Serializes all that Restore needs, with a checksum. Held pushes are excluded: they were not
  // acknowledged, so learners repeat them. O(n). REQUIRES: applying() == 0.
  Buffer Snapshot();
  // Snapshot of `ranges` only: sorted, each equal to or inside one of the shard's ranges.
  Buffer Snapshot(std::span<const ParamRange> ranges);

  void Join(std::int32_t learner) { policy_.Join(learner); }
  // Call ApplyNext afterwards: an update may have waited for this learner only.
  void Leave(std::int32_t learner) { policy_.Leave(learner); }

  // Accepts a push. Errors: kFailedPrecondition: another epoch, not a member, or it must pull
  // first; kAborted: of a replaced incarnation; kResourceExhausted: too many learners, or kHeldMax.
  Result<Outcome> Push(ShardPush push);
  // Applies the update that is due; call until it returns nullopt. Hogwild: submits all due updates
  // to the threads and returns one that is complete; call again when the threads wake the owner.
  // `begins` = false: starts no new update.
  std::optional<ShardUpdate> ApplyNext(bool begins = true);
  // Repeats an update of the primary on its backup. Errors: kFailedPrecondition: not the next
  // update (restore from a snapshot first); kDataLoss: of another size.
  Status Follow(const ShardUpdate& update);

  bool MayPull(std::int32_t learner) const { return policy_.MayPull(learner); }
  // Returns version `exact`; 0: the newest. Errors: kNotFound: no longer kept, or not yet reached.
  Result<WeightSnapshot> Pull(std::uint64_t exact = 0);

  // True if this learner is known already, or one more fits.
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
  const Histogram& staleness() const { return staleness_; }
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
  std::vector<Optimizer::Group> groups_;  // of value_, by weight decay
  CopyOnWriteFloats value_;
  std::unique_ptr<HogwildArena> arena_;  // Hogwild: over value_ and optimizer_
  std::vector<std::unique_ptr<Applying>> applying_;
  MutableBuffer sum_;
  std::map<std::uint64_t, Held> held_;  // by the policy's id
  std::uint64_t next_id_ = 1;
  std::vector<ShardUpdate::Settled> dropped_;  // since the last update
  WeightSnapshot newest_, previous_;           // version 0: not requested yet
  Histogram staleness_;
  Counters counters_;
};

}  // namespace troop
