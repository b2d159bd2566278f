#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collective/collective.h"
#include "core/buffer.h"

namespace troop {

// A run of bytes on the way to or from another rank.
struct TransferSegment {
  std::byte* at = nullptr;  // from where; or to where
  std::size_t bytes = 0;
  const std::byte* own = nullptr;  // coming: what the received bytes are reduced with, into `at`
  bool own_first = false;          // ... and own is the left operand
};

// All that one operation sends to one rank, or receives from it.
struct Flow {
  int peer = 0;
  bool outgoing = false;
  std::vector<TransferSegment> segments;
  // Outgoing: segment i sends what segment i - lead of the incoming flow `source` brings: byte x
  // goes once x has come. The first `lead` segments wait for nothing. -1: none waits.
  int source = -1;
  int lead = 0;
  // Begins when this flow has ended; -1: at once.
  int after = -1;
};

// What stays on this rank; before the flows begin.
struct LocalCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
};

struct TransferPlan {
  std::vector<Flow> flows;
  std::vector<LocalCopy> copies;
  std::vector<MutableBuffer> scratch;  // what segments may point into
};

// The tensors of one rank, and who takes part: `ranks` by position, of which `self` is ours.
struct TransferPlanInput {
  Op op;
  DType dtype = DType::kF32;
  std::span<const std::byte> in;
  std::span<std::byte> out;
  std::span<const int> ranks;
  int self = 0;
};

// N ranks, V bytes. Above kSmallBytes: all-reduce, reduce-scatter and all-gather are rings whose
// stream has no barriers between steps (each rank sends 2 (N - 1) / N V bytes for an all-reduce),
// broadcast is a chain. Below: recursive doubling (ceil(log2 N) rounds of V bytes) and a tree.
// op.peer and kSend's and kReceive's are positions in `ranks`.
inline constexpr std::size_t kSmallBytes = 64 * 1024;
TransferPlan MakeTransferPlan(const TransferPlanInput& input);

}  // namespace troop
