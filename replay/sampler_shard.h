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

#include "core/time.h"
#include "net/network.h"
#include "replay/frame_codec.h"
#include "replay/wire.h"

namespace troop {

// A sampler's line to one shard: what it last said of itself, priorities on their way to it, its
// dictionaries. Owner: the sampler.
class SamplerShard {
 public:
  SamplerShard(std::unique_ptr<Channel> channel, std::uint32_t table)
      : channel_(std::move(channel)), table_(table) {}

  struct Request {
    std::uint32_t rows = 0, batches = 0, charge = 0;
    bool drain = false;
  };
  // nullopt: no room now, nothing changed. Errors: the call can't be made at all.
  Result<std::optional<Ticket>> Ask(const Request& request);
  // The same for a feed: the request's charge, with what it says of the caller's copy.
  Result<std::optional<Ticket>> AskFeed(const Request& request, FeedBody body);
  std::optional<Result<Message>> Poll(Ticket ticket) { return channel_->Poll(ticket); }
  void Forget(Ticket ticket) { channel_->Forget(ticket); }
  PeerState peer() const { return channel_->peer(); }

  // Asks for its totals: at once, or when it can be drawn from. No more than one such call is open.
  Status Probe(bool when_ready, bool drain);
  bool probing() const { return probe_ != 0; }
  // Priorities, dictionaries and probes that were answered. Errors: what asking again can't mend.
  Status PollSmall();
  void AddUpdate(std::uint64_t key, float priority) {
    key_.push_back(key);
    priority_.push_back(priority);
  }
  bool has_updates() const { return !key_.empty(); }
  void SeePolicyVersion(std::uint64_t version) { policy_version_ = version; }
  // Alone, with no request. `drain`, `waive`: as in UpdateBody. False: no room now, nothing sent.
  Result<bool> SendUpdates(bool drain, bool waive);
  bool drain_told() const { return drain_told_; }

  // kDataLoss: a total or credit that shares can't be made of.
  static Status Check(const SampleReplyBody& body);
  void Note(const SampleReplyBody& body);  // what each reply says of the shard; REQUIRES: Check
  // Counted anew in each of its lives: what an earlier one had reserved says nothing to this one.
  void Take(std::uint64_t reserved, std::uint64_t life) {
    if (life == life_) taken_ = std::max(taken_, reserved);
  }
  std::uint64_t life() const { return life_; }
  // Whether all of them are here; asks for those that are not. They come out of NewDictionaries.
  bool HasDictionaries(std::span<const std::uint32_t> ids);
  std::vector<std::shared_ptr<const FrameDictionary>> NewDictionaries();
  void ForgetDictionary(std::uint32_t id) { dictionaries_.erase(id); }
  // Whether it said of any that it has none such, since ClearLost.
  bool LostAny(std::span<const std::uint32_t> ids) const;
  void ClearLost() { lost_.clear(); }

  void Die();
  void Heard() { dead_ = false; }

  double total() const { return total_; }
  // What may be charged beside what was asked already; < 0: more was asked than there is.
  double credit() const { return credit_ - double(charged_); }
  void Charge(std::int64_t items) { charged_ += items; }  // in flight; negative: answered
  bool known() const { return known_; }
  bool dead() const { return dead_; }
  bool closed() const { return closed_; }
  void Close() { closed_ = true; }

  std::optional<Time> waived_at;  // unanswered since; the sampler's own
  int groups_unheard = 0;         // groups since it last said its total

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
  std::vector<std::uint64_t> key_;  // wait for a message
  std::vector<float> priority_;
  std::set<std::uint32_t> dictionaries_;  // here
  std::set<std::uint32_t> lost_;          // asked for, and gone
  std::map<std::uint32_t, Ticket> asked_;
  std::vector<std::shared_ptr<const FrameDictionary>> new_dictionaries_;
};

}  // namespace troop
