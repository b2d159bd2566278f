// Guarantee checker of the simulation: a state machine over history events.
#include "tests/simulation/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "replay/service/client.h"

namespace troop::simulation {
namespace {

// Items of a stream that may be dropped after the death of a shard: n-step items that span it.
constexpr int kDropsMax = 3;

}  // namespace

class Checker::Teller final : public EventHistory {
 public:
  Teller(Checker* checker, std::string who, bool replay, int shard)
      : who(std::move(who)), replay(replay), shard(shard), checker_(checker) {}
  void Note(const HistoryEvent& event) override { checker_->Note(*this, event); }

  const std::string who;
  const bool replay;
  const int shard;
  mutable std::uint64_t weights = 0, published = 0, checkpointed = 0;  // latest versions

 private:
  Checker* const checker_;
};

Checker::Checker(int shards, bool durable, bool goes_back)
    : durable_(durable), goes_back_(goes_back), shards_(std::size_t(shards)) {}
Checker::~Checker() = default;

EventHistory* Checker::Of(const std::string& who, bool replay, int shard) {
  tellers_.push_back(std::make_unique<Teller>(this, who, replay, shard));
  return tellers_.back().get();
}

void Checker::ShardDied(int shard) {
  Shard& s = shards_[std::size_t(shard)];
  s.present.clear();
  s.drops.clear();
  ++s.deaths;
  s.up = false;
}

void Checker::ShardIsBack(int shard) {
  Shard& s = shards_[std::size_t(shard)];
  s.up = true;
  for (const Name& name : s.acknowledged) {
    if (!s.present.contains(name)) {
      return Breach(Describe(fmt::format("replay-{}", shard), name,
                             "was acknowledged as durable, but was not restored"));
    }
  }
}

void Checker::PowerLost() {
  for (std::size_t k = 0; k < shards_.size(); ++k) ShardDied(int(k));
}

void Checker::Breach(std::string what) {
  if (breach_.empty()) breach_ = std::move(what);
}

std::string Checker::Describe(const std::string& who, const Name& name, const char* what) const {
  return fmt::format("{}: the item of stream {:#x}, frame {}, {} steps {}", who, name.stream,
                     name.first_frame, name.length, what);
}

// The first learner starts without an event; a later one reports what it resumes from.
bool Checker::IsNewest(const Teller& teller) {
  if (learner_ == nullptr) learner_ = &teller;
  return learner_ == &teller;
}

void Checker::NoteServed(const Teller& teller, const HistoryEvent& event) {
  Gradients& known = gradients_[event.shard];
  if (known.epoch != event.epoch) known = {.epoch = event.epoch, .lineage = event.lineage};
  if (event.lineage < known.lineage) {
    return Breach(fmt::format("{} serves shard {} on lineage {}, after {}", teller.who, event.shard,
                              event.lineage, known.lineage));
  }
  const bool goes_on = event.lineage == known.lineage;
  known.lineage = event.lineage;
  std::erase_if(known.applied, [&](const auto& gradient) {
    if (gradient.second <= event.version) return false;
    if (goes_on) {
      Breach(fmt::format(
          "{} serves shard {} at version {}; push {} of learner {} was acknowledged at version {}",
          teller.who, event.shard, event.version, gradient.first[2], gradient.first[0],
          gradient.second));
    }
    return true;
  });
}

void Checker::NoteApplied(const Teller& teller, const HistoryEvent& event) {
  Gradients& known = gradients_[event.shard];
  ++applied_;
  if (known.epoch != event.epoch || known.lineage != event.lineage)
    return;  // an old epoch or lineage
  const auto [at, fresh] = known.applied.try_emplace(
      {event.stream, event.incarnation, event.first_frame}, event.version);
  if (fresh) return;
  Breach(fmt::format("{}: push {} of learner {} was applied to shard {} at version {} and at {}",
                     teller.who, event.first_frame, event.stream, event.shard, at->second,
                     event.version));
}

// The shard that has or had the item; the number of shards changes during a run.
Checker::Shard& Checker::ShardOfItem(const Name& name) {
  const std::size_t guess = ShardOf(name.stream, shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    Shard& shard = shards_[(guess + i) % shards_.size()];
    if (shard.ever.contains(name) || shard.dropped.contains(name)) return shard;
  }
  return shards_[guess];
}

std::vector<std::int64_t> Checker::ItemsOfShards() const {
  std::vector<std::int64_t> items;
  for (const Shard& shard : shards_) items.push_back(std::int64_t(shard.ever.size()));
  return items;
}

std::vector<std::int64_t> Checker::ItemsOfActors(std::uint64_t envs) const {
  std::map<std::uint64_t, std::int64_t> sent;
  for (const Name& name : sent_) ++sent[(name.stream & 0xFFFFFFFFu) / envs];
  std::vector<std::int64_t> items;
  for (const auto& [actor, count] : sent) items.push_back(count);
  return items;
}

void Checker::Note(const Teller& teller, const HistoryEvent& event) {
  if (event.what == HistoryEvent::kServed) return NoteServed(teller, event);
  if (event.what == HistoryEvent::kApplied) return NoteApplied(teller, event);
  const Name name{event.stream, event.first_frame, event.length};
  const auto breach = [&](const char* what) { Breach(Describe(teller.who, name, what)); };
  Shard& shard = teller.replay                               ? shards_[std::size_t(teller.shard)]
                 : event.what == HistoryEvent::kAcknowledged ? ShardOfItem(name)
                                                             : shards_[0];
  switch (event.what) {
    case HistoryEvent::kSent:
      if (!sent_.insert(name).second) breach("was sent twice");
      break;
    case HistoryEvent::kInserted:
      if (!sent_.contains(name)) breach("was inserted, but no actor sent it");
      if (!shard.present.insert(name).second) breach("was inserted twice");
      shard.ever.insert(name);
      break;
    case HistoryEvent::kDropped:
      shard.dropped.insert(name);
      if (durable_) breach("was dropped, although the log is durable");
      if (shard.deaths == 0) breach("was dropped, although its shard never died");
      if (++shard.drops[event.stream] > kDropsMax)
        breach("was dropped, and too many of its stream were before");
      break;
    case HistoryEvent::kRestored:
      ++restored_;
      if (!shard.ever.contains(name)) breach("was restored, but never inserted");
      if (!shard.present.insert(name).second) breach("was restored twice");
      break;
    case HistoryEvent::kAcknowledged:
      ++acknowledged_;
      if (!shard.ever.contains(name) && !shard.dropped.contains(name)) {
        breach("was acknowledged, but never inserted");
      }
      if (durable_) {
        shard.acknowledged.insert(name);
        if (shard.up && !shard.present.contains(name)) breach("was acknowledged, but is missing");
      }
      break;
    case HistoryEvent::kPublished:
      if (event.version < teller.published) {
        Breach(fmt::format("{} published version {:#x} after {:#x}", teller.who, event.version,
                           teller.published));
      }
      teller.published = event.version;
      published_ = std::max(published_, event.version);
      break;
    case HistoryEvent::kReceived:
      if (event.version < teller.weights) {
        Breach(fmt::format("{} received weights {:#x} after {:#x}", teller.who, event.version,
                           teller.weights));
      }
      teller.weights = event.version;
      break;
    case HistoryEvent::kCheckpointed:
      if (event.version < teller.checkpointed && !goes_back_) {
        Breach(fmt::format("{} wrote a checkpoint of {} updates after one of {}", teller.who,
                           event.version, teller.checkpointed));
      }
      teller.checkpointed = event.version;
      // A replaced learner may still finish a checkpoint, so the newest one is unknown.
      newest_checkpoint_ = IsNewest(teller) ? event.version : 0;
      break;
    case HistoryEvent::kResumed:
      if (event.version < newest_checkpoint_ && !goes_back_) {
        Breach(fmt::format("{} resumes from {} updates, but a checkpoint of {} was written",
                           teller.who, event.version, newest_checkpoint_));
      }
      learner_ = &teller;
      newest_checkpoint_ = event.version;
      break;
    case HistoryEvent::kServed:
    case HistoryEvent::kApplied:
      break;
  }
}

}  // namespace troop::simulation
