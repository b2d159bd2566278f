#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/buffer.h"
#include "core/check.h"
#include "core/dtype.h"
#include "core/status.h"

namespace troop {

// Up to six dimensions, by value. Elements of shape [] (rank 0): one.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[Axis(axis)]; }  // negative: from the end
  std::span<const std::int64_t> dims() const { return {dims_.data(), std::size_t(rank_)}; }
  std::int64_t elements() const;
  Shape Prepend(std::int64_t dim) const;  // [N, ...this]
  Shape DropFirst() const;                // REQUIRES: rank() > 0
  std::string ToString() const;           // "[2, 3]"
  bool operator==(const Shape& other) const;

 private:
  std::size_t Axis(int axis) const;
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t bytes() const { return DTypeSize(dtype) * std::size_t(shape.elements()); }
  bool operator==(const TensorSpec&) const = default;
  std::string ToString() const;  // "f32[4]"
};
// What ToString writes; blanks don't matter. Errors: kInvalidArgument: no such type, no list of
// dimensions of at least 1, or more than 2^40 elements.
Result<TensorSpec> ParseTensorSpec(std::string_view text);

// Dense, row-major, 64-byte aligned at its start. Copying shares the bytes; the bytes of a Tensor
// may be changed through any copy, so one owner thread at a time.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, const Shape& shape);  // zeros
  static Tensor Uninitialized(DType dtype, const Shape& shape);
  // A view of bytes that `owner` keeps alive. REQUIRES: bytes.size() == spec.bytes().
  static Tensor View(std::shared_ptr<std::byte> owner, std::span<std::byte> bytes,
                     const TensorSpec& spec);

  DType dtype() const { return spec_.dtype; }
  const Shape& shape() const { return spec_.shape; }
  const TensorSpec& spec() const { return spec_; }
  std::int64_t dim(int axis) const { return spec_.shape[axis]; }
  std::int64_t elements() const { return elements_; }
  bool empty() const { return data_ == nullptr; }
  std::span<std::byte> bytes() const {
    return {data_, std::size_t(elements_) * DTypeSize(dtype())};
  }

  // REQUIRES: T matches dtype().
  template <class T>
  std::span<T> as() const {
    TROOP_CHECK(DTypeOf<T>::value == dtype(), "tensor is {}", spec_.ToString());
    return {reinterpret_cast<T*>(data_), std::size_t(elements_)};
  }
  template <class T>
  T* data() const {
    return as<T>().data();
  }

  Tensor Reshape(const Shape& shape) const;                    // same bytes
  Tensor Rows(std::int64_t first, std::int64_t count) const;   // of the first axis
  Tensor Range(std::int64_t first, const Shape& shape) const;  // elements from `first` on
  // The bytes as an immutable Buffer, shared: nobody may write them afterwards.
  Buffer AsBuffer() const;

 private:
  friend class ConstTensor;
  std::shared_ptr<std::byte> owner_;
  std::byte* data_ = nullptr;
  TensorSpec spec_;
  std::int64_t elements_ = 0;
};

// The same, read-only.
class ConstTensor {
 public:
  ConstTensor() = default;
  ConstTensor(const Tensor& tensor);
  // A view of a Buffer. REQUIRES: buffer.size() == spec.bytes(), aligned for the element type.
  ConstTensor(const Buffer& buffer, const TensorSpec& spec);
  // A view without an owner: the caller keeps the bytes alive.
  static ConstTensor Borrow(std::span<const std::byte> bytes, const TensorSpec& spec);

  DType dtype() const { return spec_.dtype; }
  const Shape& shape() const { return spec_.shape; }
  const TensorSpec& spec() const { return spec_; }
  std::int64_t dim(int axis) const { return spec_.shape[axis]; }
  std::int64_t elements() const { return elements_; }
  bool empty() const { return data_ == nullptr; }
  std::span<const std::byte> bytes() const {
    return {data_, std::size_t(elements_) * DTypeSize(dtype())};
  }
  template <class T>
  std::span<const T> as() const {
    TROOP_CHECK(DTypeOf<T>::value == dtype(), "tensor is {}", spec_.ToString());
    return {reinterpret_cast<const T*>(data_), std::size_t(elements_)};
  }
  template <class T>
  const T* data() const {
    return as<T>().data();
  }
  ConstTensor Reshape(const Shape& shape) const;
  ConstTensor Rows(std::int64_t first, std::int64_t count) const;
  ConstTensor Range(std::int64_t first, const Shape& shape) const;

 private:
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  TensorSpec spec_;
  std::int64_t elements_ = 0;
};

}  // namespace troop
