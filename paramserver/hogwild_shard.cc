#include "paramserver/hogwild_shard.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "kernels/finite.h"

namespace troop {

Result<std::unique_ptr<HogwildShard>> HogwildShard::Make(const Options& options,
                                                         std::span<const float> value) {
  TROOP_CHECK(options.executor != nullptr, "a shard without threads");
  TROOP_RETURN_IF_ERROR(CheckGuardOptions(options.guards));
  if (options.open_max < 1) return InvalidArgument("a shard that takes no pushes: open_max is 0");
  std::int64_t size = 0;
  for (const ParamRange& range : options.ranges) size += range.size();
  if (std::int64_t(value.size()) != size) {
    return InvalidArgument("{} first values; the shard's ranges have {}", value.size(), size);
  }
  if (const std::size_t bad = FirstUnfinite(value); bad != value.size()) {
    return InvalidArgument("first value {} is {}", bad, value[bad]);
  }
  TROOP_ASSIGN_OR_RETURN(auto arena, SharedArena::Make(options.config, value, options.write));
  return std::unique_ptr<HogwildShard>(new HogwildShard(options, std::move(arena)));
}

Status HogwildShard::Check(const ShardPush& push) const {
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
  if (push.id.sequence == 0) return InvalidArgument("push 0; they are numbered from 1");
  if (!ledger_.HasRoomFor(push.id.learner)) {
    return ResourceExhausted("learner {}: {} have pushed here, the most that can be",
                             push.id.learner, PushLedger::kLearnersMax);
  }
  if (push.clock > version_) {
    return FailedPrecondition("learner {}: a push computed at version {}, {} is newest; pull again",
                              push.id.learner, push.clock, version_);
  }
  return Status::Ok();
}

Result<HogwildShard::Outcome> HogwildShard::Push(ShardPush push) {
  TROOP_RETURN_IF_ERROR(Check(push));
  switch (ledger_.Look(push.id)) {
    case PushLedger::Seen::kFenced:
      return Aborted("learner {}: incarnation {} was replaced", push.id.learner,
                     push.id.incarnation);
    case PushLedger::Seen::kSettled: {
      const bool held =
          std::ranges::any_of(open_, [&](const auto& open) { return open->push.id == push.id; });
      if (held) return Outcome::kHeld;
      ++repeated_;
      return Outcome::kRepeated;
    }
    case PushLedger::Seen::kNew:
      break;
  }
  if (open_.size() >= options_.open_max) {
    return ResourceExhausted("{} pushes are being applied, the most that can be: push it later",
                             open_.size());
  }
  const std::uint64_t age = version_ + open_.size() - push.clock;
  const std::int64_t age_max = options_.guards.staleness_max;
  const bool too_old = age_max >= 0 && age > std::uint64_t(age_max);
  if (too_old || guard_.Judge(push.id.learner, push.loss)) {
    ledger_.Settle(push.id);
    ++(too_old ? too_old_ : outliers_);
    return too_old ? Outcome::kTooOld : Outcome::kOutlier;
  }
  auto open = std::make_unique<Open>(Open{.push = std::move(push)});
  if (options_.damp_stale && age > 1) open->weight = 1 / float(age);
  TROOP_ASSIGN_OR_RETURN(open->job, options_.executor->Submit(
                                        "apply a push", [arena = arena_.get(), job = open.get()] {
                                          Apply(arena, *job);
                                        }));
  ledger_.Settle(open->push.id);
  staleness_.Add(double(age));
  open_.push_back(std::move(open));
  return Outcome::kHeld;
}

void HogwildShard::Apply(SharedArena* arena, const Open& open) {
  const std::vector<GradientPayload>& parts = open.push.parts;
  if (parts.size() == 1 && open.weight == 1 && parts[0].coded().codec == GradientCodec::kNone) {
    return arena->Step(parts[0].coded().payload.as<float>(), 1, open.push.learning_rate);
  }
  std::vector<float> sum(std::size_t(arena->size()));
  std::size_t at = 0;
  for (const GradientPayload& part : parts) {
    const auto into = std::span(sum).subspan(at, std::size_t(part.coded().elements));
    part.WriteTo(open.weight, into);
    at += into.size();
  }
  arena->Step(sum, 1, open.push.learning_rate);
}

std::vector<PushId> HogwildShard::TakeApplied() {
  std::vector<PushId> applied;
  std::erase_if(open_, [&](const std::unique_ptr<Open>& open) {
    if (!options_.executor->TakeDone(open->job)) return false;
    applied.push_back(open->push.id);
    return true;
  });
  version_ += applied.size();
  return applied;
}

WeightSnapshot HogwildShard::Pull() const {
  MutableBuffer value(std::size_t(size()) * sizeof(float));
  arena_->Read(value.as<float>());
  return {version_, std::move(value).Freeze()};
}

void HogwildShard::Report(Metrics* metrics) const {
  const auto count = [metrics](std::string_view name, std::uint64_t value) {
    metrics->Gauge(name, double(value), MetricKind::kCounter);
  };
  count("paramserver/updates", version_ - 1);
  count("paramserver/pushes_applied", version_ - 1);
  count("paramserver/pushes_repeated", repeated_);
  count("paramserver/pushes_too_old", too_old_);
  count("paramserver/pushes_outliers", outliers_);
  metrics->Gauge("paramserver/pushes_held", double(open_.size()), MetricKind::kGaugeSum);
  metrics->Distribution("paramserver/staleness", staleness_);
}

}  // namespace troop
