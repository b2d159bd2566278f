// Buffers, shapes and tensors.
#include "core/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

namespace troop {
namespace {

using testing::Each;
using testing::ElementsAre;

bool Aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0; }

TEST(BufferTest, CopyIsIndependentAndAligned) {
  std::string text = "hello";
  const Buffer copy = Buffer::Copy(text);
  text[0] = 'J';
  EXPECT_EQ(copy.text(), "hello");
  EXPECT_TRUE(Aligned(copy.data()));
  EXPECT_TRUE(Buffer::Copy("").empty());
  EXPECT_EQ(Buffer().size(), 0u);
}

TEST(BufferTest, SliceSharesBytesAndKeepsThemAlive) {
  Buffer slice;
  {
    const Buffer whole = Buffer::Copy("0123456789");
    slice = whole.Slice(3, 4);
    EXPECT_EQ(slice.data(), whole.data() + 3);
  }
  EXPECT_EQ(slice.text(), "3456");
  EXPECT_EQ(slice.Slice(4, 0).text(), "");
}

TEST(BufferTest, FreezeMovesBytesWithoutCopy) {
  MutableBuffer bytes = MutableBuffer::Zeros(16);
  EXPECT_TRUE(Aligned(bytes.data()));
  bytes.as<std::uint32_t>()[1] = 7;
  const void* where = bytes.data();
  const Buffer frozen = std::move(bytes).Freeze();
  EXPECT_EQ(frozen.data(), where);
  EXPECT_THAT(frozen.as<std::uint32_t>(), ElementsAre(0, 7, 0, 0));
}

TEST(BufferDeathTest, AbortsOnMisalignedOrOutOfRangeViews) {
  const Buffer buffer = Buffer::Copy("0123456789");
  EXPECT_DEATH(buffer.Slice(8, 3), "slice \\[8, 8 \\+ 3\\) of 10 bytes");
  EXPECT_DEATH(buffer.Slice(11, 0), "slice");
  EXPECT_DEATH(buffer.Slice(1, ~std::size_t{0}), "slice");
  EXPECT_DEATH(buffer.as<float>(), "10 bytes are not a multiple of 4-byte elements");
  EXPECT_DEATH(buffer.Slice(1, 8).as<float>(), "not 4-aligned");
}

TEST(ShapeTest, ReturnsElementsAndAxes) {
  const Shape shape = {2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.ToString(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape{}.ToString(), "[]");
  EXPECT_EQ((Shape{5, 0}).elements(), 0);
  EXPECT_EQ(shape.Prepend(7), (Shape{7, 2, 3, 4}));
  EXPECT_EQ(shape.DropFirst(), (Shape{3, 4}));
  EXPECT_FALSE(shape == (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 0}) == Shape{2});
}

TEST(ShapeDeathTest, AbortsOnMissingAxis) {
  EXPECT_DEATH((void)(Shape{2, 3}[2]), "axis 2 of \\[2, 3\\]");
  EXPECT_DEATH((void)(Shape{2, 3}[-3]), "axis -1 of");
  EXPECT_DEATH((void)(Shape{1, 2, 3, 4, 5, 6}.Prepend(1)), "rank 6 is the limit");
  EXPECT_DEATH((void)(Shape{1, 2, 3, 4, 5, 6, 7}), "rank 7 > 6");
  EXPECT_DEATH((void)Shape{}.DropFirst(), "no first axis");
}

TEST(TensorTest, StartsAsZerosOfGivenType) {
  const Tensor tensor(DType::kF32, {2, 3});
  EXPECT_THAT(tensor.as<float>(), Each(0));
  EXPECT_EQ(tensor.spec().ToString(), "f32[2, 3]");
  EXPECT_EQ(tensor.spec().bytes(), 24u);
  EXPECT_TRUE(Aligned(tensor.bytes().data()));
  EXPECT_TRUE(Tensor().empty());
  EXPECT_FALSE(Tensor(DType::kU8, {0}).empty());
}

TEST(TensorTest, EveryTypeHasSizeAndName) {
  const std::vector<std::tuple<DType, std::size_t, std::string>> types = {
      {DType::kF32, 4, "f32"}, {DType::kF64, 8, "f64"}, {DType::kBF16, 2, "bf16"},
      {DType::kU8, 1, "u8"},   {DType::kI32, 4, "i32"}, {DType::kI64, 8, "i64"},
      {DType::kU64, 8, "u64"}, {DType::kU32, 4, "u32"}};
  for (const auto& [type, size, name] : types) {
    EXPECT_EQ(DTypeSize(type), size);
    EXPECT_EQ(DTypeName(type), name);
  }
  EXPECT_EQ(int(DTypeOf<BF16>::value), 2);  // travels and lies in checkpoints
}

TEST(TensorTest, RowsRangesAndReshapesShareBytes) {
  const Tensor tensor(DType::kI32, {4, 3});
  std::iota(tensor.as<std::int32_t>().begin(), tensor.as<std::int32_t>().end(), 0);
  EXPECT_THAT(tensor.Rows(1, 2).as<std::int32_t>(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(tensor.Rows(1, 2).shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor.Rows(4, 0).elements(), 0);
  EXPECT_THAT(tensor.Range(5, {2}).as<std::int32_t>(), ElementsAre(5, 6));
  tensor.Reshape({12}).as<std::int32_t>()[0] = 99;
  EXPECT_EQ(tensor.as<std::int32_t>()[0], 99);
  const ConstTensor view = tensor;
  EXPECT_THAT(view.Rows(3, 1).as<std::int32_t>(), ElementsAre(9, 10, 11));
  EXPECT_THAT(view.Reshape({2, 6}).Range(10, {2}).as<std::int32_t>(), ElementsAre(10, 11));
}

TEST(TensorTest, BufferAndViewOutliveTensor) {
  Buffer buffer;
  ConstTensor rows;
  {
    const Tensor tensor(DType::kU8, {3});
    tensor.as<std::uint8_t>()[2] = 5;
    buffer = tensor.AsBuffer();
    rows = ConstTensor(tensor).Rows(2, 1);
  }
  EXPECT_EQ(buffer.size(), 3u);
  EXPECT_EQ(ConstTensor(buffer, {DType::kU8, {3}}).as<std::uint8_t>()[2], 5);
  EXPECT_THAT(rows.as<std::uint8_t>(), ElementsAre(5));
}

TEST(TensorDeathTest, AbortsOnWrongTypeOrIndex) {
  const Tensor tensor(DType::kF32, {4, 3});
  EXPECT_DEATH((void)tensor.as<double>(), "tensor is f32\\[4, 3\\]");
  EXPECT_DEATH((void)tensor.Rows(3, 2), "rows \\[3, \\+2\\)");
  EXPECT_DEATH((void)tensor.Reshape({11}), "f32\\[4, 3\\] to \\[11\\]");
  EXPECT_DEATH((void)tensor.Range(11, {2}), "at 11");
  EXPECT_DEATH((void)ConstTensor(tensor).Rows(-1, 1), "rows");
  const Buffer buffer = Buffer::Copy("0123456789ab");
  EXPECT_DEATH((void)ConstTensor(buffer, {DType::kF32, {4}}), "12 bytes for f32\\[4\\]");
  EXPECT_DEATH((void)ConstTensor(buffer.Slice(1, 4), {DType::kF32, {1}}), "not 4-aligned");
}

}  // namespace
}  // namespace troop
