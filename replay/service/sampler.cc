// ReplaySampler: requests batches from one or several shards, and merges and decodes the replies.
#include <algorithm>
#include <cmath>

#include "core/base/log.h"
#include "core/base/philox.h"
#include "net/wire/codec.h"
#include "replay/codec/batch_decoder.h"
#include "replay/codec/encoded_batch.h"
#include "replay/service/apportion.h"
#include "replay/service/client.h"
#include "replay/service/messages.h"
#include "replay/service/shard_connection.h"

namespace troop {
namespace {

// A shard without rows in this many groups is asked for its current total.
constexpr int kGroupsUnheardMax = 8;

// tidy: long file, because the state machine of a group over joining and failing shards is one unit
class ReplaySamplerImpl final : public ReplaySampler {
 public:
  ReplaySamplerImpl(std::vector<std::unique_ptr<Channel>> channels, const TrajectorySpec& spec,
                    const Options& options)
      : spec_(spec),
        options_(options),
        rng_({.run_seed = options.seed, .purpose = Purpose::kReplaySampling, .index = kRngIndex}),
        decoder_({.trajectory = spec,
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
  int shards_alive() const override {
    return int(std::ranges::count_if(shards_, [](const ShardConnection& s) { return !s.dead(); }));
  }

 private:
  static constexpr std::uint64_t kRngIndex = std::uint64_t{1}
                                             << 32;  // disjoint from the tables' incarnations

  // One shard's part of a group: rows of each batch.
  struct Part {
    std::size_t shard = 0;
    std::uint32_t rows = 0, charge = 0;
    Ticket ticket = 0;  // 0: not sent yet, or answered
    Time sent{};
    bool answered = false;
    std::uint64_t life = 0;  // the shard's incarnation when it answered
    SampleReplyBody reply;
    std::vector<Buffer> blocks;  // in order; a batch may span several
    std::vector<int> first;      // [batches + 1] first block of batch b
  };
  // Batches that are requested together, with the same share of each from each shard. The rows of
  // failed requests move to other shards until the group is complete.
  struct Group {
    std::vector<Part> parts;
    std::vector<double> used;  // totals that determined the shares; > 0 if a part has rows
    std::vector<char> shut;    // 1: gave nothing or died; gets no more rows of this group
    std::int64_t missing = 0;  // rows of each batch that are not assigned to a shard
    std::int64_t charge_missing = 0;
    int taken = 0;  // batches
    std::optional<Time> last_answer;
    bool ready = false;
  };

  // With one shard no totals are needed, and the shard is waited for in any state.
  bool many() const { return shards_.size() > 1; }
  std::int64_t items_per_group() const {
    return options_.batch_size * options_.batches_per_request;
  }
  bool all_closed() const {
    return shards_alive() > 0 && std::ranges::all_of(shards_, [](const ShardConnection& shard) {
             return shard.closed() || shard.dead();
           });
  }
  bool usable(std::size_t k) const { return !many() || (shards_[k].known() && !shards_[k].dead()); }

  void PollShards(Time now);
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);
  void DropUndecodable();
  void JudgeShards(Time now);
  void PollParts(Time now);
  void TakeReply(Group* group, Part* part, Result<Message> reply, Time now);
  Status CheckReply(const Message& message, Part* part) const;
  void GiveUp(Group* group, Part* part, bool shut);
  static bool HasRows(const Group& group, std::size_t k);
  void Kill(std::size_t k);
  void JudgeWaits(Time now);
  void AskOthers(std::size_t k);
  void FillGroups(Time now);
  bool StartGroup();
  bool Plan(Group* group);
  double OpenShares(Group* group);
  void PlanCharges(Group* group);
  void SendParts(Time now);
  void SendUpdates();
  void EndWhenDrained();
  void Judge(Group* group);
  void NoteError(const Status& status);
  Status Parse(const Group& group, int batch);
  static Status Scale(double share, EncodedBatch* drawn);
  void NoteTaken(const Group& group);

  TrajectorySpec spec_;
  Options options_;
  Rng rng_;
  BatchDecoder decoder_;
  std::deque<ShardConnection> shards_;
  std::deque<Group> groups_;             // in order
  std::deque<std::uint32_t> decodable_;  // the decoder's dictionaries, in the order they were added
  std::int64_t debt_ = 0;                // items sampled and not yet charged to any shard
  std::uint64_t policy_version_ = 0;
  bool drain_ = false, closed_ = false;
  std::optional<Time> begun_;
  Status error_;
  // Scratch.
  std::vector<double> share_;
  std::vector<std::int64_t> given_;
  std::vector<EncodedBatch> drawn_;
  std::vector<std::size_t> drawn_shard_;
};

// Open groups get an entry for the new shard, but no rows from it.
void ReplaySamplerImpl::AddShard(std::unique_ptr<Channel> channel) {
  shards_.emplace_back(std::move(channel), options_.table);
  shards_.back().ObservePolicyVersion(policy_version_);
  shards_.back().MarkDead();  // not waited for; a probe revives it
  for (Group& group : groups_) {
    group.used.resize(shards_.size());
    group.shut.resize(shards_.size());
  }
}

// One step of all state machines. Errors are permanent.
void ReplaySamplerImpl::Poll(Time now) {
  if (!begun_) begun_ = now;
  PollShards(now);
  PollParts(now);
  if (!error_.ok()) return;
  if (many()) JudgeWaits(now);
  FillGroups(now);
  SendParts(now);
  SendUpdates();
  EndWhenDrained();
}

// ---- shards -------------------------------------------------------------------------------------

// Handles the shards' small replies and their failures.
void ReplaySamplerImpl::PollShards(Time now) {
  for (ShardConnection& shard : shards_) {
    NoteError(shard.PollSmall());
    for (auto& dictionary : shard.NewDictionaries()) AddDictionary(std::move(dictionary));
  }
  DropUndecodable();
  if (many()) JudgeShards(now);
}

// The decoder drops the dictionary that was added first; it is requested again when needed.
void ReplaySamplerImpl::AddDictionary(std::shared_ptr<const FrameDictionary> dictionary) {
  const std::uint32_t id = DictionaryId(*dictionary);
  std::erase(decodable_, id);
  if (decodable_.size() == std::size_t(FrameCoder::kDictionariesMax)) {
    for (ShardConnection& shard : shards_) shard.ForgetDictionary(decodable_.front());
    decodable_.pop_front();
  }
  decodable_.push_back(id);
  decoder_.AddDictionary(std::move(dictionary));
}

// Resamples parts that cannot be decoded, because their shard was restarted and no longer has the
// dictionaries of its earlier incarnation.
void ReplaySamplerImpl::DropUndecodable() {
  for (Group& group : groups_) {
    for (std::size_t i = group.parts.size(); i-- > 0;) {
      Part& part = group.parts[i];
      if (!part.answered || !shards_[part.shard].LostAny(part.reply.dictionaries)) continue;
      GiveUp(&group, &part, false);
    }
    Judge(&group);
  }
  for (ShardConnection& shard : shards_) shard.ClearLost();
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
  for (Group& group : groups_) {
    for (std::size_t i = group.parts.size(); i-- > 0;) {
      Part& part = group.parts[i];
      if (part.shard != k || (part.answered && shards_[k].HasDictionaries(part.reply.dictionaries)))
        continue;
      GiveUp(&group, &part, true);
    }
    Judge(&group);
  }
  shards_[k].MarkDead();
}

// True if the shard contributes rows to the group.
bool ReplaySamplerImpl::HasRows(const Group& group, std::size_t k) {
  return std::ranges::any_of(group.parts,
                             [k](const Part& part) { return part.shard == k && part.rows > 0; });
}

// Returns a part's rows and charge to the group, for other shards. `shut`: the shard gets no more
// rows of this group.
void ReplaySamplerImpl::GiveUp(Group* group, Part* part, bool shut) {
  if (part->ticket != 0) shards_[part->shard].Forget(part->ticket);
  if (!part->answered) shards_[part->shard].Charge(-std::int64_t(part->charge));
  if (shut) group->shut[part->shard] = 1;
  group->missing += part->rows;
  group->charge_missing += part->charge;
  group->parts.erase(group->parts.begin() + (part - group->parts.data()));
}

// ---- replies ------------------------------------------------------------------------------------

// Takes all replies that arrived. Parts may be erased, hence the backward loop.
void ReplaySamplerImpl::PollParts(Time now) {
  for (Group& group : groups_) {
    for (std::size_t i = group.parts.size(); i-- > 0;) {
      Part& part = group.parts[i];
      if (part.ticket == 0) continue;
      auto answer = shards_[part.shard].Poll(part.ticket);
      if (answer) TakeReply(&group, &part, std::move(*answer), now);
    }
    Judge(&group);
  }
}

// Updates whether a group is complete and decodable.
void ReplaySamplerImpl::Judge(Group* group) {
  group->ready = group->missing == 0 && group->charge_missing == 0 && !group->parts.empty();
  for (const Part& part : group->parts) {
    group->ready = group->ready && part.answered &&
                   shards_[part.shard].HasDictionaries(part.reply.dictionaries);
  }
}

// Handles the reply to one part.
void ReplaySamplerImpl::TakeReply(Group* group, Part* part, Result<Message> reply, Time now) {
  ShardConnection& shard = shards_[part->shard];
  part->ticket = 0;
  if (!reply.ok()) {
    const Code code = reply.status().code();
    if (code == Code::kOutOfRange) shard.Close();
    // A request whose reply may be lost is repeated at the same shard: if its share moved to other
    // shards, a shard that loses replies would be sampled less than its rows imply.
    if (code == Code::kDeadlineExceeded || code == Code::kUnavailable) return;
    if (code != Code::kOutOfRange) NoteError(reply.status().WithContext("replay sample"));
    return GiveUp(group, part, code == Code::kOutOfRange && part->charge == 0);
  }
  const Status status = CheckReply(*reply, part);
  if (!status.ok()) return NoteError(status.WithContext("replay sample"));
  shard.Note(part->reply);
  shard.Charge(-std::int64_t(part->charge));
  shard.waived_at.reset();
  group->last_answer = now;
  part->answered = true;
  part->life = shard.life();
  // A waived charge becomes debt, which later groups charge.
  const auto unpaid = std::int64_t(part->charge) - std::int64_t(part->reply.charged);
  debt_ += unpaid;
  part->charge = part->reply.charged;
  if (part->reply.batch_size == part->rows) return;
  part->charge = 0;  // the shard had no items and did not charge
  GiveUp(group, part, true);
}

// Checks a reply against its request and finds the blocks of each batch: they are consecutive, and
// those of one batch add up to its rows.
Status ReplaySamplerImpl::CheckReply(const Message& message, Part* part) const {
  if (message.type != MessageType::kSampleReply) {
    return DataLoss("unexpected reply of type {}", int(message.type));
  }
  TROOP_ASSIGN_OR_RETURN(part->reply, DecodeBody<SampleReplyBody>(message.body));
  const SampleReplyBody& body = part->reply;
  const auto batches = std::uint32_t(options_.batches_per_request);
  const bool nothing = many() && body.batch_size == 0 && body.charged == 0;
  if (!nothing && (body.batch_size != part->rows || body.batches != batches)) {
    return DataLoss("reply has {} batches of {}, requested {} of {}", body.batches, body.batch_size,
                    batches, part->rows);
  }
  TROOP_RETURN_IF_ERROR(ShardConnection::Check(body));
  if (body.charged > part->charge) {
    return DataLoss("reply charges {} items, requested at most {}", body.charged, part->charge);
  }
  part->first = {0};
  std::uint64_t rows = 0;
  for (std::size_t i = 0; i < body.rows.size() && rows <= body.batch_size; ++i) {
    rows += body.rows[i];
    if (rows != body.batch_size) continue;
    part->first.push_back(int(i) + 1);
    rows = 0;
  }
  const std::size_t expected = body.batch_size > 0 ? batches : 0;
  if (rows != 0 || part->first.size() != expected + 1 || body.rows.size() != message.parts.size()) {
    return DataLoss("reply has {} blocks that do not form {} batches of {}", message.parts.size(),
                    body.batches, body.batch_size);
  }
  part->blocks = message.parts;
  return Status::Ok();
}

// Keeps the first permanent error.
void ReplaySamplerImpl::NoteError(const Status& status) {
  if (!status.ok() && error_.ok()) error_ = status;
}

// ---- waiting for a shard ------------------------------------------------------------------------

// Handles groups that only some shards have answered. The limiter of the others may wait for
// inserts that do not arrive because the first ones' limiters block the actors. So the charge
// moves to shards with credit. A shard that does not answer even then is dead.
void ReplaySamplerImpl::JudgeWaits(Time now) {
  for (Group& group : groups_) {
    for (const Part& part : group.parts) {
      if (part.ticket == 0) continue;
      const Time since = std::max(part.sent, group.last_answer.value_or(part.sent));
      if (now - since <= options_.waive_after) continue;
      ShardConnection& shard = shards_[part.shard];
      if (shard.waived_at) {
        if (now - *shard.waived_at <= options_.patience) continue;
        return Kill(part.shard);  // it changed the groups, so stop iterating
      }
      // Credit of the other shards, which must cover the waived charge.
      double credit = -double(debt_);
      for (std::size_t k = 0; k < shards_.size(); ++k) {
        if (k != part.shard && usable(k)) credit += std::max(shards_[k].credit(), 0.0);
      }
      if (part.charge > 0 && credit <= 0) {
        AskOthers(part.shard);
        continue;
      }
      const Result<bool> sent = shard.SendUpdates(drain_, true);
      NoteError(sent.status());
      if (sent.ok() && *sent) shard.waived_at = now;
    }
  }
}

// Refreshes the credit of all shards but one.
void ReplaySamplerImpl::AskOthers(std::size_t k) {
  for (std::size_t j = 0; j < shards_.size(); ++j) {
    if (j != k && usable(j)) NoteError(shards_[j].Probe(false, drain_));
  }
}

// ---- requests -----------------------------------------------------------------------------------

// Plans what is missing in open groups, and starts new ones up to the prefetch limit.
void ReplaySamplerImpl::FillGroups(Time) {
  if (all_closed()) return;
  for (Group& group : groups_) {
    if (group.missing > 0 || group.charge_missing > 0) Plan(&group);
  }
  while (!closed_ && int(groups_.size()) < options_.prefetch && StartGroup()) {
  }
}

// Starts a group when every live shard has reported its total. False: no shard can be asked now.
bool ReplaySamplerImpl::StartGroup() {
  for (const ShardConnection& shard : shards_) {
    if (many() && !shard.known() && !shard.dead()) return false;
  }
  Group group;
  group.used.assign(shards_.size(), 0);
  group.shut.assign(shards_.size(), 0);
  group.missing = options_.batch_size;
  const std::int64_t debt = std::min(debt_, items_per_group());
  group.charge_missing = items_per_group() + debt;
  if (!Plan(&group)) return false;
  debt_ -= debt;
  for (ShardConnection& shard : shards_) ++shard.groups_since_total;
  groups_.push_back(std::move(group));
  return true;
}

// Sets share_ to the totals of the shards that may still give rows. A shard with received rows
// keeps the total that determined its share, even if it died since: each row's probability
// contains it.
double ReplaySamplerImpl::OpenShares(Group* group) {
  double sum = 0;
  share_.assign(shards_.size(), 0);
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (usable(k) && group->shut[k] == 0) share_[k] = group->used[k];
    if (share_[k] == 0 && !HasRows(*group, k)) group->used[k] = 0;
    sum += share_[k];
  }
  return sum;
}

// Assigns the missing rows to shards. False: no shard can be asked now.
bool ReplaySamplerImpl::Plan(Group* group) {
  double sum = OpenShares(group);
  // A new group, or one whose shards have all failed: use the current totals of all shards.
  if (sum == 0) {
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      share_[k] = !many() ? 1 : usable(k) ? shards_[k].total() : 0;
      if (share_[k] == 0) continue;
      group->shut[k] = 0;
      if (!HasRows(*group, k)) group->used[k] = share_[k];
      sum += share_[k];
    }
  }
  if (sum == 0) return false;
  given_.resize(shards_.size());
  Apportion(share_, group->missing, rng_.Uniform(), given_);
  const std::size_t first = group->parts.size();
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (given_[k] > 0) group->parts.push_back({.shard = k, .rows = std::uint32_t(given_[k])});
  }
  group->missing = 0;
  PlanCharges(group);
  group->ready = group->ready && first == group->parts.size();
  return true;
}

