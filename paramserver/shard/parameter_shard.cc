// Implements ParameterShard: accepting pushes, applying updates alone or on Hogwild threads, and
// following a primary.
#include "paramserver/shard/parameter_shard.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/config/enum_names.h"
#include "kernels/elementwise/is_finite.h"
#include "nn/arena.h"

namespace troop {
namespace {

// Limit of dropped pushes that no update has reported to the backup yet. After a takeover, a retry
// of an older one would be judged again.
constexpr std::size_t kDroppedMax = 4096;
// Largest number of updates that a WeightsVersion can hold.
constexpr std::uint64_t kVersionMax = 0xFFFFFFF0u;

// Hogwild needs independent updates: no backup, which would have to repeat their order.
Status CheckOptions(const ParameterShard::Options& options) {
  TROOP_RETURN_IF_ERROR(CheckSyncOptions(options.sync));
  TROOP_RETURN_IF_ERROR(CheckGradientFilterOptions(options.guards));
  if (options.versions_kept != 1 && options.versions_kept != 2) {
    return InvalidArgument("a parameter shard keeps {} versions, must be 1 or 2",
                           options.versions_kept);
  }
  const bool one_by_one = options.sync.mode == SyncMode::kAsync && !options.keep_sums;
  if (options.hogwild != nullptr && !one_by_one) {
    return InvalidArgument(
        "hogwild threads need a mode in which each push is a separate update and "
        "no backup repeats the updates in order: use \"async\" without a "
        "backup, not \"{}\"",
        EnumName(options.sync.mode));
  }
  std::int64_t end = 0;
  for (const ParamRange& range : options.ranges) {
    if (range.begin < end || range.end <= range.begin || range.begin % kParamAlignment != 0) {
      return InvalidArgument("a parameter shard has the invalid range [{}, {}) after element {}",
                             range.begin, range.end, end);
    }
    end = range.end;
  }
  return Status::Ok();
}

// Checks an update from a primary, which may have been damaged in transit.
Status CheckUpdate(const ShardUpdate& update, std::size_t elements) {
  if (!update.sum.empty() && update.sum.size() != elements * sizeof(float)) {
    return DataLoss("an update has {} bytes, the backup has {} elements", update.sum.size(),
                    elements);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(update.sum.data());
  if (address % alignof(float) != 0) return InvalidArgument("an update at an unaligned address");
  if (!std::isfinite(update.scale) || !std::isfinite(update.learning_rate) ||
      !AllFinite(update.sum.as<float>())) {
    return DataLoss("an update to version {} holds a non-finite value", update.version);
  }
  if (!SyncPolicy::AreSorted(update.members)) {
    return DataLoss("an update to version {} has members out of order", update.version);
  }
  return Status::Ok();
}

// Elements in all ranges.
std::int64_t SizeOf(std::span<const ParamRange> ranges) {
  std::int64_t size = 0;
  for (const ParamRange& range : ranges) size += range.size();
  return size;
}

// Splits the concatenated elements of `ranges` into optimizer groups, by whether they lie in
// `undecayed`.
std::vector<Optimizer::Group> GroupsOf(std::span<const ParamRange> ranges,
                                       std::span<const ParamRange> undecayed) {
  std::vector<Optimizer::Group> groups;
  const auto add = [&groups](std::int64_t count, bool decays) {
    if (count <= 0) return;
    if (groups.empty() || groups.back().decays != decays) groups.push_back({0, 0, decays});
    groups.back().count += count;
  };
  for (const ParamRange& range : ranges) {
    std::int64_t at = range.begin;
    for (const ParamRange& part : undecayed) {
      const std::int64_t begin = std::clamp(part.begin, at, range.end);
      const std::int64_t end = std::clamp(part.end, at, range.end);
      add(begin - at, true);
      add(end - begin, false);
      at = end;
    }
    add(range.end - at, true);
  }
  return groups;
}

}  // namespace

ParameterShard::ParameterShard(const Options& options, std::unique_ptr<Optimizer> optimizer)
    : options_(options),
      optimizer_(std::move(optimizer)),
      policy_(options.sync),
      losses_(options.guards.loss_deviations, options.guards.window, options.guards.first),
      norms_(options.guards.norm_deviations, options.guards.window, options.guards.first),
      groups_(GroupsOf(options.ranges, options.undecayed)),
      value_(std::size_t(SizeOf(options.ranges))) {}

// A shard without values, for Make and Restore to fill.
Result<std::unique_ptr<ParameterShard>> ParameterShard::MakeEmpty(const Options& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  TROOP_ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(options.optimizer, SizeOf(options.ranges)));
  return std::unique_ptr<ParameterShard>(new ParameterShard(options, std::move(optimizer)));
}

// Threads write to the arena: wait for the last of them.
ParameterShard::~ParameterShard() {
  while (!applying_.empty()) {
    if (!TakeApplied()) std::this_thread::yield();
  }
}

Result<std::unique_ptr<ParameterShard>> ParameterShard::Make(const Options& options,
                                                             std::span<const float> value,
                                                             std::uint64_t updates) {
  TROOP_ASSIGN_OR_RETURN(auto shard, MakeEmpty(options));
  if (value.size() != shard->value().size()) {
    return InvalidArgument("{} initial values, the shard's ranges have {}", value.size(),
                           shard->value().size());
  }
  if (const std::size_t bad = FirstNonFinite(value); bad != value.size()) {
    return InvalidArgument("initial value {} is {}, must be finite", bad, value[bad]);
  }
  std::ranges::copy(value, shard->value_.Mutable().begin());
  shard->policy_.Restore(updates + 1, {});
  return shard;
}

// Rejects malformed pushes before they can change any state.
Status ParameterShard::CheckPush(const ShardPush& push) const {
  if (push.epoch != options_.epoch) {
    return FailedPrecondition(
        "the push was cut by shard map {}, this is map {}; fetch it and cut again", push.epoch,
        options_.epoch);
  }
  std::int64_t elements = 0;
  for (const GradientPayload& part : push.parts) elements += part.coded().elements;
  if (elements != size()) {
    return InvalidArgument("the push has {} elements, the shard has {}", elements, size());
  }
  if (!(push.learning_rate >= 0 && push.learning_rate <= 1e6f)) {
    return InvalidArgument("the learning rate of a push is {}, must be from 0 to 1e6",
                           push.learning_rate);
  }
  if (push.step > kVersionMax) {
    return InvalidArgument("the version of a push is {}, must be at most {}", push.step,
                           kVersionMax);
  }
  if (push.id.sequence == 0)
    return InvalidArgument("the sequence number of a push is 0, must be at least 1");
  if (!dedup_.HasRoomFor(push.id.learner)) {
    return ResourceExhausted("learner {}: {} learners have pushed here, which is the limit",
                             push.id.learner, PushDedup::kLearnersMax);
  }
  return Status::Ok();
}

// Bounds memory against a client that invents learners.
bool ParameterShard::HasRoomFor(std::int32_t learner) const {
  const auto members = policy_.members();
  return dedup_.HasRoomFor(learner) &&
         (members.size() < PushDedup::kLearnersMax ||
          std::ranges::binary_search(members, learner, {}, &SyncPolicy::Member::learner));
}

// True if the push waits for an update or is being applied.
bool ParameterShard::Holds(const PushId& id) const {
  return std::ranges::any_of(held_, [&](const auto& held) { return held.second.push.id == id; }) ||
         std::ranges::any_of(applying_, [&](const auto& update) { return update->push.id == id; });
}

// Evaluates both guards, because each push must enter the statistics of both.
bool ParameterShard::Judge(std::int32_t learner, float loss, float norm) {
  const bool loss_is = losses_.Judge(learner, loss), norm_is = norms_.Judge(learner, norm);
  return loss_is || norm_is;
}

// True if the update of one more push would exceed updates_max. If each push is a separate update,
// the held pushes come before it.
bool ParameterShard::IsBeyondLast() const {
  if (options_.updates_max == 0) return false;
  const std::uint64_t before = policy_.at_once() ? held_.size() : 0;
  return policy_.version() + before > options_.updates_max;
}

// Order of checks: malformed, duplicate, refused by the policy, then the guards. A push that is
// refused must leave no trace, because the learner may retry it.
Result<ParameterShard::Outcome> ParameterShard::Push(ShardPush push) {
  TROOP_RETURN_IF_ERROR(CheckPush(push));
  // 1. Deduplicate.
  const PushDedup::Seen seen = dedup_.Lookup(push.id);
  if (seen == PushDedup::Seen::kFenced) {
    return Aborted("learner {}: incarnation {} was replaced", push.id.learner, push.id.incarnation);
  }
  if (Holds(push.id)) return Outcome::kHeld;
  if (seen == PushDedup::Seen::kSettled) {
    ++counters_.repeated;
    return Outcome::kRepeated;
  }
  if (options_.hogwild != nullptr && held_.size() >= kHeldMax) {
    return ResourceExhausted("{} pushes wait for a thread, which is the limit; retry later",
                             held_.size());
  }
  SyncPolicy::Arrival arrival{.learner = push.id.learner, .id = next_id_, .clock = push.clock};
  // 2. Ask the policy before the guards count the push.
  TROOP_RETURN_IF_ERROR(policy_.Check(arrival));
  // 3. Apply the guards. The age includes updates that threads are still applying.
  const std::uint64_t age = policy_.version() - push.clock;
  const bool too_old =
      options_.guards.staleness_max >= 0 && age > std::uint64_t(options_.guards.staleness_max);
  const bool judged = !too_old;
  const bool outlier = judged && Judge(push.id.learner, push.loss, push.norm);
  const bool beyond = IsBeyondLast();
  arrival.dropped = too_old || outlier || beyond;
  // 4. Hand it to the policy, which needs dropped pushes too: they count as contributions.
  TROOP_ASSIGN_OR_RETURN(const SyncPolicy::Verdict verdict, policy_.Arrive(arrival));
  if (arrival.dropped || verdict == SyncPolicy::Verdict::kLate) {
    Drop(push, judged);
    ++(too_old ? counters_.too_old : outlier ? counters_.outliers : counters_.late);
    return too_old ? Outcome::kTooOld : outlier ? Outcome::kOutlier : Outcome::kLate;
  }
  held_.emplace(next_id_++, Held{std::move(push), judged});
  return Outcome::kHeld;
}

// Settles a push without effect. The next update reports it to the backup.
void ParameterShard::Drop(const ShardPush& push, bool judged) {
  dedup_.Settle(push.id);
  if (!options_.keep_sums) return;
  if (dropped_.size() >= kDroppedMax) dropped_.erase(dropped_.begin());
  dropped_.push_back({push.id, push.loss, push.norm, judged});
}

// True if the sum needs no arithmetic: a single uncompressed push of weight 1.
bool ParameterShard::IsDense(const SyncPolicy::Update& update, const ShardPush& push) {
  return update.terms.size() == 1 && update.terms[0].weight == 1 &&
         std::ranges::all_of(push.parts, [](const GradientPayload& part) {
           return part.coded().codec == GradientCodec::kNone;
         });
}

// Sums the update's pushes in the order of its terms. Returns consecutive parts, which reference
// the push itself where possible. `out->sum` is set only if a backup needs it.
ParameterShard::Parts ParameterShard::Sum(const SyncPolicy::Update& update, ShardUpdate* out) {
  if (update.terms.empty()) return {};
  const ShardPush& first = held_.at(update.terms[0].id).push;
  if (IsDense(update, first) && (first.parts.size() == 1 || !options_.keep_sums)) {
    Parts parts;
    for (const GradientPayload& part : first.parts) {
      parts.push_back(part.coded().payload.as<float>());
    }
    if (options_.keep_sums) out->sum = first.parts[0].coded().payload;
    return parts;
  }
  // One accumulator for the whole shard; the first push of an update overwrites it.
  if (sum_.size() == 0) sum_ = MutableBuffer(value().size_bytes());
  const auto sum = sum_.as<float>();
  for (std::size_t i = 0; i < update.terms.size(); ++i) {
    std::size_t at = 0;
    for (const GradientPayload& part : held_.at(update.terms[i].id).push.parts) {
      const auto into = sum.subspan(at, std::size_t(part.coded().elements));
      if (i == 0) {
        part.WriteTo(update.terms[i].weight, into);
      } else {
        part.AddTo(update.terms[i].weight, into);
      }
      at += into.size();
    }
  }
  // Without a backup the next update reuses the buffer.
  if (options_.keep_sums) out->sum = std::exchange(sum_, {}).Freeze();
  return {sum};
}

// Applies one update in the owner's thread; with Hogwild it only exchanges work with the threads.
std::optional<ShardUpdate> ParameterShard::ApplyNext(bool begins) {
  if (options_.hogwild != nullptr) {
    if (begins) BeginApplying();
    return TakeApplied();
  }
  if (!begins) return std::nullopt;
  const std::uint64_t from = version();
  const auto update = policy_.NextUpdate();
  if (!update) return std::nullopt;
  // 1. Catch up with the version of the other shards, if this one was restored from an older one.
  if (IsSynchronous(options_.sync)) {
    for (const SyncPolicy::Term& term : update->terms) {
      policy_.SkipTo(held_.at(term.id).push.step + 1);
    }
  }
  // 2. Record what is settled, for the replies and for the backup.
  ShardUpdate done{.from = from,
                   .version = version(),
                   .scale = update->scale,
                   .average_values = update->average_values};
  done.settled = std::exchange(dropped_, {});
  done.members.assign(policy_.members().begin(), policy_.members().end());
  for (const SyncPolicy::Term& term : update->terms) {
    const Held& held = held_.at(term.id);
    done.learning_rate = std::max(done.learning_rate, held.push.learning_rate);
    done.settled.push_back({held.push.id, held.push.loss, held.push.norm, held.judged});
    staleness_.Add(double(term.staleness));
    dedup_.Settle(held.push.id);
  }
  // 3. Keep the old version for readers, then step.
  const Parts sum = Sum(*update, &done);
  KeepVersion(from);
  if (!update->terms.empty()) Carry(done, sum);
  counters_.applied += update->terms.size();
  ++counters_.updates;
  for (const SyncPolicy::Term& term : update->terms) held_.erase(term.id);
  return done;
}

// Hogwild: submits every due push to the executor as a separate update.
void ParameterShard::BeginApplying() {
  while (applying_.size() < kApplyingMax) {
    const auto update = policy_.NextUpdate();
    if (!update) return;
    TROOP_CHECK(update->terms.size() == 1, "an update of {} pushes", update->terms.size());
    auto held = held_.extract(update->terms[0].id);
    auto work = std::make_unique<Applying>(Applying{.push = std::move(held.mapped().push),
                                                    .judged = held.mapped().judged,
                                                    .term = update->terms[0],
                                                    .scale = update->scale,
                                                    .groups = groups_});
    for (Optimizer::Group& group : work->groups) group.learning_rate = work->push.learning_rate;
    if (!arena_) {
      auto arena = HogwildArena::Make(options_.optimizer, value_.Mutable(), optimizer_.get());
      TROOP_CHECK(arena.ok(), "{}", arena.status().ToString());  // the optimizer was made
      arena_ = std::move(*arena);
    }
    const auto job = options_.hogwild->Submit(
        "apply a push", [arena = arena_.get(), update = work.get()] { Apply(arena, *update); });
    TROOP_CHECK(job.ok(), "{}", job.status().ToString());
    work->job = *job;
    applying_.push_back(std::move(work));
  }
}

// Runs on a Hogwild thread. Decodes the push if necessary and steps through the shared arena.
void ParameterShard::Apply(HogwildArena* arena, const Applying& update) {
  const auto& parts = update.push.parts;
  const bool dense = std::ranges::all_of(
      parts, [](const auto& part) { return part.coded().codec == GradientCodec::kNone; });
  std::vector<std::span<const float>> spans;
  if (dense && update.term.weight == 1) {
    for (const GradientPayload& part : parts) spans.push_back(part.coded().payload.as<float>());
    return arena->StepParts(spans, update.scale, update.groups);
  }
  std::vector<float> sum(std::size_t(arena->size()));
  std::size_t at = 0;
  for (const GradientPayload& part : parts) {
    const auto into = std::span(sum).subspan(at, std::size_t(part.coded().elements));
    part.WriteTo(update.term.weight, into);
    at += into.size();
  }
  spans.push_back(sum);
  arena->StepParts(spans, update.scale, update.groups);
}

// Hogwild: collects one update that a thread has completed, in any order.
std::optional<ShardUpdate> ParameterShard::TakeApplied() {
  const auto done = std::ranges::find_if(
      applying_, [&](const auto& update) { return options_.hogwild->TakeDone(update->job); });
  if (done == applying_.end()) return std::nullopt;
  const std::unique_ptr<Applying> work = std::move(*done);
  // 1. Count the version, which the applying updates do not include.
  ShardUpdate update{.from = version(),
                     .version = version() + 1,
                     .scale = work->scale,
                     .learning_rate = work->push.learning_rate};
  update.settled.push_back({work->push.id, work->push.loss, work->push.norm, work->judged});
  applying_.erase(done);
  // 2. The optimizer's step count is updated only when no thread uses it.
  if (applying_.empty()) arena_->CountSteps();
  newest_ = {};
  // A later push of the same learner may have moved the window past this one.
  if (dedup_.Lookup(work->push.id) == PushDedup::Seen::kNew) dedup_.Settle(work->push.id);
  staleness_.Add(double(work->term.staleness));
  ++counters_.applied;
  ++counters_.updates;
  return update;
}

// Call before the value changes: keeps it as `version` if the previous version can be requested.
void ParameterShard::KeepVersion(std::uint64_t version) {
  previous_ = {};
  if (options_.versions_kept == 2) previous_ = {version, value_.TakeSnapshot()};
  newest_ = {};
}

// Applies a sum to the value: an optimizer step, or the mean of local SGD.
void ParameterShard::Carry(const ShardUpdate& update, const Parts& sum) {
  const std::span<float> value = value_.Mutable();
  if (!update.average_values) {
    for (Optimizer::Group& group : groups_) group.learning_rate = update.learning_rate;
    return optimizer_->StepParts(sum, update.scale, groups_, value);
  }
  std::size_t at = 0;
  for (const std::span<const float> part : sum) {
    for (const float x : part) value[at++] = update.scale * x;
  }
}

// Repeats the primary's update bit for bit: same sum, same order, same guard statistics.
Status ParameterShard::Follow(const ShardUpdate& update) {
  if (update.from != version() || update.version <= update.from) {
    return FailedPrecondition(
        "update {} follows version {}, the backup is at version {}; send it a snapshot first",
        update.version, update.from, version());
  }
  if (!held_.empty()) {
    return FailedPrecondition("update {} for a shard that holds {} pushes: it is not a backup",
                              update.version, held_.size());
  }
  TROOP_RETURN_IF_ERROR(CheckUpdate(update, value().size()));
  // The backup's guards and deduplication follow the primary's.
  for (const ShardUpdate::Settled& settled : update.settled) {
    if (!dedup_.HasRoomFor(settled.id.learner))
      return ResourceExhausted("too many learners have pushed here");
    if (dedup_.Lookup(settled.id) == PushDedup::Seen::kNew) dedup_.Settle(settled.id);
    if (settled.judged) Judge(settled.id.learner, settled.loss, settled.norm);
  }
  KeepVersion(version());
  policy_.Restore(update.version, update.members);
  if (!update.sum.empty()) Carry(update, {update.sum.as<float>()});
  ++counters_.updates;
  return Status::Ok();
}

// Snapshots are created on the first request for a version and shared by later ones.
Result<WeightSnapshot> ParameterShard::Pull(std::uint64_t exact) {
  if (exact == 0 || exact == version()) {
    if (newest_.version != 0) return newest_;
    // Hogwild: an atomic copy, which may contain parts of updates in flight.
    if (arena_) {
      MutableBuffer now(value_.values().size_bytes());
      arena_->Read(now.as<float>());
      return newest_ = {version(), std::move(now).Freeze()};
    }
    newest_ = {version(), value_.TakeSnapshot()};
    return newest_;
  }
  if (exact == previous_.version) return previous_;
  return NotFound("pull: version {} is not kept; the newest is {}, and {} versions are kept", exact,
                  version(), options_.versions_kept);
}

void ParameterShard::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, std::uint64_t value) {
    metrics->Gauge(name, double(value), MetricKind::kCounter);
  };
  count("paramserver/updates", counters_.updates);
  count("paramserver/pushes_applied", counters_.applied);
  count("paramserver/pushes_duplicate", counters_.repeated);
  count("paramserver/pushes_rejected_late", counters_.late);
  count("paramserver/pushes_rejected_stale", counters_.too_old);
  count("paramserver/pushes_rejected_outlier", counters_.outliers);
  metrics->Gauge("paramserver/pushes_held", double(held_.size() + applying_.size()),
                 MetricKind::kGaugeSum);
  metrics->Distribution("paramserver/staleness", staleness_);
}

}  // namespace troop
