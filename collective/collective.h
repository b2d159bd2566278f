#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "core/tensor.h"
#include "core/time.h"
#include "kernels/reduce.h"

namespace troop {

// What ranks do together. Fixed numbers: they travel on the wire.
enum class OpKind : std::uint8_t {
  kAllReduce = 1,      // in [n] -> out [n]: all ranks' in, reduced
  kReduceScatter = 2,  // in [N * n] -> out [n]: the rank's piece of what kAllReduce would give
  kAllGather = 3,      // in [n] -> out [N * n]: all ranks' in, by rank
  kAllToAll = 4,       // in [N * n] -> out [N * n]: piece r of in goes to rank r
  kBroadcast = 5,      // in [n] of rank `peer` -> out [n]; in of others is not looked at
  kSend = 6,           // in [n] to rank `peer`, which receives
  kReceive = 7,        // out [n] from rank `peer`, which sends
  kBarrier = 8,        // no tensors: done when all ranks have started theirs
};
std::string_view OpKindName(OpKind kind);  // "all-reduce", …

struct Op {
  OpKind kind = OpKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  int peer = 0;        // kBroadcast: the root; kSend, kReceive: the other side
  Duration timeout{};  // from Start to the end; 0: the group's
};

// Whose order of work device tensors follow; nullptr: tensors of the host. A group takes tensors of
// one kind: those of MakeNcclGroup of a device, all others of the host.
struct Stream {
  void* handle = nullptr;
};

using Work = std::uint64_t;  // one operation of one rank; 0: none

struct CollectiveCounters {
  std::uint64_t bytes_sent = 0;  // of payload, to other ranks, over sockets
  std::uint64_t bytes_received = 0;
};

// N ranks that call the same operations in the same order; kSend and kReceive are counted per pair
// and direction. Owner: one thread. Start never blocks, so several operations (buckets of a
// gradient) run while backward goes on; whoever polls drives them all.
//
// Invariants:
//  1. Results are bit-identical on all ranks, and on every run of the same group: sums have a fixed
//     order, which depends on rank, size and implementation, never on timing. f32 is added in f32,
//     bf16 in f32 with a rounding after each addition.
//  2. What one rank does not do the others learn: another operation, type or size
//     (kInvalidArgument), a rank that died (kUnavailable), one that is silent (kDeadlineExceeded).
//     The first failure ends the group: all works, open and later ones, end with it on all ranks
//     that live, and `out` holds anything. Survivors make a new group under the next epoch.
//  3. Nothing waits longer than the operation's timeout, provided that Poll or Wait is called.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // in and out are kept until the work has ended, and their bytes are the group's until then. They
  // may be the same bytes (kAllReduce, kBroadcast; kReduceScatter and kAllGather: the rank's own
  // piece); otherwise they don't overlap. Errors: kInvalidArgument: sizes that don't fit together
  // on this rank (the group goes on: nothing was started); kResourceExhausted: 1,024 works are
  // open; or what ended the group.
  virtual Result<Work> Start(const Op& op, ConstTensor in, Tensor out, Stream stream = {}) = 0;
  // Goes on with all works, for some milliseconds at most. nullopt: not ended yet; otherwise how it
  // ended, once: then the work is gone. REQUIRES: a work of Start that is not gone.
  virtual std::optional<Status> Poll(Work work) = 0;
  // The same, and blocks until it has ended.
  virtual Status Wait(Work work) = 0;
  // Of device tensors: what the stream is given from now on comes behind the work. Blocks until the
  // device has been given it, however long it takes there; it is polled to its end as ever. Errors:
  // kFailedPrecondition: a group of the host's tensors; what ended the group: then nothing is
  // waited for.
  virtual Status Follow(Work work, Stream stream);
  // Goes on as Poll does, also without any works, and says what ended the group.
  virtual Status Look() = 0;

  // A group of those who give the same color (below 0: of none: nullptr), by key, then by rank.
  // All ranks call it, with no works open. Blocks, at most for the group's timeouts.
  virtual Result<std::unique_ptr<Collective>> Split(int color, int key) = 0;
  // Ends the group for all ranks: what Invariant 2 says, by our own will.
  virtual void Abort(const Status& why) = 0;
  // What ended the group; ok: nothing yet.
  virtual Status status() const = 0;
  // The rank that `status` is about, as far as is known; -1: none.
  virtual int suspect() const = 0;
  virtual CollectiveCounters counters() const = 0;
};

// Start and Wait.
Status RunOp(Collective& group, const Op& op, ConstTensor in, Tensor out);

inline constexpr int kRanksMax = 256;
inline constexpr std::size_t kWorksMax = 1024;

// What Start checks on its own rank. Errors: kInvalidArgument.
Status CheckOp(const Op& op, const ConstTensor& in, const Tensor& out, int rank, int size);

}  // namespace troop
