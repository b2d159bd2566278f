// Implements Shape, TensorSpec and the views of Tensor and ConstTensor.
#include "core/tensor/tensor.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

namespace troop {

// Bytes per element.
std::size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  // Reached only by a value that was cast without a check.
  TROOP_CHECK(false, "dtype {}", int(dtype));
}

// Names of TensorSpec::ToString, which ParseTensorSpec and the worker protocol read.
std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU64:
      return "u64";
    case DType::kU32:
      return "u32";
  }
  return "unknown";
}

Shape::Shape(std::span<const std::int64_t> dims) : rank_(int(dims.size())) {
  TROOP_CHECK(dims.size() <= kMaxRank, "rank {} > {}", dims.size(), kMaxRank);
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

// Converts a possibly negative axis to an index; aborts if it is out of range.
std::size_t Shape::Axis(int axis) const {
  if (axis < 0) axis += rank_;
  TROOP_CHECK(axis >= 0 && axis < rank_, "axis {} of {}", axis, ToString());
  return std::size_t(axis);
}

// 1 for a scalar. No overflow check: untrusted dimensions are bounded where they are parsed.
std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= dims_[std::size_t(i)];
  return product;
}

// Shape of a batch of such tensors.
Shape Shape::Prepend(std::int64_t dim) const {
  TROOP_CHECK(rank_ < kMaxRank, "rank {} is the limit", kMaxRank);
  Shape out;
  out.rank_ = rank_ + 1;
  out.dims_[0] = dim;
  std::copy_n(dims_.begin(), rank_, out.dims_.begin() + 1);
  return out;
}

// Shape of one row.
Shape Shape::DropFirst() const {
  TROOP_CHECK(rank_ > 0, "no first axis");
  return Shape(dims().subspan(1));
}

std::string Shape::ToString() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) out += ", ";
    out += std::to_string(dims_[std::size_t(i)]);
  }
  return out + "]";
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

std::string TensorSpec::ToString() const {
  return std::string(DTypeName(dtype)) + shape.ToString();
}

// Inverse of TensorSpec::ToString. Errors: kInvalidArgument for text that is not a tensor type.
Result<TensorSpec> ParseTensorSpec(std::string_view text) {
  // Bounds the product of untrusted dimensions, which could overflow otherwise.
  constexpr std::int64_t kElementsMax = std::int64_t{1} << 40;
  // Spaces are optional everywhere.
  std::string plain;
  for (const char c : text) {
    if (c != ' ') plain += c;
  }
  const auto wrong = [&text] {
    return InvalidArgument("{:?} is not a tensor type; use type and shape, such as \"u8[84, 84]\"",
                           text);
  };
  const std::size_t open = plain.find('[');
  if (open == std::string::npos || plain.back() != ']') return wrong();
  const std::string_view name = std::string_view(plain).substr(0, open);
  // Format: name of the element type, then dimensions in brackets.
  int dtype = 0;
  while (dtype <= int(DType::kU32) && DTypeName(DType(dtype)) != name) ++dtype;
  if (dtype > int(DType::kU32)) return wrong();
  std::vector<std::int64_t> dims;
  std::int64_t elements = 1;
  const char* at = plain.data() + open + 1;
  const char* const end = plain.data() + plain.size() - 1;
  while (at < end) {
    std::int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    // Rejects zero, overflow of the product, too many dimensions, and a trailing comma.
    if (error != std::errc{} || dim < 1 || dim > kElementsMax / elements ||
        dims.size() == std::size_t(Shape::kMaxRank) || (next < end && *next != ',') ||
        next + 1 == end) {
      return wrong();
    }
    elements *= dim;
    dims.push_back(dim);
    at = next + (next < end ? 1 : 0);
  }
  return TensorSpec{DType(dtype), Shape(std::span<const std::int64_t>(dims))};
}

// Zeroed, in contrast to Uninitialized.
Tensor::Tensor(DType dtype, const Shape& shape) : Tensor(Uninitialized(dtype, shape)) {
  std::ranges::fill(bytes(), std::byte{0});
}

// For tensors that are written completely before they are read.
Tensor Tensor::Uninitialized(DType dtype, const Shape& shape) {
  Tensor t;
  t.spec_ = {dtype, shape};
  t.elements_ = shape.elements();
  // At least one byte, so that data() is not null for an empty tensor.
  t.owner_ = MutableBuffer(std::max<std::size_t>(t.spec_.bytes(), 1)).share();
  t.data_ = t.owner_.get();
  return t;
}

