// ReplaySampler: requests batches from one or several shards. ShardSelector decides on their
// shares, GroupRequest has the requests, BatchAssembler merges and decodes the replies.
#include <algorithm>
#include <deque>

#include "core/base/log.h"
#include "replay/service/batch_assembler.h"
#include "replay/service/client.h"
#include "replay/service/group_request.h"
#include "replay/service/shard_connection.h"
#include "replay/service/shard_selector.h"

namespace troop {
namespace {

// A shard without rows in this many groups receives a request for its current total.
constexpr int kGroupsUnheardMax = 8;

class ReplaySamplerImpl final : public ReplaySampler {
 public:
  ReplaySamplerImpl(std::vector<std::unique_ptr<Channel>> channels, const TrajectorySpec& spec,
                    const Options& options)
      : options_(options),
        selector_(&shards_, options.seed),
        assembler_({.trajectory = spec,
                    .view = options.view,
                    .codec = options.codec,
                    .threads = options.decode_threads}) {
    for (auto& channel : channels) shards_.emplace_back(std::move(channel), options.table);
  }

  void AddShard(std::unique_ptr<Channel> channel) override;
  void Poll(Time now) override;
  Result<std::optional<SampleBatch>> Next() override;
  void UpdatePriorities(std::span<const ItemKey> keys, std::span<const float> priority) override;
  void ObservePolicyVersion(std::uint64_t version) override {
    policy_version_ = version;
    for (ShardConnection& shard : shards_) shard.ObservePolicyVersion(version);
  }
  void SetBeta(double beta) override { options_.beta = beta; }
  void Drain() override { drain_ = true; }
  int ready_batches() const override;
  int shards_alive() const override { return selector_.alive(); }

 private:
  std::int64_t items_per_group() const {
    return options_.batch_size * options_.batches_per_request;
  }

  void PollShards(Time now);
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);
  void JudgeShards(Time now);
  void Kill(std::size_t k);
  void PollGroups(Time now);
  void JudgeWaits(Time now);
  bool WaiveOrKill(const GroupRequest::Part& part, Time now);
  void AskOthers(std::size_t k, Time now);
  void FillGroups();
  bool StartGroup();
  void SendGroups(Time now);
  void SendUpdates(Time now);
  bool TellDrain(std::size_t k, bool sent, Time now);
  void EndWhenDrained();
  void NoteError(const Status& status);

  Options options_;
  std::deque<ShardConnection> shards_;
  ShardSelector selector_;
  BatchAssembler assembler_;
  std::deque<GroupRequest> groups_;  // in order
  std::uint64_t policy_version_ = 0;
  bool drain_ = false, closed_ = false;
  std::optional<Time> begun_;
  Status error_;
};

// Open groups get an entry for the new shard, but no rows from it.
void ReplaySamplerImpl::AddShard(std::unique_ptr<Channel> channel) {
  shards_.emplace_back(std::move(channel), options_.table);
  shards_.back().ObservePolicyVersion(policy_version_);
  shards_.back().MarkDead();  // not waited for; a probe revives it
  for (GroupRequest& group : groups_) group.AddShard();
}

// One step of all state machines. Errors are permanent.
void ReplaySamplerImpl::Poll(Time now) {
  if (!begun_) begun_ = now;
  PollShards(now);
  PollGroups(now);
  if (!error_.ok()) return;
  if (selector_.many()) JudgeWaits(now);
  FillGroups();
  SendGroups(now);
  SendUpdates(now);
  EndWhenDrained();
}

// Keeps the first permanent error.
void ReplaySamplerImpl::NoteError(const Status& status) {
  if (!status.ok() && error_.ok()) error_ = status;
}

// ---- shards -------------------------------------------------------------------------------------

// Handles the shards' small replies and their failures.
void ReplaySamplerImpl::PollShards(Time now) {
  for (ShardConnection& shard : shards_) {
    NoteError(shard.PollSmall());
    for (auto& dictionary : shard.NewDictionaries()) AddDictionary(std::move(dictionary));
  }
  for (GroupRequest& group : groups_) group.DropUndecodable();
  for (ShardConnection& shard : shards_) shard.ClearLost();
  if (selector_.many()) JudgeShards(now);
}

// A dictionary that the decoder drops is requested again when needed.
void ReplaySamplerImpl::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  const auto dropped = assembler_.AddDictionary(std::move(dictionary));
  if (!dropped) return;
  for (ShardConnection& shard : shards_) shard.ForgetDictionary(*dropped);
}

