#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/config/enum_names.h"

namespace troop {

// Operations on named vectors (Dean et al. 2012, sec. 4.2). The values are part of the wire format.
//   kDot    the result is a · b
//   kAxpy   b += factor · a
//   kScale  a *= factor
//   kCopy   b = a
enum class VectorOp : std::uint8_t { kDot, kAxpy, kScale, kCopy };
constexpr auto EnumNames(VectorOp) {
  return std::to_array<std::string_view>({"dot", "axpy", "scale", "copy"});
}

// Names of the vectors of L-BFGS. The pairs of the history follow.
struct VectorName {
  static constexpr std::uint8_t kWeights = 0, kGradient = 1, kDirection = 2;
  static constexpr std::uint8_t kStartWeights = 3, kStartGradient = 4;  // of the line search
  // Change of the weights, and of the gradient, in a place of the history.
  static constexpr std::uint8_t ChangeOfWeights(int place) { return std::uint8_t(5 + 2 * place); }
  static constexpr std::uint8_t ChangeOfGradient(int place) { return std::uint8_t(6 + 2 * place); }
  // Number of vectors with a history of that size.
  static constexpr int Count(int history) { return 5 + 2 * history; }
};

// A command to all parts of a vector: 11 bytes on the wire, whatever its length.
struct VectorCommand {
  VectorOp op = VectorOp::kDot;
  std::uint8_t a = 0, b = 0;  // names; kScale has no b
  double factor = 0;          // kAxpy, kScale
  bool operator==(const VectorCommand&) const = default;
  template <class A>
  void serialize(A& archive) {
    archive(op, a, b, factor);
  }
};

}  // namespace troop
