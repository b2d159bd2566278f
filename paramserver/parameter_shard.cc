#include "paramserver/parameter_shard.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "core/check.h"
#include "kernels/finite.h"
#include "nn/arena.h"

namespace troop {
namespace {

// Dropped pushes that no update told the backup of: a repeat of an older one would be judged again.
constexpr std::size_t kDroppedMax = 4096;
// A WeightsVersion holds no more updates.
constexpr std::uint64_t kVersionMax = 0xFFFFFFF0u;

Status CheckOptions(const ParameterShard::Options& options) {
  TROOP_RETURN_IF_ERROR(CheckSyncOptions(options.sync));
  TROOP_RETURN_IF_ERROR(CheckGuardOptions(options.guards));
  if (options.versions_kept != 1 && options.versions_kept != 2) {
    return InvalidArgument("a parameter shard keeps {} versions; 1 or 2 are possible",
                           options.versions_kept);
  }
  const bool one_by_one = options.sync.mode == SyncMode::kAsync && !options.keep_sums;
  if (options.hogwild != nullptr && !one_by_one) {
    return InvalidArgument(
        "threads apply pushes at once where each is an update of its own and "
        "nobody must make the same in the same order: in \"async\" without a "
        "backup, not in \"{}\"",
        SyncModeName(options.sync.mode));
  }
  std::int64_t end = 0;
  for (const ParamRange& range : options.ranges) {
    if (range.begin < end || range.end <= range.begin || range.begin % kParamAlignment != 0) {
      return InvalidArgument("a parameter shard's range [{}, {}) after {}", range.begin, range.end,
                             end);
    }
    end = range.end;
  }
  return Status::Ok();
}

// Of a primary, perhaps damaged on its way.
Status CheckUpdate(const ShardUpdate& update, std::size_t elements) {
  if (!update.sum.empty() && update.sum.size() != elements * sizeof(float)) {
    return DataLoss("an update of {} bytes for a backup of {} elements", update.sum.size(),
                    elements);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(update.sum.data());
  if (address % alignof(float) != 0) return InvalidArgument("an update at an odd address");
  if (!std::isfinite(update.scale) || !std::isfinite(update.learning_rate) ||
      !AllFinite(update.sum.as<float>())) {
    return DataLoss("an update to version {} holds a number that is not finite", update.version);
  }
  if (!SyncPolicy::AreSorted(update.members)) {
    return DataLoss("an update to version {} with members out of order", update.version);
  }
  return Status::Ok();
}

std::int64_t SizeOf(std::span<const ParamRange> ranges) {
  std::int64_t size = 0;
  for (const ParamRange& range : ranges) size += range.size();
  return size;
}

// The elements of `ranges`, one after the other, by whether they lie in `undecayed`.
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

Result<std::unique_ptr<ParameterShard>> ParameterShard::MakeEmpty(const Options& options) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  TROOP_ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(options.config, SizeOf(options.ranges)));
  return std::unique_ptr<ParameterShard>(new ParameterShard(options, std::move(optimizer)));
}

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
    return InvalidArgument("{} first values; the shard's ranges have {}", value.size(),
                           shard->value().size());
  }
  if (const std::size_t bad = FirstUnfinite(value); bad != value.size()) {
    return InvalidArgument("first value {} is {}", bad, value[bad]);
  }
  std::ranges::copy(value, shard->value_.Own().begin());
  shard->policy_.Restore(updates + 1, {});
  return shard;
}

Status ParameterShard::CheckPush(const ShardPush& push) const {
  if (push.epoch != options_.epoch) {
    return FailedPrecondition("a push cut by shard map {}; this is {}: fetch it, and cut anew",
                              push.epoch, options_.epoch);
  }
  std::int64_t elements = 0;
  for (const GradientPayload& part : push.parts) elements += part.coded().elements;
  if (elements != size()) {
    return InvalidArgument("a push of {} elements; the shard has {}", elements, size());
  }
  if (!(push.learning_rate >= 0 && push.learning_rate <= 1e6f)) {
    return InvalidArgument("a push with a learning rate of {}; from 0 to 1e6", push.learning_rate);
  }
  if (push.step > kVersionMax) {
    return InvalidArgument("a push for version {}; at most {}", push.step, kVersionMax);
  }
  if (push.id.sequence == 0) return InvalidArgument("push 0; they are numbered from 1");
  if (!ledger_.HasRoomFor(push.id.learner)) {
    return ResourceExhausted("learner {}: {} have pushed here, the most that can be",
                             push.id.learner, PushLedger::kLearnersMax);
  }
  return Status::Ok();
}

