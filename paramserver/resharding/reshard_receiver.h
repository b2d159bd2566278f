#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "net/network.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/replication/backup_client.h"
#include "paramserver/shard/parameter_shard.h"

namespace troop {

// Assembles a shard of the next map: fetches the ranges that move to it from their owners, piece by
// piece, and joins them with the ranges that stay. Owner: the node's thread; nothing blocks except
// Finish, which is O(n). Memory: the received ranges, and the shard that is built.
class ReshardReceiver {
 public:
  // `channels`: to the owners of ranges that move to `shard`. `bytes_max`: limit per owner.
  ReshardReceiver(std::uint64_t move, std::int32_t shard,
                  std::vector<std::unique_ptr<Channel>> channels, std::size_t bytes_max);

  // Processes replies and requests the next pieces.
  void Poll(Time now);
  bool complete() const;  // all ranges have arrived
  // Builds the shard. `kept`: a snapshot of the ranges that the process keeps, and its lineage;
  // may be empty. REQUIRES: complete. Errors: as in ParameterShard::Restore.
  Result<std::unique_ptr<ParameterShard>> Finish(const ParameterShard::Options& options,
                                                 const Buffer& kept, std::uint64_t lineage);
  std::uint64_t lineage() const { return lineage_; }  // newest of all sources
  std::size_t bytes() const;                          // received

 private:
  struct Source {
    std::unique_ptr<Channel> channel;
    StateAssembler assembler;
    Buffer state;
    std::uint64_t offset = 0;
    Ticket ticket = 0;
    Time retry_after{};
  };
  void RequestPiece(Source* source);
  Status TakePiece(Source* source, const Message& message);

  const std::uint64_t move_;
  const std::int32_t shard_;
  std::vector<Source> sources_;
  std::uint64_t lineage_ = 0;
};

// Upper bound on the snapshot size of `elements` parameters with this many optimizer slots.
std::size_t ShardStateBytesMax(std::size_t elements, std::size_t slots);

}  // namespace troop
