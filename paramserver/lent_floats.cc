#include "paramserver/lent_floats.h"

#include <algorithm>
#include <utility>

#include "net/part_memory.h"

namespace troop {

struct LentFloats::Loan {
  Loan(std::shared_ptr<std::byte> bytes, std::shared_ptr<Count> count)
      : storage(std::move(bytes)), lent(std::move(count)) {
    lent->fetch_add(1, std::memory_order_relaxed);
  }
  Loan(const Loan&) = delete;
  // Whatever was read was read before.
  ~Loan() { lent->fetch_sub(1, std::memory_order_release); }

  std::shared_ptr<std::byte> storage;
  std::shared_ptr<Count> lent;
};

LentFloats::LentFloats(std::size_t count) {
  MutableBuffer zeros = MakePart(count * sizeof(float));
  values_ = zeros.as<float>();
  std::ranges::fill(values_, 0.0f);
  storage_ = std::move(zeros).share();
  lent_ = std::make_shared<Count>(0);
}

Buffer LentFloats::Lend() {
  return Buffer(std::make_shared<const Loan>(storage_, lent_), std::as_bytes(values_));
}

std::span<float> LentFloats::Own() {
  const bool lent = lent_->load(std::memory_order_acquire) > 0;
  if (!lent && !IsReadByOthers(values_.data())) return values_;
  MutableBuffer copy = MakePart(values_.size_bytes());
  const std::span<float> values = copy.as<float>();
  std::ranges::copy(values_, values.begin());
  values_ = values;
  storage_ = std::move(copy).share();
  lent_ = std::make_shared<Count>(0);
  return values_;
}

}  // namespace troop
