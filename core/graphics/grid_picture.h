#pragma once

#include <cstdint>
#include <vector>

#include "core/graphics/color.h"
#include "core/graphics/picture.h"

namespace troop {

// Draws a board with each cell as a square of kCellPixels. `colors`: [rows * columns].
inline constexpr int kCellPixels = 8;
Picture DrawBoard(int rows, int columns, const std::vector<Color>& colors);

}  // namespace troop