bool ParameterShard::HasRoomFor(std::int32_t learner) const {
  const auto members = policy_.members();
  return ledger_.HasRoomFor(learner) &&
         (members.size() < PushLedger::kLearnersMax ||
          std::ranges::binary_search(members, learner, {}, &SyncPolicy::Member::learner));
}

bool ParameterShard::Holds(const PushId& id) const {
  return std::ranges::any_of(held_, [&](const auto& held) { return held.second.push.id == id; }) ||
         std::ranges::any_of(applying_, [&](const auto& update) { return update->push.id == id; });
}

// Both learn from each push that is judged.
bool ParameterShard::Judge(std::int32_t learner, float loss, float norm) {
  const bool loss_is = losses_.Judge(learner, loss), norm_is = norms_.Judge(learner, norm);
  return loss_is || norm_is;
}

// One more push: it joins what is held in one update, or is one behind those.
bool ParameterShard::IsBeyondLast() const {
  if (options_.updates_max == 0) return false;
  const std::uint64_t before = policy_.at_once() ? held_.size() : 0;
  return policy_.version() + before > options_.updates_max;
}

Result<ParameterShard::Outcome> ParameterShard::Push(ShardPush push) {
  TROOP_RETURN_IF_ERROR(CheckPush(push));
  const PushLedger::Seen seen = ledger_.Look(push.id);
  if (seen == PushLedger::Seen::kFenced) {
    return Aborted("learner {}: incarnation {} was replaced", push.id.learner, push.id.incarnation);
  }
  if (Holds(push.id)) return Outcome::kHeld;
  if (seen == PushLedger::Seen::kSettled) {
    ++counters_.repeated;
    return Outcome::kRepeated;
  }
  if (options_.hogwild != nullptr && held_.size() >= kHeldMax) {
    return ResourceExhausted("{} pushes wait for a thread, the most that can be: push it later",
                             held_.size());
  }
  SyncPolicy::Arrival arrival{.learner = push.id.learner, .id = next_id_, .clock = push.clock};
  // Asked before the guard judges: a refused push must leave no trace.
  TROOP_RETURN_IF_ERROR(policy_.Check(arrival));
  // Of an update that threads are making, too.
  const std::uint64_t age = policy_.version() - push.clock;
  const bool too_old =
      options_.guards.staleness_max >= 0 && age > std::uint64_t(options_.guards.staleness_max);
  const bool judged = !too_old;
  const bool outlier = judged && Judge(push.id.learner, push.loss, push.norm);
  const bool beyond = IsBeyondLast();
  arrival.dropped = too_old || outlier || beyond;
  TROOP_ASSIGN_OR_RETURN(const SyncPolicy::Verdict verdict, policy_.Arrive(arrival));
  if (arrival.dropped || verdict == SyncPolicy::Verdict::kLate) {
    Drop(push, judged);
    ++(too_old ? counters_.too_old : outlier ? counters_.outliers : counters_.late);
    return too_old ? Outcome::kTooOld : outlier ? Outcome::kOutlier : Outcome::kLate;
  }
  held_.emplace(next_id_++, Held{std::move(push), judged});
  return Outcome::kHeld;
}

void ParameterShard::Drop(const ShardPush& push, bool judged) {
  ledger_.Settle(push.id);
  if (!options_.keep_sums) return;
  if (dropped_.size() >= kDroppedMax) dropped_.erase(dropped_.begin());
  dropped_.push_back({push.id, push.loss, push.norm, judged});
}

// One dense push of weight 1 is its own sum.
bool ParameterShard::IsDense(const SyncPolicy::Update& update, const ShardPush& push) {
  return update.terms.size() == 1 && update.terms[0].weight == 1 &&
         std::ranges::all_of(push.parts, [](const GradientPayload& part) {
           return part.coded().codec == GradientCodec::kNone;
         });
}

// The sum of the update's pushes, in its order, in parts that follow each other.
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
  // Where nobody keeps it, the next update writes over it.
  if (options_.keep_sums) out->sum = std::exchange(sum_, {}).Freeze();
  return {sum};
}

std::optional<ShardUpdate> ParameterShard::ApplyNext(bool begins) {
  if (options_.hogwild != nullptr) {
    if (begins) BeginApplying();
    return TakeApplied();
  }
  if (!begins) return std::nullopt;
  const std::uint64_t from = version();
  const auto update = policy_.NextUpdate();
  if (!update) return std::nullopt;
  if (InStep(options_.sync)) {
    for (const SyncPolicy::Term& term : update->terms) {
      policy_.SkipTo(held_.at(term.id).push.step + 1);
    }
  }
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
    ledger_.Settle(held.push.id);
  }
  const Parts sum = Sum(*update, &done);
  KeepVersion(from);
  if (!update->terms.empty()) Carry(done, sum);
  counters_.applied += update->terms.size();
  ++counters_.updates;
  for (const SyncPolicy::Term& term : update->terms) held_.erase(term.id);
  return done;
}