// Declares shards dead and probes those whose total is unknown, 0 or old. Not used with a single
// shard, which is waited for in any state.
void ReplaySamplerImpl::JudgeShards(Time now) {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    ShardConnection& shard = shards_[k];
    const bool gone = shard.peer() == PeerState::kDown || shard.peer() == PeerState::kHung;
    const bool silent = !shard.known() && now - *begun_ > options_.patience;
    if (!shard.dead() && (gone || silent)) Kill(k);
    if (!shard.known()) {
      NoteError(shard.Probe(false, drain_));
    } else if (!shard.closed() && shard.total() == 0) {
      NoteError(shard.Probe(true, drain_));
    } else if (shard.groups_since_total > kGroupsUnheardMax) {
      NoteError(shard.Probe(false, drain_));
    }
  }
}

// Gives up all parts of a dead shard, except replies that can already be decoded.
void ReplaySamplerImpl::Kill(std::size_t k) {
  LogWarning("replay shard {} does not answer; batches are sampled from the other shards", k);
  for (GroupRequest& group : groups_) group.GiveUpShard(k);
  shards_[k].MarkDead();
}

// ---- waiting for a shard ------------------------------------------------------------------------

// A waived charge becomes a debt, which later groups charge.
void ReplaySamplerImpl::PollGroups(Time now) {
  for (GroupRequest& group : groups_) {
    const Result<std::int64_t> waived = group.Poll(now);
    NoteError(waived.status());
    if (waived.ok()) selector_.AddDebt(*waived);
  }
}

// Handles groups that only some shards have answered. The limiter of the others may wait for
// inserts that do not arrive because the first ones' limiters block the actors. So the charge
// moves to shards with credit. A shard that does not answer even then is dead.
void ReplaySamplerImpl::JudgeWaits(Time now) {
  for (GroupRequest& group : groups_) {
    for (const GroupRequest::Part& part : group.parts()) {
      if (part.ticket == 0 || now - group.WaitsSince(part) <= options_.waive_after) continue;
      if (!WaiveOrKill(part, now)) return;  // it changed the groups
    }
  }
}

// Requests a reply without its charge, if the credit of the other shards covers it. False: the
// shard was declared dead, and `part` is gone.
bool ReplaySamplerImpl::WaiveOrKill(const GroupRequest::Part& part, Time now) {
  ShardConnection& shard = shards_[part.shard];
  if (shard.waived_at) {
    if (now - *shard.waived_at <= options_.patience) return true;
    Kill(part.shard);
    return false;
  }
  if (part.charge > 0 && selector_.CreditWithout(part.shard) <= 0) {
    AskOthers(part.shard, now);
    return true;
  }
  const Result<bool> sent = shard.SendUpdates(drain_, true);
  NoteError(sent.status());
  if (sent.ok() && *sent) shard.waived_at = now;
  return true;
}

// Refreshes the credit of all shards but one, less often the longer the wait lasts: a channel sends
// only kSequenceSpanMax calls after one that is open, and the drain must still be among them.
void ReplaySamplerImpl::AskOthers(std::size_t k, Time now) {
  for (std::size_t j = 0; j < shards_.size(); ++j) {
    ShardConnection& shard = shards_[j];
    if (j == k || !selector_.usable(j) || shard.probing()) continue;
    const bool first = !shard.credit_asked_at;
    if (!first && now - *shard.credit_asked_at < shard.credit_pause) continue;
    shard.credit_pause =
        first ? options_.waive_after : std::min(2 * shard.credit_pause, options_.patience);
    shard.credit_asked_at = now;
    NoteError(shard.Probe(false, drain_));
  }
}

// ---- requests -----------------------------------------------------------------------------------

// Plans what is missing in open groups, and starts new ones up to the prefetch limit.
void ReplaySamplerImpl::FillGroups() {
  if (selector_.all_closed()) return;
  for (GroupRequest& group : groups_) {
    if (group.incomplete()) selector_.Plan(&group);
  }
  while (!closed_ && int(groups_.size()) < options_.prefetch && StartGroup()) {
  }
}

// Starts a group when every live shard has reported its total. False: no shard can take a request
// now.
bool ReplaySamplerImpl::StartGroup() {
  if (!selector_.all_known()) return false;
  const std::int64_t debt = std::min(selector_.debt(), items_per_group());
  GroupRequest group({.rows = options_.batch_size,
                      .batches = options_.batches_per_request,
                      .charge = items_per_group() + debt},
                     &shards_);
  if (!selector_.Plan(&group)) return false;
  selector_.AddDebt(-debt);
  for (ShardConnection& shard : shards_) ++shard.groups_since_total;
  groups_.push_back(std::move(group));
  return true;
}

