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

// Collective operations of N ranks on the tensors `in` and `out`. Values are fixed: they are part
// of the wire format.
enum class OpKind : std::uint8_t {
  kAllReduce = 1,      // `in` [n] -> `out` [n]: reduction of every rank's `in`
  kReduceScatter = 2,  // `in` [N * n] -> `out` [n]: this rank's piece of the all-reduce result
  kAllGather = 3,      // `in` [n] -> `out` [N * n]: every rank's `in`, in order of rank
  kAllToAll = 4,       // `in` [N * n] -> `out` [N * n]: piece r of `in` goes to rank r
  kBroadcast = 5,      // `in` [n] of rank `peer` -> `out` [n]; the `in` of others is ignored
  kSend = 6,           // `in` [n] to rank `peer`, which calls kReceive
  kReceive = 7,        // `out` [n] from rank `peer`, which calls kSend
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

// CUDA stream that orders the work on device tensors; nullptr for host tensors. A group accepts one
// kind of tensors: groups made by MakeNcclGroup device tensors, all other groups host tensors.
struct Stream {
  void* handle = nullptr;
};

using Work = std::uint64_t;  // handle of one operation on one rank; 0: none

// Payload traffic of this rank over sockets.
struct CollectiveCounters {
  std::uint64_t bytes_sent = 0;  // to other ranks
  std::uint64_t bytes_received = 0;
};

// A process group of N ranks. All ranks must call the same operations in the same order; kSend and
// kReceive only have to match per pair of ranks and direction. Owner: one thread. Start never
// blocks, so several operations (buckets of a gradient) can run during the backward pass; polling
// any of them advances all.
//
// Invariants:
//  1. Results are bit-identical on all ranks and in every run of the same group: the order of each
//  sum is fixed by the ranks, the sizes and the implementation, and never depends on timing. f32 is
//  added in f32; bf16 is added in f32 and rounded to bf16 after each addition.
//  2. Failures reach all ranks: a mismatched operation, type or size (kInvalidArgument), a rank
//  that died (kUnavailable), or a silent rank (kDeadlineExceeded). The first failure ends the
//  group: on all surviving ranks it is the result of every open and every later operation, and
//  `out` is undefined. Survivors form a new group under the next epoch (GroupOptions::epoch).
//  3. Nothing waits longer than the operation's timeout, provided that Poll or Wait is called.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts an operation. The group references `in` and `out` until the operation has ended, and
  // owns their bytes until then. `in` and `out` may be the same bytes (kAllReduce, kBroadcast), or
  // one may be this rank's own piece of the other (kReduceScatter, kAllGather); otherwise they must
  // not overlap. Errors: kInvalidArgument: sizes that do not match on this rank (the group
  // continues, nothing was started); kResourceExhausted: 1,024 operations are open; or the failure
  // of the group.
  virtual Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream = {}) = 0;
  // Advances all operations, for a few milliseconds at most. Returns nullopt while `work` is
  // running, then its result, once; afterwards the handle is invalid. REQUIRES: a valid handle of
  // Start.
  virtual std::optional<Status> Poll(Work work) = 0;
  // Like Poll, but blocks until the operation has ended.
  virtual Status Wait(Work work) = 0;
  // For device tensors: makes the stream wait for the operation before it runs work that is added
  // after this call. Blocks until the operation is enqueued on the device, not until it has ended;
  // the caller must still poll `work` until it has a result. Errors: kFailedPrecondition: a group
  // of host tensors; or the failure of the group, in which case the stream waits for nothing.
  virtual Status EnqueueWait(Work work, Stream stream);
  // Advances all operations like Poll and returns the failure of the group; ok if there is none.
  // With no operations open, it still detects failures.
  virtual Status Progress() = 0;

  // Creates a group of the ranks that pass the same color, ordered by key, then by rank. A rank
  // that passes a color below 0 joins no group and gets nullptr. All ranks must call it, with no
  // operations open. Blocks for at most the group's timeouts.
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
