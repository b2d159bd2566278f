#pragma once

#include "kernels/conv/conv2d_weight_gradient.h"

// Blocking of conv2d_weight_gradient.h. A register tile holds the sums of 8 filters and 32 columns
// of a kernel row; it accumulates over a block of items before it touches dw.
namespace troop {

inline constexpr std::int64_t kGradientFilters = 8;           // filters of a register tile
inline constexpr std::int64_t kGradientItemsBytes = 1 << 18;  // bytes of x per block of items
inline constexpr std::int64_t kGradientItemsMax = 16;
inline constexpr int kGradientAhead = 16;  // prefetch distance, in positions of x

// Sizes that follow from a shape. Keeps a reference to the shape.
struct ConvGradientPlan {
  explicit ConvGradientPlan(const ConvShape& s)
      : shape(s),
        positions(s.out_height() * s.out_width()),
        pairs((positions + 1) / 2),
        item(s.height * s.width * s.channels),
        items(kGradientItemsBytes / (2 * item)) {
    items = items < 1 ? 1 : items > kGradientItemsMax ? kGradientItemsMax : items;
  }

  const ConvShape& shape;
  std::int64_t positions, pairs;  // positions of an item's output, and pairs of them
  std::int64_t item;              // elements of x per item
  std::int64_t items;             // items per block
};

// The AVX-512 BF16 implementation of ConvGradientBF16.
void ConvGradientAvx512Bf16(const ConvGradientArgs& args);

}  // namespace troop
