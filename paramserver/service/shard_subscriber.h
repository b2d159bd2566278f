#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "paramserver/protocol/messages.h"
#include "paramserver/service/shard_resolver.h"
#include "paramserver/shard/shard_map.h"
#include "paramserver/weights/weights_client.h"

namespace troop {

// The weights of K parameter shards as one snapshot. In synchronous modes (IsSynchronous) all
// ranges have one version, never torn. Otherwise each range is its shard's newest version, as in
// Downpour (Dean et al. 2012, sec. 4.1). A snapshot's version is WeightsVersion(newest lineage of
// the shards, lowest version), and only grows: a restored older shard still produces newer snapshot
// versions. Synchronous shards are also taken with unequal versions if these differ permanently:
// one shard was restored from an older version, and no learner pushes any more. Owner: the node's
// thread. Memory: 2 x [P].
class ShardSubscriber final : public WeightSubscriber {
 public:
  // Channels are in the order of map.shards(). `resolver`: resolves the shards' endpoints; null:
  // they never change.
  ShardSubscriber(ShardMap map, std::vector<std::unique_ptr<Channel>> channels, bool synchronous,
                  std::unique_ptr<ShardResolver> resolver = nullptr);

  void Request(Time now) override;
  bool requesting() const override { return requesting_; }
  std::optional<WeightSnapshot> Poll(Time now) override;
  std::uint64_t version() const override { return version_; }
  std::uint64_t server_version() const override { return version_; }
  Status error() const override { return error_; }

  // Switches to another process that serves this shard now.
  void Replace(std::size_t shard, std::unique_ptr<Channel> channel);
  // Switches to a new shard map; `channels` as in the constructor.
  void Remap(const ShardMap& map, std::vector<std::unique_ptr<Channel>> channels);

 private:
  struct Shard {
    std::unique_ptr<Channel> channel;
    std::vector<ParamRange> ranges;
    std::size_t bytes = 0;
    std::vector<Buffer> parts;  // of the last pull
    std::uint64_t version = 0, lineage = 0;
    Ticket ticket = 0;
  };
  void RequestFrom(Shard* shard, std::uint64_t exact);
  void TakeReply(Shard* shard, const Result<Message>& answer);
  Status TakeParts(Shard* shard, const Message& message);
  bool ReconcileVersions();
  std::vector<std::uint64_t> Versions() const;
  bool VersionsStayUnequal(Time now);
  Buffer Gather() const;
  std::optional<WeightSnapshot> Finish(Time now);

  ShardMap map_;
  const bool synchronous_;
  std::unique_ptr<ShardResolver> resolver_;
  std::vector<Shard> shards_;
  bool requesting_ = false;
  bool request_failed_ = false;           // a shard failed to answer; the next request may succeed
  int rounds_ = 0;                        // attempts of this request to get equal versions
  std::vector<std::uint64_t> delivered_;  // lineages and versions of the last snapshot
  std::vector<std::uint64_t> unequal_versions_;  // unchanged since unequal_since_
  Time unequal_since_{};
  std::uint64_t version_ = 0;
  Status error_;
};

}  // namespace troop
