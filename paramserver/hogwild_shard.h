#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/config.h"
#include "core/histogram.h"
#include "core/node.h"
#include "nn/shared_arena.h"
#include "paramserver/parameter_shard.h"

namespace troop {

// A shard of SyncMode::kAsync whose pushes several threads of an executor apply at once, without
// locks, to a SharedArena (Hogwild!: Recht et al. 2011). Checks, guards and what was settled stay
// with the owner's thread, as in ParameterShard; what is applied in which order does not. With an
// executor of one thread every bit is as ParameterShard's. Owner: one thread.
// Invariants: a push is applied once; a snapshot that was given out never changes, and may hold
// some of the elements of a push that is being applied.
class HogwildShard {
 public:
  struct Options {
    Config config;                   // optimizer
    std::vector<ParamRange> ranges;  // as ParameterShard's
    std::uint64_t epoch = 1;
    GuardOptions guards;
    bool damp_stale = false;    // as SyncOptions'
    std::size_t open_max = 64;  // pushes that are being applied or wait for it
    SharedArena::Write write = SharedArena::Write::kExact;
    Executor* executor = nullptr;  // outlives this; its queue takes open_max jobs
  };
  using Outcome = ParameterShard::Outcome;

  // `value`: that of the ranges, one after the other. Errors: kInvalidArgument.
  static Result<std::unique_ptr<HogwildShard>> Make(const Options& options,
                                                    std::span<const float> value);

  // kHeld: answer it once TakeApplied names it. Errors: kFailedPrecondition: another epoch, or of a
  // version that is not there yet; kAborted: of a life that a newer one has replaced;
  // kInvalidArgument: another size; kResourceExhausted: too many open, or too many learners.
  Result<Outcome> Push(ShardPush push);
  // Pushes that were applied since the last call. While open() > 0 the owner must not end it.
  std::vector<PushId> TakeApplied();
  std::size_t open() const { return open_.size(); }
  // The elements as they are now. O(n).
  WeightSnapshot Pull() const;

  // 1 and the pushes that were applied.
  std::uint64_t version() const { return version_; }
  std::int64_t size() const { return arena_->size(); }
  // Versions between what a gradient was computed at and its turn.
  const Histogram& staleness() const { return staleness_; }
  void Report(Metrics* metrics) const;

 private:
  struct Open {
    ShardPush push;
    float weight = 1;
    Executor::Job job = 0;
  };
  HogwildShard(const Options& options, std::unique_ptr<SharedArena> arena)
      : options_(options), arena_(std::move(arena)), guard_(options.guards) {}
  Status Check(const ShardPush& push) const;
  static void Apply(SharedArena* arena, const Open& open);

  Options options_;
  std::unique_ptr<SharedArena> arena_;
  PushLedger ledger_;
  LossGuard guard_;
  std::deque<std::unique_ptr<Open>> open_;
  std::uint64_t version_ = 1;
  Histogram staleness_;
  std::uint64_t repeated_ = 0, too_old_ = 0, outliers_ = 0;
};

}  // namespace troop
