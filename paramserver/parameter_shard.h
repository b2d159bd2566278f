#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/config.h"
#include "core/histogram.h"
#include "core/metrics.h"
#include "core/node.h"
#include "core/status.h"
#include "nn/optimizer.h"
#include "nn/shared_arena.h"
#include "paramserver/client.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/lent_floats.h"
#include "paramserver/push_guards.h"
#include "paramserver/push_ledger.h"
#include "paramserver/shard_map.h"
#include "paramserver/sync_policy.h"

namespace troop {

// What a learner sends to one shard: the gradient (kLocalSgd: the value) of the shard's ranges, in
// parts that follow each other.
struct ShardPush {
  PushId id;
  std::uint64_t epoch = 0;   // of the shard map that it was cut by
  std::uint64_t clock = 0;   // the version that it was computed at
  std::uint64_t step = 0;    // the same of the shard that is furthest
  float learning_rate = 0;   // an update takes the largest of its pushes
  float loss = 0, norm = 0;  // for the guards; the norm is that of the whole push, to all shards
  std::vector<GradientPayload> parts;
};

// One update as it was carried out: what the owner answers pushes by, and all that a backup needs
// to do the same.
struct ShardUpdate {
  struct Settled {
    PushId id;
    float loss = 0, norm = 0;
    bool judged = false;  // by the guards of loss and norm
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
  // [n] f32, the sum; empty: nothing was left of it. Kept only where Options::keep_sums.
  Buffer sum;

  template <class A>
  void serialize(A& a) {
    a(from, version, scale, learning_rate, average_values, settled, members);
  }
};

// The parameters of some ranges of the arena, with their optimizer: applies each push once, when
// and as SyncPolicy says. No clock, no lock, no socket; owner: a parameter server's loop.
// Invariants: a push is settled at most once in all lives of its ranges, over snapshots, moves and
// takeovers; equal pushes in an equal order give equal bytes, however the arena is cut; a snapshot
// that was given out never changes. A version is one more than that before; in modes in step one
// that went back (an old snapshot) takes up the others' with the next update (ShardPush::step).
// Memory: value, optimizer slots, up to two versions, one sum, and the pushes that are held.
// Hogwild! (Recht et al. 2011; SyncMode::kAsync alone): several threads make updates at once,
// without locks (SharedArena). What else is said here holds, but that which update came first is
// chance, and so are the last bits; a version is counted when its update is done, and what is
// pulled may hold some of the elements of one that is not. One thread gives the bytes of none.
class ParameterShard {
 public:
  struct Options {
    Config config;  // optimizer
    std::vector<ParamRange> ranges;
    std::vector<ParamRange> undecayed;  // of the arena, sorted: without optimizer.weight_decay
    std::uint64_t epoch = 1;
    SyncOptions sync;
    GuardOptions guards;
    // 2: Pull(version() - 1) is possible, so that K shards in step give one version; costs a copy
    // an update. 1: only the newest; a copy where the next update comes while a reader has it.
    int versions_kept = 2;
    // No more updates are made; what is pushed beyond them changes nothing. 0: no limit.
    std::uint64_t updates_max = 0;
    bool keep_sums = false;  // there is a backup
    // Hogwild: whose threads make updates; it outlives the shard, and its queue takes kApplyingMax.
    Executor* hogwild = nullptr;
  };
  // Hogwild: updates that are made, or wait for a thread; and pushes beyond that.
  static constexpr std::size_t kApplyingMax = 64, kHeldMax = 256;
  enum class Outcome {
    kHeld,      // a coming update settles it: answer it then
    kRepeated,  // it was settled before: answer it
    kLate,      // these are settled: they change nothing
    kTooOld,
    kOutlier,
  };

  // `value`: that of the ranges, one after the other, after `updates` updates: version updates + 1.
  // Errors: kInvalidArgument.
  static Result<std::unique_ptr<ParameterShard>> Make(const Options& options,
                                                      std::span<const float> value,
                                                      std::uint64_t updates = 0);
  // From snapshots of one or several shards, which together hold every range of options.ranges
  // once, and perhaps more: how a shard comes back, and how ranges move. Their owners took them
  // while nothing was held. A push that one of them had settled is settled; those that another had
  // not are of an older epoch and never taken again. Errors: kDataLoss: damaged;
  // kFailedPrecondition: of another optimizer, or not every range, or one twice.
  static Result<std::unique_ptr<ParameterShard>> Restore(const Options& options,
                                                         std::span<const Buffer> snapshots);
  // Whether these bytes are a whole snapshot, of whatever ranges. Errors: as Restore.
  static Status CheckSnapshot(const Buffer& snapshot);
  // Hogwild: waits until the threads have done with it, for some updates' time.
  ~ParameterShard();
  // All that Restore needs, checksummed. Held pushes are not in it: they were not answered, so
  // learners repeat them. O(n). REQUIRES: applying() == 0.
  Buffer Snapshot();
  // The same of `ranges` alone: sorted, each its own or within one that is.
  Buffer Snapshot(std::span<const ParamRange> ranges);

  void Join(std::int32_t learner) { policy_.Join(learner); }
  // Then ApplyNext: an update may have waited for it alone.
  void Leave(std::int32_t learner) { policy_.Leave(learner); }

  // Errors: kFailedPrecondition: another epoch, not a member, or it must pull first; kAborted: of a
  // life that a newer one has replaced; kResourceExhausted: too many learners, or kHeldMax.
  Result<Outcome> Push(ShardPush push);
  // Carries out the update that is due; call until there is none. Hogwild: gives all that are due
  // to the threads, and returns one that they have made; call again when they wake the owner.
  // `begins`: false: none is begun.
  std::optional<ShardUpdate> ApplyNext(bool begins = true);
  // A backup does what the primary did. Errors: kFailedPrecondition: it is not the next update
  // (restore from a snapshot first); kDataLoss: of another size.
  Status Follow(const ShardUpdate& update);

  bool MayPull(std::int32_t learner) const { return policy_.MayPull(learner); }
  // `exact`: 0: the newest. Errors: kNotFound: no longer kept, or not yet there.
  Result<WeightSnapshot> Pull(std::uint64_t exact = 0);

  // Whether one more learner could take part, or this one does.
  bool HasRoomFor(std::int32_t learner) const;
  std::uint64_t epoch() const { return options_.epoch; }
  std::uint64_t version() const { return policy_.version() - applying_.size(); }
  std::int64_t size() const { return std::int64_t(value().size()); }
  std::size_t held() const { return held_.size(); }
  std::size_t applying() const { return applying_.size(); }  // by threads
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
  // An update of one push in the hands of a thread.
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
  static void Apply(SharedArena* arena, const Applying& update);
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
  PushLedger ledger_;
  OutlierGuard losses_, norms_;
  std::vector<Optimizer::Group> groups_;  // of value_, by whether they decay
  LentFloats value_;
  std::unique_ptr<SharedArena> arena_;  // Hogwild: on value_ and optimizer_
  std::vector<std::unique_ptr<Applying>> applying_;
  MutableBuffer sum_;
  std::map<std::uint64_t, Held> held_;  // by the policy's id
  std::uint64_t next_id_ = 1;
  std::vector<ShardUpdate::Settled> dropped_;  // since the last update
  WeightSnapshot newest_, previous_;           // version 0: nobody asked for it
  Histogram staleness_;
  Counters counters_;
};

}  // namespace troop
