#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "paramserver/client.h"
#include "paramserver/shard_finder.h"
#include "paramserver/shard_map.h"
#include "paramserver/wire.h"

namespace troop {

// The weights of K parameter shards as one snapshot. In step (InStep): all ranges are of one
// version, never torn. Else each range is its shard's newest: no two shards need agree (Downpour:
// Dean et al. 2012, sec. 4.1). A snapshot's version is WeightsVersion(newest course of the shards,
// their lowest version), and only grows: a shard that went back gives newer ones all the same. In
// step, too, they are taken as they are where they differ for good: one went back, and nobody
// pushes any more.
// Owner: the node's thread. Memory: 2 x [P].
class ShardSubscriber final : public WeightSubscriber {
 public:
  // Channels in the order of map.shards(). `finder`: says where the shards are; null: they stay.
  ShardSubscriber(ShardMap map, std::vector<std::unique_ptr<Channel>> channels, bool in_step,
                  std::unique_ptr<ShardFinder> finder = nullptr);

  void Request(Time now) override;
  bool requesting() const override { return requesting_; }
  std::optional<WeightSnapshot> Poll(Time now) override;
  std::uint64_t version() const override { return version_; }
  std::uint64_t server_version() const override { return version_; }
  Status error() const override { return error_; }

  // Another process serves this shard by now.
  void Replace(std::size_t shard, std::unique_ptr<Channel> channel);
  // The parameters lie otherwise by now; `channels` as in the constructor.
  void Remap(const ShardMap& map, std::vector<std::unique_ptr<Channel>> channels);

 private:
  struct Shard {
    std::unique_ptr<Channel> channel;
    std::vector<ParamRange> ranges;
    std::size_t bytes = 0;
    std::vector<Buffer> parts;  // of what was pulled
    std::uint64_t version = 0, course = 0;
    Ticket ticket = 0;
  };
  void Ask(Shard* shard, std::uint64_t exact);
  void Take(Shard* shard, const Result<Message>& answer);
  Status TakeParts(Shard* shard, const Message& message);
  bool Agree();
  std::vector<std::uint64_t> Versions() const;
  bool DifferForGood(Time now);
  Buffer Gather() const;
  std::optional<WeightSnapshot> Finish(Time now);

  ShardMap map_;
  const bool in_step_;
  std::unique_ptr<ShardFinder> finder_;
  std::vector<Shard> shards_;
  bool requesting_ = false;
  bool gave_up_ = false;  // a shard did not answer this request; the next may be luckier
  int rounds_ = 0;        // of this request
  std::vector<std::uint64_t> given_;   // courses and versions of the last snapshot
  std::vector<std::uint64_t> differ_;  // that did not agree, and since when
  Time differ_since_{};
  std::uint64_t version_ = 0;
  Status error_;
};

}  // namespace troop