// Assigns the missing charge to shards in proportion to their credit, or equally if none has any.
void ReplaySamplerImpl::PlanCharges(Group* group) {
  share_.assign(shards_.size(), 0);
  double sum = 0, open = 0;
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (shards_[k].closed() || !usable(k) || (many() && shards_[k].total() == 0)) continue;
    share_[k] = many() ? std::clamp(shards_[k].credit(), 0.0, 1e12) : 1;
    sum += share_[k];
    ++open;
  }
  if (open == 0) {  // all shards are closed: no charge is possible
    debt_ += std::exchange(group->charge_missing, 0);
    return;
  }
  for (std::size_t k = 0; sum == 0 && k < shards_.size(); ++k) {
    const bool can = !shards_[k].closed() && usable(k) && (!many() || shards_[k].total() > 0);
    share_[k] = can ? 1 : 0;
  }
  Apportion(share_, group->charge_missing, rng_.Uniform(), given_);
  group->charge_missing = 0;
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    if (given_[k] == 0) continue;
    // Adds the charge to a part that is not sent yet, else to a new part without rows.
    const auto unsent = std::ranges::find_if(group->parts, [k](const Part& p) {
      return p.shard == k && p.ticket == 0 && !p.answered && p.charge == 0;
    });
    Part& part =
        unsent != group->parts.end() ? *unsent : group->parts.emplace_back(Part{.shard = k});
    part.charge = std::uint32_t(given_[k]);
    shards_[k].Charge(given_[k]);
  }
}

