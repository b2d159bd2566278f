#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"

namespace troop {

// A shape of up to six dimensions, by value. Shape [] (rank 0) has one element.
class Shape {
 public:
  static constexpr int kMaxRank = 6;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  // negative: counted from the end
  std::int64_t operator[](int axis) const { return dims_[Axis(axis)]; }
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

// The element type and the shape of a tensor.
struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t bytes() const { return DTypeSize(dtype) * std::size_t(shape.elements()); }
  bool operator==(const TensorSpec&) const = default;
  std::string ToString() const;  // "f32[4]"
};
// Parses the format of ToString; blanks are ignored. Errors: kInvalidArgument: unknown type, not a
// list of dimensions >= 1, or more than 2^40 elements.
Result<TensorSpec> ParseTensorSpec(std::string_view text);

// A dense, row-major tensor whose start is 64-byte aligned. Copies share the bytes, and every copy
// can modify them, so only one thread may use them at a time.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, const Shape& shape);  // zeros
  static Tensor Uninitialized(DType dtype, const Shape& shape);
  // Creates a view of bytes that `owner` keeps alive. REQUIRES: bytes.size() == spec.bytes().
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

  // Returns the elements. REQUIRES: T matches dtype().
  template <class T>
  std::span<T> as() const {
    TROOP_CHECK(DTypeOf<T>::value == dtype(), "tensor is {}", spec_.ToString());
    return {reinterpret_cast<T*>(data_), std::size_t(elements_)};
  }
  // Returns the first element. REQUIRES: T matches dtype().
  template <class T>
  T* data() const {
    return as<T>().data();
  }

  Tensor Reshape(const Shape& shape) const;                   // view of the same bytes
  Tensor Rows(std::int64_t first, std::int64_t count) const;  // view of a range of the first axis
  Tensor Range(std::int64_t first,
               const Shape& shape) const;  // view that starts at element `first`
  // Shares the bytes as an immutable Buffer. REQUIRES: no writes afterwards.
  Buffer AsBuffer() const;

 private:
  friend class ConstTensor;
  std::shared_ptr<std::byte> owner_;
  std::byte* data_ = nullptr;
  TensorSpec spec_;
  std::int64_t elements_ = 0;
};

// A read-only tensor.
class ConstTensor {
 public:
  ConstTensor() = default;
  ConstTensor(const Tensor& tensor);
  // Creates a view of a Buffer. REQUIRES: buffer.size() == spec.bytes(), aligned for the element
  // type.
  ConstTensor(const Buffer& buffer, const TensorSpec& spec);
  // Creates a view without an owner: the caller keeps the bytes alive.
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
