// Implements Golomb-Rice coding of index gaps. Codes are written and read through a 64-bit window.
#include "paramserver/codec/golomb_rice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "core/base/check.h"

namespace troop {

int RiceParameter(std::int64_t entries, std::int64_t elements) {
  TROOP_CHECK(entries >= 0 && entries <= elements, "{} of {}", entries, elements);
  if (entries == 0 || entries == elements) return 0;
  const double density = double(entries) / double(elements);
  const double k = std::round(std::log2(-std::numbers::ln2 / std::log1p(-density)));
  return int(std::clamp(k, 0.0, double(kRiceMax)));
}

// Appends bits to the window and moves whole bytes out of it.
void GolombRiceWriter::Put(std::uint64_t value, int bits) {
  word_ |= value << held_;
  held_ += bits;
  for (; held_ >= 8; held_ -= 8, word_ >>= 8) bytes_.push_back(std::byte(word_ & 0xff));
}

void GolombRiceWriter::Add(std::int64_t index, std::uint32_t extra, int extra_bits) {
  TROOP_CHECK(index > last_, "{} after {}", index, last_);
  const auto gap = std::uint64_t(index - last_ - 1);
  last_ = index;
  // The quotient in unary, in runs that fit into the window, then its terminating zero.
  constexpr int kRun = 32;
  std::uint64_t ones = gap >> rice_;
  for (; ones >= kRun; ones -= kRun) Put((std::uint64_t{1} << kRun) - 1, kRun);
  Put((std::uint64_t{1} << ones) - 1, int(ones) + 1);
  // The remainder and the extra bits.
  Put(gap & ((std::uint64_t{1} << rice_) - 1), rice_);
  Put(extra, extra_bits);
}

std::vector<std::byte> GolombRiceWriter::Take() && {
  if (held_ > 0) Put(0, 8 - held_);
  return std::move(bytes_);
}

// Loads up to 8 bytes from the current bit position, without advancing.
std::uint64_t GolombRiceReader::Peek() const {
  const std::size_t byte = at_ / 8;
  std::uint64_t word = 0;
  if (byte < bytes_.size()) {
    std::memcpy(&word, bytes_.data() + byte, std::min(bytes_.size() - byte, sizeof word));
  }
  return word >> (at_ % 8);
}

bool GolombRiceReader::Take(int bits, std::uint64_t* value) {
  if (bytes_.size() * 8 - at_ < std::size_t(bits)) return false;
  *value = Peek() & ((std::uint64_t{1} << bits) - 1);
  at_ += std::size_t(bits);
  return true;
}

// Every step is checked against the remaining bytes and indices, so corrupt input ends early.
bool GolombRiceReader::Next(std::int64_t* index, std::uint32_t* extra, int extra_bits) {
  const auto left = std::uint64_t(elements_ - last_ - 1);  // indices that are still possible
  // 1. Count the ones of the quotient, at most 56 per window.
  std::uint64_t ones = 0;
  for (;;) {
    constexpr int kSeen = 56;
    const int run = std::min(std::countr_one(Peek()), kSeen);
    ones += std::uint64_t(run);
    at_ += std::size_t(run);
    if (at_ >= bytes_.size() * 8 || ones > (left >> rice_)) return false;
    if (run < kSeen) break;
  }
  ++at_;  // the terminating zero
  // 2. Read the remainder and the extra bits.
  std::uint64_t low = 0, more = 0;
  if (!Take(rice_, &low) || !Take(extra_bits, &more)) return false;
  // 3. Check the index.
  const std::uint64_t gap = (ones << rice_) | low;
  if (gap >= left) return false;
  last_ += std::int64_t(gap) + 1;
  *index = last_;
  if (extra != nullptr) *extra = std::uint32_t(more);
  return true;
}

// Less than a byte of zeros may remain.
bool GolombRiceReader::AtEnd() const {
  return at_ <= bytes_.size() * 8 && bytes_.size() * 8 - at_ < 8 && Peek() == 0;
}

}  // namespace troop