// Sends all parts that have no open request, including those whose reply was lost.
void ReplaySamplerImpl::SendParts(Time now) {
  for (Group& group : groups_) {
    for (Part& part : group.parts) {
      if (part.ticket != 0 || part.answered) continue;
      const auto ticket =
          shards_[part.shard].Ask({.rows = part.rows,
                                   .batches = std::uint32_t(options_.batches_per_request),
                                   .charge = part.charge,
                                   .drain = drain_});
      if (!ticket.ok()) return NoteError(ticket.status());
      part.ticket = ticket->value_or(0);
      part.sent = now;
    }
  }
}

// Sends pending priorities, and a drain that waiting requests must learn of.
void ReplaySamplerImpl::SendUpdates() {
  for (std::size_t k = 0; k < shards_.size(); ++k) {
    ShardConnection& shard = shards_[k];
    const bool waits = std::ranges::any_of(groups_, [k](const Group& group) {
      return std::ranges::any_of(
          group.parts, [k](const Part& part) { return part.shard == k && part.ticket != 0; });
    });
    const bool tell_drain = drain_ && !shard.drain_told() && (waits || shard.probing());
    if (shard.has_updates() || tell_drain) NoteError(shard.SendUpdates(drain_, false).status());
  }
}

// Ends the sampler when no shard accepts a charge: incomplete groups will never complete.
void ReplaySamplerImpl::EndWhenDrained() {
  if (!all_closed()) return;
  closed_ = true;
  std::erase_if(groups_, [](const Group& g) { return g.missing > 0 || g.charge_missing > 0; });
}

