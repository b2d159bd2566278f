#pragma once

#include <cstdint>

#include "nn/sparse/row_gradient.h"

namespace troop {

// A gradient of which few rows are not zero, in place of Algorithm::gradient(), which is empty
// then: an optional interface of an Algorithm (Algorithm::row_gradients). Owner thread: the
// algorithm's.
class RowGradients {
 public:
  virtual ~RowGradients() = default;
  // Number of rows of the matrix, of which a gradient has some.
  virtual std::int64_t rows() const = 0;
  // The rows after the last ComputeGradient. Callers add the rows of other learners here, and
  // divide by the number of learners. width: the number of outputs.
  virtual RowGradientSum& row_gradient() = 0;
};

}  // namespace troop
