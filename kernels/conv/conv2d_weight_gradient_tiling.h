#pragma once

#include "kernels/conv/conv2d_weight_gradient.h"

// How conv_gradient.h divides its work.
namespace troop {

inline constexpr std::int64_t kGradientFilters = 8;           // of a register tile
inline constexpr std::int64_t kGradientItemsBytes = 1 << 18;  // of x, from which a block is summed
inline constexpr std::int64_t kGradientItemsMax = 16;
inline constexpr int kGradientAhead = 16;  // positions of x that are fetched early

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
  std::int64_t positions, pairs;  // of an item's output
  std::int64_t item;              // elements of x
  std::int64_t items;             // summed in registers before dw is touched
};

void ConvGradientAvx512Bf16(const ConvShape& shape, std::int64_t batch, const BF16* x,
                            const BF16* dz, void* scratch, float* dw, float* db, bool accumulate);

}  // namespace troop