void ReplaySamplerImpl::SendGroups(Time now) {
  for (GroupRequest& group : groups_) {
    const Status sent = group.Send(now, drain_);
    if (!sent.ok()) return NoteError(sent);
  }
}

// Sends pending priorities, and a drain that waiting requests must learn of.
void ReplaySamplerImpl::SendUpdates(Time now) {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    ShardConnection& shard = shards_[k];
    const bool waits =
        std::ranges::any_of(groups_, [k](const GroupRequest& group) { return group.WaitsFor(k); });
    const bool tell_drain = drain_ && !shard.drain_told() && (waits || shard.probing());
    if (!shard.has_updates() && !tell_drain) continue;
    const Result<bool> sent = shard.SendUpdates(drain_, false);
    NoteError(sent.status());
    if (tell_drain && selector_.many() && sent.ok() && !TellDrain(k, *sent, now)) return;
  }
}

// Without room for the drain, the requests that wait at the shard would wait for good: they are
// given up with it, and a probe revives it. False: that was necessary, and the groups have changed.
bool ReplaySamplerImpl::TellDrain(std::size_t k, bool sent, Time now) {
  ShardConnection& shard = shards_[k];
  if (sent) {
    shard.drain_untold_at.reset();
    return true;
  }
  if (!shard.drain_untold_at) shard.drain_untold_at = now;
  if (now - *shard.drain_untold_at <= options_.patience) return true;
  Kill(k);
  return false;
}

// Ends the sampler when no shard accepts a charge: incomplete groups will never complete.
void ReplaySamplerImpl::EndWhenDrained() {
  if (!selector_.all_closed()) return;
  closed_ = true;
  std::erase_if(groups_, [](const GroupRequest& group) { return group.incomplete(); });
}

// ---- batches ------------------------------------------------------------------------------------

// Groups are consumed in order, so only a leading run of complete groups counts.
int ReplaySamplerImpl::ready_batches() const {
  int ready = 0;
  for (const GroupRequest& group : groups_) {
    if (!group.ready()) break;
    ready += options_.batches_per_request - group.taken();
  }
  return ready;
}

void ReplaySamplerImpl::UpdatePriorities(std::span<const ItemKey> keys,
                                         std::span<const float> priority) {
  TROOP_CHECK(keys.size() == priority.size(), "{} keys, {} priorities", keys.size(),
              priority.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    // Updates for dead shards are dropped: they may never be taken.
    if (keys[i].shard >= shards_.size() || shards_[keys[i].shard].dead()) continue;
    shards_[keys[i].shard].AddUpdate(std::uint64_t{keys[i].generation} << 32 | keys[i].slot,
                                     priority[i]);
  }
}

Result<std::optional<SampleBatch>> ReplaySamplerImpl::Next() {
  if (!error_.ok()) return error_;
  if (groups_.empty() && closed_) return OutOfRange("replay sample: drained");
  if (groups_.empty() || !groups_.front().ready()) return std::optional<SampleBatch>();
  GroupRequest& group = groups_.front();
  Result<SampleBatch> batch = assembler_.Assemble(group, group.taken(), options_.beta);
  if (!batch.ok()) {
    error_ = batch.status().WithContext("replay sample");
    return error_;
  }
  group.NoteTaken();
  if (group.all_taken()) groups_.pop_front();
  return std::optional(std::move(*batch));
}

}  // namespace

std::unique_ptr<ReplaySampler> MakeReplaySampler(std::vector<std::unique_ptr<Channel>> shards,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options) {
  TROOP_CHECK(options.batch_size >= 1 && options.prefetch >= 1 &&
                  options.batches_per_request >= 1 && !shards.empty(),
              "batch size {}, prefetch {}, batches per request {}, {} shards", options.batch_size,
              options.prefetch, options.batches_per_request, shards.size());
  return std::make_unique<ReplaySamplerImpl>(std::move(shards), spec, options);
}

std::unique_ptr<ReplaySampler> MakeReplaySampler(std::unique_ptr<Channel> channel,
                                                 const TrajectorySpec& spec,
                                                 const ReplaySampler::Options& options) {
  std::vector<std::unique_ptr<Channel>> shards;
  shards.push_back(std::move(channel));
  return MakeReplaySampler(std::move(shards), spec, options);
}

}  // namespace troop