// ---- batches ------------------------------------------------------------------------------------

// Groups are consumed in order, so only a leading run of complete groups counts.
int ReplaySamplerImpl::ready_batches() const {
  int ready = 0;
  for (const Group& group : groups_) {
    if (!group.ready) break;
    ready += options_.batches_per_request - group.taken;
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
  if (groups_.empty() || !groups_.front().ready) return std::optional<SampleBatch>();
  Group& group = groups_.front();
  SampleBatch batch;
  error_ = Parse(group, group.taken);
  if (error_.ok()) {
    error_ = decoder_.Decode({drawn_.data(), drawn_shard_.size()}, options_.beta, &batch);
  }
  if (!error_.ok()) {
    error_ = error_.WithContext("replay sample");
    return error_;
  }
  // Keys name the shard that the priorities must go to.
  std::size_t row = 0;
  for (std::size_t i = 0; i < drawn_shard_.size(); ++i) {
    for (std::int64_t j = 0; j < drawn_[i].size(); ++j) {
      batch.key[row++].shard = std::uint32_t(drawn_shard_[i]);
    }
  }
  ++group.taken;
  NoteTaken(group);
  if (group.taken == options_.batches_per_request) groups_.pop_front();
  return std::optional(std::move(batch));
}

// Parses the blocks of one batch and scales their probabilities to the whole replay.
Status ReplaySamplerImpl::Parse(const Group& group, int batch) {
  double sum = 0;
  for (const double used : group.used) sum += used;
  drawn_shard_.clear();
  for (const Part& part : group.parts) {
    if (part.blocks.empty()) continue;
    for (int i = part.first[std::size_t(batch)]; i < part.first[std::size_t(batch) + 1]; ++i) {
      const std::size_t at = drawn_shard_.size();
      drawn_shard_.push_back(part.shard);
      if (drawn_.size() <= at) drawn_.emplace_back();
      TROOP_RETURN_IF_ERROR(ParseEncodedBatch(part.blocks[std::size_t(i)], spec_, options_.view,
                                              options_.codec, &drawn_[at]));
      if (drawn_[at].size() != part.reply.rows[std::size_t(i)]) {
        return DataLoss("block has {} items, reply announced {}", drawn_[at].size(),
                        part.reply.rows[std::size_t(i)]);
      }
      TROOP_RETURN_IF_ERROR(Scale(group.used[part.shard] / sum, &drawn_[at]));
    }
  }
  return Status::Ok();
}

// Reports to each shard the share of its charge that the consumed batches make up.
void ReplaySamplerImpl::NoteTaken(const Group& group) {
  const auto left = std::uint64_t(options_.batches_per_request - group.taken);
  for (const Part& part : group.parts) {
    if (part.reply.charged == 0) continue;
    const std::uint64_t open =
        part.reply.charged * left / std::uint64_t(options_.batches_per_request);
    shards_[part.shard].Take(part.reply.reserved - std::min(part.reply.reserved, open), part.life);
  }
}

// Scales probabilities by the shard's share. Totals come from other processes, so the result is
// checked: no probability may become 0.
Status ReplaySamplerImpl::Scale(double share, EncodedBatch* drawn) {
  bool good = true;
  for (double& p : drawn->probability) {
    p *= share;
    good = good && std::isnormal(p);
  }
  const bool told = drawn->probability_min > 0;
  drawn->probability_min *= share;
  if (good && (!told || std::isnormal(drawn->probability_min))) return Status::Ok();
  return DataLoss("items have probability 0: their shard has a share of {} of the replay", share);
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
