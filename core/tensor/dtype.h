#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Element types, separate from tensor.h for code that is built with a compiler only.
namespace troop {

// Element types. The values are part of the wire format and of checkpoints.
enum class DType : std::uint8_t {
  kF32 = 0,
  kF64 = 1,
  kBF16 = 2,
  kU8 = 3,
  kI32 = 4,
  kI64 = 5,
  kU64 = 6,
  kU32 = 7
};
// Size of an element in bytes.
std::size_t DTypeSize(DType dtype);
std::string_view DTypeName(DType dtype);  // "f32", …

struct BF16 {
  std::uint16_t bits = 0;
};  // brain float: the upper half of an f32

// clang-format off
// Maps a C++ type to its DType.
template <class T> struct DTypeOf;
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };
template <> struct DTypeOf<BF16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<std::uint8_t> { static constexpr DType value = DType::kU8; };
template <> struct DTypeOf<std::int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<std::int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<std::uint64_t> { static constexpr DType value = DType::kU64; };
template <> struct DTypeOf<std::uint32_t> { static constexpr DType value = DType::kU32; };
// clang-format on

}  // namespace troop
