// Implements the vectors of L-BFGS.

#include "nn/lbfgs/lbfgs_vectors.h"

namespace troop {
namespace {

// Four sums, so that the additions do not wait for each other.
template <class T>
double Dot(std::span<const T> a, std::span<const T> b) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= a.size(); i += 4) {
    for (std::size_t k = 0; k < 4; ++k) sums[k] += double(a[i + k]) * double(b[i + k]);
  }
  for (; i < a.size(); ++i) sums[0] += double(a[i]) * double(b[i]);
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

}  // namespace

template <class T>
Status LbfgsVectors<T>::Run(std::span<const VectorCommand> commands, std::vector<double>* results) {
  // Commands come from the network.
  for (const VectorCommand& c : commands) {
    const bool known = c.op <= VectorOp::kCopy && c.a < count() && c.b < count();
    if (known) continue;
    return InvalidArgument(
        "command {} on vectors {} and {}: there are {} operations and {} vectors", int(c.op), c.a,
        c.b, EnumNames(VectorOp{}).size(), count());
  }
  for (const VectorCommand& c : commands) {
    const std::span<T> a = at(c.a), b = at(c.b);
    switch (c.op) {
      case VectorOp::kDot:
        results->push_back(Dot<T>(a, b));
        break;
      case VectorOp::kAxpy:
        // In f64, rounded once.
        for (std::size_t i = 0; i < a.size(); ++i) b[i] = T(double(b[i]) + c.factor * double(a[i]));
        break;
      case VectorOp::kScale:
        for (T& x : a) x = T(c.factor * double(x));
        break;
      case VectorOp::kCopy:
        // A vector is not assigned to itself.
        if (c.a != c.b) vectors_[c.b] = vectors_[c.a];
        break;
    }
  }
  return Status::Ok();
}

template class LbfgsVectors<float>;
template class LbfgsVectors<double>;

}  // namespace troop
