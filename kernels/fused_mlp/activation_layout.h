#pragma once

#include <cstdint>

#include "kernels/fused_mlp/fused_network.h"

// Memory layout of the activations of a batch. Everything is in an unnamed namespace, for the
// reason given in kernels/simd/vec.h.
namespace troop {
namespace {

// Rounds up to a cache line, 16 floats.
inline std::int64_t RoundUpLine(std::int64_t floats) { return (floats + 15) / 16 * 16; }

// Offsets in floats, each at a cache line. input: -1 if the network reads its input unconverted.
struct FusedNetLayout {
  std::int64_t input = -1, conv = 0;
  std::int64_t trunk[FusedNet::kTrunkMax];
  std::int64_t value[FusedNet::kStreamMax], advantage[FusedNet::kStreamMax];
  std::int64_t total = 0;

  inline FusedNetLayout(const FusedNet& net, std::int64_t batch) {
    if (net.input_u8 || net.input_scale != 1) input = Take(batch * net.inputs);
    if (net.has_conv) {
      conv = Take(batch * net.conv.out_height() * net.conv.out_width() * net.conv.filters);
    }
    for (int i = 0; i < net.trunk_count; ++i) trunk[i] = Take(batch * net.trunk[i].out);
    for (int i = 0; i < net.stream_count; ++i) {
      if (net.dueling) value[i] = Take(batch * net.value[i].out);
      advantage[i] = Take(batch * net.advantage[i].out);
    }
  }

 private:
  // Reserves `floats` floats.
  inline std::int64_t Take(std::int64_t floats) {
    const std::int64_t offset = total;
    total += RoundUpLine(floats);
    return offset;
  }
};

// True if forward reads the transposed weights of a layer (when the caller has them). The layer
// must be wide enough to fill a register. For large layers, transposing after each step costs more
// than it saves: a layer of 1024 x 128 runs at 80 % of the peak as it is.
inline bool IsTransposed(const FusedLinear& l) { return l.out >= 16 && l.in * l.out <= 128 * 128; }

// Size of the weights of the convolution (and of their gradient) as [kernel, kernel, channels,
// filters].
inline std::int64_t SmallConvWeights(const FusedNet& net) {
  return net.conv.kernel * net.conv.kernel * net.conv.channels * net.conv.filters;
}
inline std::int64_t SmallConvScratch(const FusedNet& net) {
  return net.has_conv ? RoundUpLine(SmallConvWeights(net)) : 0;
}

}  // namespace
}  // namespace troop