// View of memory that `owner` keeps alive; nothing is copied.
Tensor Tensor::View(std::shared_ptr<std::byte> owner, std::span<std::byte> bytes,
                    const TensorSpec& spec) {
  TROOP_CHECK(bytes.size() == spec.bytes(), "{} bytes for {}", bytes.size(), spec.ToString());
  Tensor t;
  t.owner_ = std::move(owner);
  t.data_ = bytes.data();
  t.spec_ = spec;
  t.elements_ = spec.shape.elements();
  return t;
}

// Shares the bytes: a tensor is always contiguous, so any shape of equal size fits.
Tensor Tensor::Reshape(const Shape& shape) const {
  TROOP_CHECK(shape.elements() == elements_, "{} to {}", spec_.ToString(), shape.ToString());
  Tensor t = *this;
  t.spec_.shape = shape;
  return t;
}

// Rows are contiguous, so a range of them is a range of elements.
Tensor Tensor::Rows(std::int64_t first, std::int64_t count) const {
  TROOP_CHECK(first >= 0 && count >= 0 && first + count <= dim(0), "rows [{}, +{}) of {}", first,
              count, spec_.ToString());
  const Shape row = spec_.shape.DropFirst();
  return Range(first * row.elements(), row.Prepend(count));
}

// Consecutive elements from `first` on, which share the bytes of this tensor.
Tensor Tensor::Range(std::int64_t first, const Shape& shape) const {
  TROOP_CHECK(first >= 0 && first + shape.elements() <= elements_, "{} at {} of {}",
              shape.ToString(), first, spec_.ToString());
  Tensor t = *this;
  t.data_ += std::size_t(first) * DTypeSize(dtype());
  t.spec_.shape = shape;
  t.elements_ = shape.elements();
  return t;
}

// Shares the bytes; the caller must not write to the tensor afterwards.
Buffer Tensor::AsBuffer() const { return Buffer(owner_, bytes()); }

// Shares the bytes of the tensor and keeps them alive.
ConstTensor::ConstTensor(const Tensor& tensor)
    : owner_(tensor.owner_),
      data_(tensor.data_),
      spec_(tensor.spec_),
      elements_(tensor.elements_) {}

// View of a received buffer; aborts if its size or alignment does not fit.
ConstTensor::ConstTensor(const Buffer& buffer, const TensorSpec& spec) {
  TROOP_CHECK(buffer.size() == spec.bytes(), "{} bytes for {}", buffer.size(), spec.ToString());
  // Received parts may be aligned to 8 bytes only.
  CheckBufferView(buffer.data(), buffer.size(), DTypeSize(spec.dtype), DTypeSize(spec.dtype));
  *this = Borrow(buffer.bytes(), spec);
  owner_ = buffer.owner();
}

// Has no owner: the bytes must outlive the tensor and its copies.
ConstTensor ConstTensor::Borrow(std::span<const std::byte> bytes, const TensorSpec& spec) {
  TROOP_CHECK(bytes.size() == spec.bytes(), "{} bytes for {}", bytes.size(), spec.ToString());
  ConstTensor t;
  t.data_ = bytes.data();
  t.spec_ = spec;
  t.elements_ = spec.shape.elements();
  return t;
}

ConstTensor ConstTensor::Reshape(const Shape& shape) const {
  TROOP_CHECK(shape.elements() == elements_, "{} to {}", spec_.ToString(), shape.ToString());
  ConstTensor t = *this;
  t.spec_.shape = shape;
  return t;
}

ConstTensor ConstTensor::Rows(std::int64_t first, std::int64_t count) const {
  TROOP_CHECK(first >= 0 && count >= 0 && first + count <= dim(0), "rows [{}, +{}) of {}", first,
              count, spec_.ToString());
  const Shape row = spec_.shape.DropFirst();
  return Range(first * row.elements(), row.Prepend(count));
}

ConstTensor ConstTensor::Range(std::int64_t first, const Shape& shape) const {
  TROOP_CHECK(first >= 0 && first + shape.elements() <= elements_, "{} at {} of {}",
              shape.ToString(), first, spec_.ToString());
  ConstTensor t = *this;
  t.data_ += std::size_t(first) * DTypeSize(dtype());
  t.spec_.shape = shape;
  t.elements_ = shape.elements();
  return t;
}

}  // namespace troop
