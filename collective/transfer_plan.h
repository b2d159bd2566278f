#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "core/base/buffer.h"

namespace troop {

// A contiguous range of bytes to send to, or to receive from, another rank.
struct TransferSegment {
  std::byte* at = nullptr;  // source of outgoing, destination of incoming bytes
  std::size_t bytes = 0;
  const std::byte* own = nullptr;  // incoming: operand that the received bytes are reduced with
  bool own_first = false;          // true: `own` is the left operand
};

// Everything that one operation sends to one rank, or receives from it.
struct Flow {
  int peer = 0;
  bool outgoing = false;
  std::vector<TransferSegment> segments;
  // Outgoing: segment i forwards segment i - lead of the incoming flow `source`: byte x is sent
  // once x has arrived. The first `lead` segments do not wait. -1: no segment waits.
  int source = -1;
  int lead = 0;
  // Flow that must have ended before this one begins; -1: none.
  int after = -1;
};

// A copy within this rank, done before the flows begin.
struct LocalCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

// The copies and flows of one operation on one rank.
struct TransferPlan {
  std::vector<Flow> flows;
  std::vector<LocalCopy> copies;
  std::vector<MutableBuffer> scratch;  // temporary memory that segments point into
};

// The tensors of one rank, and the participants: `ranks` by position; this rank is at position
// `self`.
struct TransferPlanInput {
  Op op;
  DType dtype = DType::kF32;
  std::span<const std::byte> in;
  std::span<std::byte> out;
  std::span<const int> ranks;
  int self = 0;
};

// Plans an operation of N ranks on V bytes. Above kSmallBytes, all-reduce, reduce-scatter and
// all-gather are rings without barriers between steps (each rank sends 2 (N - 1) / N V bytes for an
// all-reduce), and broadcast is a chain. Below it they are recursive doubling (ceil(log2 N) rounds
// of V bytes) and a tree. Peers in `op` are positions in `ranks`.
inline constexpr std::size_t kSmallBytes = 64 * 1024;
TransferPlan MakeTransferPlan(const TransferPlanInput& input);

}  // namespace troop
