// Implements the all-gather and the sum of row gradients.

#include "learners/sync/row_exchange.h"

#include <cstring>
#include <span>

#include "core/tensor/tensor.h"

namespace troop {
namespace {

Tensor ViewOf(std::span<std::byte> bytes) {
  return Tensor::View(nullptr, bytes, {DType::kU8, {std::int64_t(bytes.size())}});
}

// Bytes of a row: its index and its values.
std::int64_t RowBytes(std::int64_t width) { return 4 + 4 * width; }

}  // namespace

std::int64_t RowExchange::bytes() const {
  const std::int64_t width = gradients_->row_gradient().sum().width;
  return std::int64_t(sizeof mine_) + mine_ * RowBytes(width);
}

// Phase 1: numbers of rows.
Status RowExchange::Start(bool given, std::vector<Work>* works) {
  if (!given) gradients_->row_gradient().Clear();
  mine_ = std::ssize(gradients_->row_gradient().sum().rows);
  counts_.assign(std::size_t(group_->size()), 0);
  const auto mine = std::as_bytes(std::span(&mine_, 1));
  TROOP_ASSIGN_OR_RETURN(
      works->emplace_back(),
      group_->Start({.kind = OpKind::kAllGather},
                    ConstTensor::Borrow(mine, {DType::kU8, {std::int64_t(mine.size())}}),
                    ViewOf(std::as_writable_bytes(std::span(counts_)))));
  return Status::Ok();
}

// Phase 2: the rows. A rank without rows has no operation, on any rank.
Status RowExchange::StartRows(std::vector<Work>* works) {
  const RowGradient& own = gradients_->row_gradient().sum();
  parts_.resize(counts_.size());
  for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
    // The count comes from another process: it is checked before memory is allocated.
    if (counts_[rank] < 0 || counts_[rank] > gradients_->rows()) {
      return DataLoss("rank {} has a gradient of {} rows, but the model has {}", rank,
                      counts_[rank], gradients_->rows());
    }
    if (counts_[rank] == 0) continue;
    parts_[rank].resize(std::size_t(counts_[rank] * RowBytes(own.width)));
    if (int(rank) == group_->rank()) {
      const auto rows = std::as_bytes(std::span(own.rows));
      std::memcpy(parts_[rank].data(), rows.data(), rows.size());
      std::memcpy(parts_[rank].data() + rows.size(), own.values.data(),
                  std::span(own.values).size_bytes());
    }
    const Tensor part = ViewOf(parts_[rank]);
    TROOP_ASSIGN_OR_RETURN(
        works->emplace_back(),
        group_->Start({.kind = OpKind::kBroadcast, .peer = int(rank)}, part, part));
  }
  return Status::Ok();
}

// Phase 3: the sum, in the order of the ranks. All indices are checked before the first addition.
Status RowExchange::Sum() {
  RowGradientSum& sum = gradients_->row_gradient();
  const auto width = std::size_t(sum.sum().width);
  std::vector<std::vector<std::int32_t>> rows(parts_.size());
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    // A rank without rows has sent nothing.
    if (counts_[rank] == 0) continue;
    rows[rank].resize(std::size_t(counts_[rank]));
    std::memcpy(rows[rank].data(), parts_[rank].data(), rows[rank].size() * sizeof(std::int32_t));
    for (const std::int32_t row : rows[rank]) {
      if (row >= 0 && row < gradients_->rows()) continue;
      return DataLoss("rank {} has a gradient of row {}, but the model has {} rows", rank, row,
                      gradients_->rows());
    }
  }
  // This rank's own rows are among the parts.
  sum.Clear();
  std::vector<float> values(width);
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    const std::byte* from = parts_[rank].data() + rows[rank].size() * sizeof(std::int32_t);
    for (const std::int32_t row : rows[rank]) {
      std::memcpy(values.data(), from, width * sizeof(float));
      from += width * sizeof(float);
      float* const to = sum.Row(row);
      for (std::size_t k = 0; k < width; ++k) to[k] += values[k];
    }
  }
  return Status::Ok();
}

Status RowExchange::Advance(std::vector<Work>* works) {
  if (at_ == At::kEnd) return Status::Ok();
  if (at_ == At::kCounts) {
    at_ = At::kRows;
    TROOP_RETURN_IF_ERROR(StartRows(works));
    // No rank has a row: there is nothing to wait for.
    if (!works->empty()) return Status::Ok();
  }
  at_ = At::kEnd;
  return Sum();
}

}  // namespace troop
