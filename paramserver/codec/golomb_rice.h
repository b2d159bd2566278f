#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troop {

// Golomb-Rice coding of the gaps between sorted indices (Golomb 1966, Rice & Plaunt 1971). The
// number of elements skipped before an index is coded as its quotient by 2^k (that many ones, then
// a zero) and its remainder (k bits); then come the extra bits of the entry, if any. Random
// positions of density p take about log2(1/p) + 1.5 bits each. Bits fill bytes from the lowest;
// those after the last entry are 0.

// Largest k.
inline constexpr int kRiceMax = 40;

// Best k for the density p = entries / elements: round(log2(-ln 2 / ln(1 - p))) (Strom 2015), at
// least 0 and at most kRiceMax. 0 if all or no elements are present. REQUIRES: 0 <= entries <=
// elements.
int RiceParameter(std::int64_t entries, std::int64_t elements);

// Encodes a strictly growing sequence of indices.
class GolombRiceWriter {
 public:
  // rice: k. REQUIRES: 0 <= rice <= kRiceMax.
  explicit GolombRiceWriter(int rice) : rice_(rice) {}
  // Appends an index and its extra bits. REQUIRES: larger than the previous index; extra <
  // 2^extra_bits, extra_bits <= 16.
  void Add(std::int64_t index, std::uint32_t extra = 0, int extra_bits = 0);
  // Returns the code with the last byte zero-padded.
  std::vector<std::byte> Take() &&;
  std::int64_t bits() const { return std::int64_t(bytes_.size()) * 8 + held_; }

 private:
  void Put(std::uint64_t value, int bits);  // bits <= 56

  int rice_;
  std::int64_t last_ = -1;
  std::vector<std::byte> bytes_;
  std::uint64_t word_ = 0;
  int held_ = 0;  // bits in word_, below 8 between calls
};

// Decodes untrusted input: never reads past the bytes, and accepts only strictly growing indices
// below `elements`. REQUIRES: no call after one that failed.
class GolombRiceReader {
 public:
  // rice: k of the writer. REQUIRES: 0 <= rice <= kRiceMax; elements >= 0.
  GolombRiceReader(std::span<const std::byte> bytes, int rice, std::int64_t elements)
      : bytes_(bytes), rice_(rice), elements_(elements) {}
  // Reads the next index and its extra bits. Returns false if the bytes end too early or the index
  // is not below `elements`. REQUIRES: extra_bits as written, at most 16.
  bool Next(std::int64_t* index, std::uint32_t* extra = nullptr, int extra_bits = 0);
  // True if everything but the zero padding has been read.
  bool AtEnd() const;

 private:
  bool Take(int bits, std::uint64_t* value);  // bits <= 56
  std::uint64_t Peek() const;                 // at least 57 bits, zeros past the end

  std::span<const std::byte> bytes_;
  int rice_;
  std::int64_t elements_;
  std::int64_t last_ = -1;
  std::size_t at_ = 0;  // position in bits
};

}  // namespace troop
