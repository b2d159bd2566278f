#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/tensor/tensor.h"
#include "kernels/elementwise/reduce.h"

namespace troop {

// Collective operations. Values are fixed: they are part of the wire format.
enum class OpKind : std::uint8_t {
  kAllReduce = 1,      // in [n] -> out [n]: reduction of all ranks' in
  kReduceScatter = 2,  // in [N * n] -> out [n]: this rank's piece of the all-reduce result
  kAllGather = 3,      // in [n] -> out [N * n]: all ranks' in, by rank
  kAllToAll = 4,       // in [N * n] -> out [N * n]: piece r of in goes to rank r
  kBroadcast = 5,      // in [n] of rank `peer` -> out [n]; in of other ranks is ignored
  kSend = 6,           // in [n] to rank `peer`, which calls kReceive
  kReceive = 7,        // out [n] from rank `peer`, which calls kSend
  kBarrier = 8,        // no tensors: ends when all ranks have started it
};
std::string_view OpKindName(OpKind kind);  // "all-reduce", …

// Parameters of one operation.
struct Op {
  OpKind kind = OpKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  int peer = 0;        // kBroadcast: the root; kSend, kReceive: the other side
  Duration timeout{};  // from Start to the end; 0: the group's default
};

// CUDA stream that orders the work on device tensors; nullptr for host tensors. A group takes
// tensors of one kind: groups of MakeNcclGroup those of a device, all others host tensors.
struct Stream {
  void* handle = nullptr;
};

using Work = std::uint64_t;  // handle of one operation on one rank; 0: none

// Payload traffic of this rank over sockets.
struct CollectiveCounters {
  std::uint64_t bytes_sent = 0;  // to other ranks
  std::uint64_t bytes_received = 0;
};

// A process group of N ranks that call the same operations in the same order; kSend and kReceive
// are ordered per pair and direction. Owner: one thread. Start never blocks, so several operations
// (buckets of a gradient) overlap with backward; polling any of them advances all.
//
// Invariants:
//  1. Results are bit-identical on all ranks and in every run of the same group: sums have a fixed
//  order, which depends on rank, size and implementation, never on timing. f32 is added in f32;
//  bf16 in f32 with a rounding after each addition.
//  2. Failures reach all ranks: a mismatched operation, type or size (kInvalidArgument), a rank
//  that died (kUnavailable), one that is silent (kDeadlineExceeded). The first failure ends the
//  group: all operations, open and later ones, end with it on all surviving ranks, and `out` is
//  undefined. Survivors form a new group under the next epoch.
//  3. Nothing waits longer than the operation's timeout, provided that Poll or Wait is called.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts an operation. `in` and `out` are kept until it has ended, and the group owns their bytes
  // until then. They may be the same bytes (kAllReduce, kBroadcast; kReduceScatter and kAllGather:
  // this rank's own piece); otherwise they must not overlap. Errors: kInvalidArgument: sizes that
  // do not match on this rank (the group continues, nothing was started); kResourceExhausted: 1,024
  // operations are open; or the failure of the group.
  virtual Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream = {}) = 0;
  // Advances all operations, for a few milliseconds at most. Returns nullopt while `work` is
  // running, then its result, once; afterwards the handle is invalid. REQUIRES: a valid handle of
  // Start.
  virtual std::optional<Status> Poll(Work work) = 0;
  // Like Poll, but blocks until the operation has ended.
  virtual Status Wait(Work work) = 0;
  // For device tensors: makes work that is added to the stream from now on wait for the operation.
  // Blocks until the operation is enqueued on the device, not until it ends; the handle must still
  // be polled to its end. Errors: kFailedPrecondition: a group of host tensors; or the failure of
  // the group, in which case the stream waits for nothing.
  virtual Status EnqueueWait(Work work, Stream stream);
  // Advances all operations like Poll, also if there are none, and returns the failure of the
  // group.
  virtual Status Progress() = 0;

  // Creates a group of the ranks with the same color, ordered by key, then by rank. A color below 0
  // joins no group: nullptr. All ranks call it, with no operations open. Blocks, at most for the
  // group's timeouts.
  virtual Result<std::unique_ptr<Collective>> Split(int color, int key) = 0;
  // Ends the group for all ranks, as in invariant 2.
  virtual void Abort(const Status& why) = 0;
  // Failure that ended the group; ok if there is none.
  virtual Status status() const = 0;
  // Rank that caused the failure, if known; -1 otherwise.
  virtual int suspect() const = 0;
  virtual CollectiveCounters counters() const = 0;
};

// Runs one operation to its end: Start and Wait.
Status RunOp(Collective& group, const Op& op, ConstTensor in, Tensor out);

// Limits of a group: ranks, and open operations per rank.
inline constexpr int kRanksMax = 256;
inline constexpr std::size_t kWorksMax = 1024;

// Validates an operation on this rank alone. Errors: kInvalidArgument.
Status CheckOp(const Op& op, const ConstTensor& in, const Tensor& out, int rank, int size);

}  // namespace troop
