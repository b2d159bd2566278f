// GroupRequest: the parts of batches that are requested together, and the replies to them.
#include "replay/service/group_request.h"

#include <algorithm>
#include <utility>

#include "net/wire/codec.h"

namespace troop {

GroupRequest::GroupRequest(const Size& size, std::deque<ShardConnection>* shards)
    : size_(size),
      shards_(shards),
      used_(shards->size(), 0),
      shut_(shards->size(), 0),
      missing_(size.rows),
      charge_missing_(size.charge) {}

// ---- assignment ---------------------------------------------------------------------------------

void GroupRequest::AddShard() {
  used_.resize(shards_->size());
  shut_.resize(shards_->size());
}

void GroupRequest::AddRows(std::size_t k, std::int64_t rows) {
  missing_ -= rows;
  parts_.push_back({.shard = k, .rows = std::uint32_t(rows)});
}

// Adds the charge to a request that is not sent yet, or to a new one without rows: a request cannot
// change after it was sent.
void GroupRequest::AddCharge(std::size_t k, std::int64_t items) {
  const auto unsent = std::ranges::find_if(parts_, [k](const Part& p) {
    return p.shard == k && p.ticket == 0 && !p.answered && p.charge == 0;
  });
  Part& part = unsent != parts_.end() ? *unsent : parts_.emplace_back(Part{.shard = k});
  part.charge = std::uint32_t(items);
  charge_missing_ -= items;
  // Counted before the reply, so that the next group does not charge these items again.
  (*shards_)[k].Charge(items);
}

bool GroupRequest::HasRows(std::size_t k) const {
  return std::ranges::any_of(parts_,
                             [k](const Part& part) { return part.shard == k && part.rows > 0; });
}

// Returns a part's rows and charge to the group, for other shards. `shut`: the shard gets no more
// rows of this group.
void GroupRequest::GiveUp(Part* part, bool shut) {
  if (part->ticket != 0) (*shards_)[part->shard].Forget(part->ticket);
  // The reply has ended the charge of an answered part already.
  if (!part->answered) (*shards_)[part->shard].Charge(-std::int64_t(part->charge));
  if (shut) shut_[part->shard] = 1;
  missing_ += part->rows;
  charge_missing_ += part->charge;
  parts_.erase(parts_.begin() + (part - parts_.data()));
}

// GiveUp erases parts, hence the backward loops.
void GroupRequest::GiveUpShard(std::size_t k) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    if (part.shard != k) continue;
    // A reply that can be decoded needs nothing more of the lost shard.
    if (part.answered && (*shards_)[k].HasDictionaries(part.reply.dictionaries)) continue;
    GiveUp(&part, true);
  }
  Judge();
}

// Rows whose dictionary is lost cannot be decoded; the shard itself may still be drawn from.
void GroupRequest::DropUndecodable() {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    if (!part.answered || !(*shards_)[part.shard].LostAny(part.reply.dictionaries)) continue;
    GiveUp(&part, false);
  }
  Judge();
}

// ---- requests and replies -----------------------------------------------------------------------

// Sends all parts that have no request in flight. Without a ticket the window is full, and a later
// call tries again.
Status GroupRequest::Send(Time now, bool drain) {
  for (Part& part : parts_) {
    if (part.ticket != 0 || part.answered) continue;
    TROOP_ASSIGN_OR_RETURN(const auto ticket,
                           (*shards_)[part.shard].Ask({.rows = part.rows,
                                                       .batches = std::uint32_t(size_.batches),
                                                       .charge = part.charge,
                                                       .drain = drain}));
    part.ticket = ticket.value_or(0);
    part.sent = now;
  }
  return Status::Ok();
}

// Backward, because a reply can make GiveUp erase its part.
Result<std::int64_t> GroupRequest::Poll(Time now) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Part& part = parts_[i];
    if (part.ticket == 0) continue;
    auto answer = (*shards_)[part.shard].Poll(part.ticket);
    if (!answer) continue;
    TROOP_RETURN_IF_ERROR(TakeReply(&part, std::move(*answer), now).WithContext("replay sample"));
  }
  Judge();
  return std::exchange(waived_, 0);
}

// Updates whether the group is complete and decodable.
void GroupRequest::Judge() {
  ready_ = !incomplete() && !parts_.empty();
  for (const Part& part : parts_) {
    ready_ =
        ready_ && part.answered && (*shards_)[part.shard].HasDictionaries(part.reply.dictionaries);
  }
}

