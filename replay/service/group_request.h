#pragma once

#include <cstdint>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/time.h"
#include "net/message.h"
#include "net/network.h"
#include "replay/service/messages.h"
#include "replay/service/shard_connection.h"

namespace troop {

// Batches that a sampler requests together, with the same share of each from each shard. The rows
// and the charge of a failed request are missing until ShardSelector assigns them to other shards.
// Owner: the sampler, on one thread; nothing blocks.
//
// Invariant: the rows of all parts and the missing rows add up to the rows of one batch.
class GroupRequest {
 public:
  struct Size {
    std::int64_t rows = 0;  // of each batch
    std::int64_t batches = 0;
    std::int64_t charge = 0;  // items charged to the shards' rate limiters
  };
  // One shard's part of the group: rows of each batch.
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

  // `shards` outlives the group. Nothing is assigned yet.
  GroupRequest(const Size& size, std::deque<ShardConnection>* shards);

  // ---- assignment, by ShardSelector ----
  void AddShard();  // after a shard was appended: it gets no rows of this group
  std::int64_t missing() const { return missing_; }
  std::int64_t charge_missing() const { return charge_missing_; }
  bool incomplete() const { return missing_ > 0 || charge_missing_ > 0; }
  // Assigns missing rows to shard k.
  void AddRows(std::size_t k, std::int64_t rows);
  // Assigns missing charge to shard k: with a part that is not sent yet, else with a new part
  // without rows.
  void AddCharge(std::size_t k, std::int64_t items);
  // Removes the missing charge, and returns it.
  std::int64_t WaiveCharge() { return std::exchange(charge_missing_, 0); }
  bool HasRows(std::size_t k) const;  // true if shard k contributes rows
  // Total that determined shard k's share; > 0 if it has rows.
  double used(std::size_t k) const { return used_[k]; }
  double used_sum() const { return std::accumulate(used_.begin(), used_.end(), 0.0); }
  void set_used(std::size_t k, double total) { used_[k] = total; }
  // True if the shard gave nothing or died: it gets no more rows of this group.
  bool shut(std::size_t k) const { return shut_[k] != 0; }
  void Reopen(std::size_t k) { shut_[k] = 0; }

  // ---- requests and replies ----
  // Sends all parts that have no open request, including those whose reply was lost. Errors: the
  // request is impossible.
  Status Send(Time now, bool drain);
  // Takes all replies that arrived. Returns the part of their charge that was waived. Errors:
  // permanent ones.
  Result<std::int64_t> Poll(Time now);
  // Gives up all parts of a dead shard, except replies that can already be decoded.
  void GiveUpShard(std::size_t k);
  // Gives up parts that cannot be decoded, because their shard was restarted and no longer has the
  // dictionaries of its earlier incarnation.
  void DropUndecodable();
  // True if shard k has not answered a request.
  bool WaitsFor(std::size_t k) const;
  // Start of the wait for a part's reply: its request, or the last reply of another shard.
  Time WaitsSince(const Part& part) const;

  // ---- batches ----
  // True if all rows are here and can be decoded. As of the last Poll, GiveUpShard or
  // DropUndecodable.
  bool ready() const { return ready_; }
  const std::vector<Part>& parts() const { return parts_; }
  int taken() const { return taken_; }  // batches
  bool all_taken() const { return taken_ == size_.batches; }
  // Counts one more batch as taken, and reports to each shard how much of its charge that is.
  void NoteTaken();

 private:
  bool many() const { return shards_->size() > 1; }
  Status TakeReply(Part* part, Result<Message> reply, Time now);
  Status CheckReply(const Message& message, Part* part) const;
  Status FindBlocks(const Message& message, Part* part) const;
  void GiveUp(Part* part, bool shut);
  void Judge();

  Size size_;
  std::deque<ShardConnection>* shards_;
  std::vector<Part> parts_;
  std::vector<double> used_;
  std::vector<char> shut_;
  std::int64_t missing_ = 0;  // rows of each batch that are not assigned to a shard
  std::int64_t charge_missing_ = 0;
  std::int64_t waived_ = 0;  // charge waived since the last Poll
  int taken_ = 0;
  std::optional<Time> last_answer_;
  bool ready_ = false;
};

}  // namespace troop