// Each push is an update of its own.
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
      auto arena = SharedArena::Make(options_.config, value_.Own(), optimizer_.get());
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

// By a thread.
void ParameterShard::Apply(SharedArena* arena, const Applying& update) {
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

std::optional<ShardUpdate> ParameterShard::TakeApplied() {
  const auto done = std::ranges::find_if(
      applying_, [&](const auto& update) { return options_.hogwild->TakeDone(update->job); });
  if (done == applying_.end()) return std::nullopt;
  const std::unique_ptr<Applying> work = std::move(*done);
  ShardUpdate update{.from = version(),
                     .version = version() + 1,
                     .scale = work->scale,
                     .learning_rate = work->push.learning_rate};
  update.settled.push_back({work->push.id, work->push.loss, work->push.norm, work->judged});
  applying_.erase(done);
  if (applying_.empty()) arena_->CountSteps();
  newest_ = {};
  // Others of its learner may have been faster.
  if (ledger_.Look(work->push.id) == PushLedger::Seen::kNew) ledger_.Settle(work->push.id);
  staleness_.Add(double(work->term.staleness));
  ++counters_.applied;
  ++counters_.updates;
  return update;
}

// Before the value changes: it is this version's.
void ParameterShard::KeepVersion(std::uint64_t version) {
  previous_ = {};
  if (options_.versions_kept == 2) previous_ = {version, value_.Lend()};
  newest_ = {};
}

void ParameterShard::Carry(const ShardUpdate& update, const Parts& sum) {
  const std::span<float> value = value_.Own();
  if (!update.average_values) {
    for (Optimizer::Group& group : groups_) group.learning_rate = update.learning_rate;
    return optimizer_->StepParts(sum, update.scale, groups_, value);
  }
  std::size_t at = 0;
  for (const std::span<const float> part : sum) {
    for (const float x : part) value[at++] = update.scale * x;
  }
}

Status ParameterShard::Follow(const ShardUpdate& update) {
  if (update.from != version() || update.version <= update.from) {
    return FailedPrecondition(
        "update {} of {} for a backup at version {}; send it a snapshot first", update.version,
        update.from, version());
  }
  if (!held_.empty()) {
    return FailedPrecondition("update {} for a shard that holds {} pushes: it is no backup",
                              update.version, held_.size());
  }
  TROOP_RETURN_IF_ERROR(CheckUpdate(update, value().size()));
  for (const ShardUpdate::Settled& settled : update.settled) {
    if (!ledger_.HasRoomFor(settled.id.learner)) return ResourceExhausted("too many learners");
    if (ledger_.Look(settled.id) == PushLedger::Seen::kNew) ledger_.Settle(settled.id);
    if (settled.judged) Judge(settled.id.learner, settled.loss, settled.norm);
  }
  KeepVersion(version());
  policy_.Restore(update.version, update.members);
  if (!update.sum.empty()) Carry(update, {update.sum.as<float>()});
  ++counters_.updates;
  return Status::Ok();
}

Result<WeightSnapshot> ParameterShard::Pull(std::uint64_t exact) {
  if (exact == 0 || exact == version()) {
    if (newest_.version != 0) return newest_;
    if (arena_) {
      MutableBuffer now(value_.values().size_bytes());
      arena_->Read(now.as<float>());
      return newest_ = {version(), std::move(now).Freeze()};
    }
    newest_ = {version(), value_.Lend()};
    return newest_;
  }
  if (exact == previous_.version) return previous_;
  return NotFound("pull: version {} is not kept; {} is the newest, and {} versions are kept", exact,
                  version(), options_.versions_kept);
}

void ParameterShard::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, std::uint64_t value) {
    metrics->Gauge(name, double(value), MetricKind::kCounter);
  };
  count("paramserver/updates", counters_.updates);
  count("paramserver/pushes_applied", counters_.applied);
  count("paramserver/pushes_repeated", counters_.repeated);
  count("paramserver/pushes_late", counters_.late);
  count("paramserver/pushes_too_old", counters_.too_old);
  count("paramserver/pushes_outliers", counters_.outliers);
  metrics->Gauge("paramserver/pushes_held", double(held_.size() + applying_.size()),
                 MetricKind::kGaugeSum);
  metrics->Distribution("paramserver/staleness", staleness_);
}

}  // namespace troop
