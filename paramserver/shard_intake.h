#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"
#include "core/time.h"
#include "net/network.h"
#include "paramserver/parameter_shard.h"
#include "paramserver/shard_backup.h"
#include "paramserver/wire.h"

namespace troop {

// A shard of the next map as it comes together: fetches what moves to it from those who own it now,
// piece by piece, and joins that with what stays. Owner: the node's; nothing blocks but Finish,
// which is O(n). Memory: what has come, and the shard that is made of it.
class ShardIntake {
 public:
  // `channels`: to the owners of what moves to `shard`. `bytes_max`: of what comes from one.
  ShardIntake(std::uint64_t move, std::int32_t shard,
              std::vector<std::unique_ptr<Channel>> channels, std::size_t bytes_max);

  void Poll(Time now);
  bool complete() const;  // all has come
  // `stays`: a snapshot of what the process has of it already, and its course; may be empty.
  // REQUIRES: complete. Errors: as of ParameterShard::Restore.
  Result<std::unique_ptr<ParameterShard>> Finish(const ParameterShard::Options& options,
                                                 const Buffer& stays, std::uint64_t course);
  std::uint64_t course() const { return course_; }  // the newest of all
  std::size_t bytes() const;                        // that came

 private:
  struct Source {
    std::unique_ptr<Channel> channel;
    ArrivingState arriving;
    Buffer state;
    std::uint64_t offset = 0;
    Ticket ticket = 0;
    Time ask_after{};
  };
  void Ask(Source* source);
  Status Take(Source* source, const Message& message);

  const std::uint64_t move_;
  const std::int32_t shard_;
  std::vector<Source> sources_;
  std::uint64_t course_ = 0;
};

// Bytes that a snapshot of `elements` with so many slots may have.
std::size_t ShardStateBytesMax(std::size_t elements, std::size_t slots);

}  // namespace troop
