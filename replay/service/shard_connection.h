#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/base/time.h"
#include "net/network.h"
#include "replay/codec/frame_codec.h"
#include "replay/service/messages.h"

namespace troop {

// A sampler's connection to one shard: its last reported state, pending priorities, and
// dictionaries. Owner: the sampler.
class ShardConnection {
 public:
  ShardConnection(std::unique_ptr<Channel> channel, std::uint32_t table)
      : channel_(std::move(channel)), table_(table) {}

  // `rows` of each of `batches` batches; `charge`: items charged to the shard's rate limiter.
  struct Request {
    std::uint32_t rows = 0, batches = 0, charge = 0;
    bool drain = false;
  };
  // Sends a sample request. nullopt: no room now, nothing changed. Errors: the request is
  // impossible.
  Result<std::optional<Ticket>> Ask(const Request& request);
  // Sends a feed request: the charge, and the position of the caller's replica.
  Result<std::optional<Ticket>> RequestTableDelta(const Request& request, TableDeltaBody body);
  std::optional<Result<Message>> Poll(Ticket ticket) { return channel_->Poll(ticket); }
  void Forget(Ticket ticket) { channel_->Forget(ticket); }
  PeerState peer() const { return channel_->peer(); }

  // Requests the shard's totals, either at once or when it can be sampled. At most one such call
  // is open.
  Status Probe(bool when_ready, bool drain);
  bool probing() const { return probe_ != 0; }
  // Handles replies to priorities, dictionary requests and probes. Errors: permanent ones.
  Status PollSmall();
  void AddUpdate(std::uint64_t key, float priority) {
    key_.push_back(key);
    priority_.push_back(priority);
  }
  bool has_updates() const { return !key_.empty(); }
  void ObservePolicyVersion(std::uint64_t version) { policy_version_ = version; }
  // Sends priorities without a request. `drain`, `waive`: as in UpdateBody. False: no room now,
  // nothing was sent.
  Result<bool> SendUpdates(bool drain, bool waive);
  bool drain_told() const { return drain_told_; }

  // Checks that shares can be computed from a reply's total and credit. Errors: kDataLoss.
  static Status Check(const SampleReplyBody& body);
  void Note(const SampleReplyBody& body);  // takes the shard's state from a reply; REQUIRES: Check
  // Records how much of the reserved items was taken. Counts are per incarnation of the shard:
  // those of an earlier one are ignored.
  void Take(std::uint64_t reserved, std::uint64_t life) {
    if (life == life_) taken_ = std::max(taken_, reserved);
  }
  std::uint64_t life() const { return life_; }
  // True if all of these dictionaries are present. Requests the missing ones, which
  // NewDictionaries returns later.
  bool HasDictionaries(std::span<const std::uint32_t> ids);
  std::vector<std::shared_ptr<const FrameDictionary>> NewDictionaries();
  void ForgetDictionary(std::uint32_t id) { dictionaries_.erase(id); }
  // True if the shard has reported any of these as unknown since ClearLost.
  bool LostAny(std::span<const std::uint32_t> ids) const;
  void ClearLost() { lost_.clear(); }

  // Marks the shard dead and drops its state; MarkAlive and a successful probe revive it.
  void MarkDead();
  void MarkAlive() { dead_ = false; }

  double total() const { return total_; }
  // Credit left after open requests; < 0: more was charged than is available.
  double credit() const { return credit_ - double(charged_); }
  void Charge(std::int64_t items) {
    charged_ += items;
  }  // adds to the charge in flight; negative: answered
  bool known() const { return known_; }
  bool dead() const { return dead_; }
  bool closed() const { return closed_; }
  void Close() { closed_ = true; }

  // State of the sampler.
  std::optional<Time> waived_at;  // open waiver since
  // Questions for the credit since a part was answered: the last one, and the pause after it.
  std::optional<Time> credit_asked_at;
  Duration credit_pause{};
  std::optional<Time> drain_untold_at;  // a drain could not be sent since
  int groups_since_total = 0;           // groups started since its last reported total

 private:
  std::optional<Ticket> Send(MessageType type, std::string body, Status* error);
  SampleBody BodyOf(const Request& request) const;
  void PollDictionaries();

  std::unique_ptr<Channel> channel_;
  std::uint32_t table_;
  double total_ = 0, credit_ = 0;
  std::int64_t charged_ = 0;
  std::uint64_t taken_ = 0, life_ = 0, policy_version_ = 0;
  bool known_ = false, dead_ = false, closed_ = false, drain_told_ = false;
  Ticket probe_ = 0;
  std::deque<Ticket> updates_;
  std::vector<std::uint64_t> key_;  // pending updates
  std::vector<float> priority_;
  std::set<std::uint32_t> dictionaries_;  // present
  std::set<std::uint32_t> lost_;          // requested, and unknown to the shard
  std::map<std::uint32_t, Ticket> asked_;
  std::vector<std::shared_ptr<const FrameDictionary>> new_dictionaries_;
};

}  // namespace troop