// Handles the reply to one part.
Status GroupRequest::TakeReply(Part* part, Result<Message> reply, Time now) {
  ShardConnection& shard = (*shards_)[part->shard];
  part->ticket = 0;
  if (!reply.ok()) {
    const Code code = reply.status().code();
    // A request whose reply may be lost is repeated at the same shard: if its share moved to other
    // shards, a shard that loses replies would be sampled less than its rows imply.
    if (code == Code::kDeadlineExceeded || code == Code::kUnavailable) return Status::Ok();
    if (code != Code::kOutOfRange) return reply.status();
    shard.Close();
    GiveUp(part, part->charge == 0);
    return Status::Ok();
  }
  TROOP_RETURN_IF_ERROR(CheckReply(*reply, part));
  shard.Note(part->reply);
  // The charge of the request ends; the shard's real charge is in the reply.
  shard.Charge(-std::int64_t(part->charge));
  shard.waived_at.reset();
  shard.credit_asked_at.reset();
  last_answer_ = now;
  part->answered = true;
  part->life = shard.life();
  waived_ += std::int64_t(part->charge) - std::int64_t(part->reply.charged);
  part->charge = part->reply.charged;
  // Fewer rows than requested are none at all (CheckReply): other shards give them.
  if (part->reply.batch_size == part->rows) return Status::Ok();
  part->charge = 0;  // the shard had no items and did not charge
  GiveUp(part, true);
  return Status::Ok();
}

// Checks a reply against its request.
Status GroupRequest::CheckReply(const Message& message, Part* part) const {
  if (message.type != MessageType::kSampleReply) {
    return DataLoss("unexpected reply of type {}", int(message.type));
  }
  TROOP_ASSIGN_OR_RETURN(part->reply, DecodeBody<SampleReplyBody>(message.body));
  const SampleReplyBody& body = part->reply;
  const auto batches = std::uint32_t(size_.batches);
  // Only with several shards may a reply be empty, since others can take over its rows.
  const bool nothing = many() && body.batch_size == 0 && body.charged == 0;
  if (!nothing && (body.batch_size != part->rows || body.batches != batches)) {
    return DataLoss("reply has {} batches of {}, requested {} of {}", body.batches, body.batch_size,
                    batches, part->rows);
  }
  TROOP_RETURN_IF_ERROR(ShardConnection::Check(body));
  if (body.charged > part->charge) {
    return DataLoss("reply charges {} items, requested at most {}", body.charged, part->charge);
  }
  return FindBlocks(message, part);
}

// Finds the blocks of each batch: they are consecutive, and those of one batch add up to its rows.
Status GroupRequest::FindBlocks(const Message& message, Part* part) const {
  const SampleReplyBody& body = part->reply;
  // The index of the first block of each batch, and one past the last block.
  part->first = {0};
  std::uint64_t rows = 0;
  // A forged sum ends the loop early, hence `rows` cannot overflow.
  for (std::size_t i = 0; i < body.rows.size() && rows <= body.batch_size; ++i) {
    rows += body.rows[i];
    if (rows != body.batch_size) continue;
    part->first.push_back(int(i) + 1);
    rows = 0;
  }
  const auto expected = body.batch_size > 0 ? std::size_t(size_.batches) : 0;
  if (rows != 0 || part->first.size() != expected + 1 || body.rows.size() != message.parts.size()) {
    return DataLoss("reply has {} blocks that do not form {} batches of {}", message.parts.size(),
                    body.batches, body.batch_size);
  }
  part->blocks = message.parts;
  return Status::Ok();
}

bool GroupRequest::WaitsFor(std::size_t k) const {
  return std::ranges::any_of(parts_,
                             [k](const Part& part) { return part.shard == k && part.ticket != 0; });
}

Time GroupRequest::WaitsSince(const Part& part) const {
  // A slow network delays all replies, so patience begins with the newest reply of the group.
  return std::max(part.sent, last_answer_.value_or(part.sent));
}

// ---- batches ------------------------------------------------------------------------------------

void GroupRequest::NoteTaken() {
  ++taken_;
  const auto batches = std::uint64_t(size_.batches);
  const auto left = batches - std::uint64_t(taken_);
  for (const Part& part : parts_) {
    if (part.reply.charged == 0) continue;
    // Items that stay reserved for the batches that are left; the rest is released now.
    const std::uint64_t open = part.reply.charged * left / batches;
    (*shards_)[part.shard].Take(part.reply.reserved - std::min(part.reply.reserved, open),
                                part.life);
  }
}

}  // namespace troop
