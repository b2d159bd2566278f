#pragma once

#include <cstdint>
#include <vector>

#include "collective/collective.h"
#include "core/base/status.h"
#include "nn/sparse/row_gradients.h"

namespace troop {

// Sums the row gradients of a group's ranks. First all announce their number of rows, then each
// rank broadcasts its rows: indices (i32), then values (f32). The sum adds the ranks in their
// order, so that all ranks, and all runs, get the same bits. Driven by the caller, which runs the
// operations that Start and Advance return to their end; group and gradients must outlive it.
class RowExchange {
 public:
  RowExchange(Collective* group, RowGradients* gradients) : group_(group), gradients_(gradients) {}
  // Begins with this rank's rows. given: false: it contributes none. Appends the operations that
  // must end before Advance to *works. Errors: those of Collective::Start.
  Status Start(bool given, std::vector<Work>* works);
  // The next phase, which may need further operations: none are appended once the sum is made.
  // Errors: those of Collective::Start; kDataLoss: a rank sent more rows than the matrix has, or a
  // row outside it.
  Status Advance(std::vector<Work>* works);
  // Bytes of this rank's contribution: its rows, 4 + 4 · width each, and the number of them.
  std::int64_t bytes() const;

 private:
  Status StartRows(std::vector<Work>* works);
  Status Sum();

  Collective* const group_;
  RowGradients* const gradients_;
  enum class At { kCounts, kRows, kEnd } at_ = At::kCounts;
  std::int64_t mine_ = 0;                      // number of this rank's rows
  std::vector<std::int64_t> counts_;           // of each rank
  std::vector<std::vector<std::byte>> parts_;  // of each rank: indices, then values
};

}  // namespace troop
