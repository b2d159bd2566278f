#include "paramserver/codec/golomb_rice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/philox.h"

namespace troop {
namespace {

struct Entry {
  std::int64_t index = 0;
  std::uint32_t extra = 0;
  bool operator==(const Entry&) const = default;
};

std::vector<std::byte> Write(const std::vector<Entry>& entries, int rice, int extra_bits) {
  GolombRiceWriter writer(rice);
  for (const Entry& entry : entries) writer.Add(entry.index, entry.extra, extra_bits);
  const std::int64_t bits = writer.bits();
  auto bytes = std::move(writer).Take();
  EXPECT_EQ(std::int64_t(bytes.size()), (bits + 7) / 8);
  return bytes;
}

// Empty where it can't be read.
std::vector<Entry> Read(std::span<const std::byte> bytes, std::size_t count, int rice,
                        std::int64_t elements, int extra_bits) {
  GolombRiceReader reader(bytes, rice, elements);
  std::vector<Entry> entries(count);
  for (Entry& entry : entries) {
    if (!reader.Next(&entry.index, &entry.extra, extra_bits)) return {};
  }
  return reader.AtEnd() ? entries : std::vector<Entry>();
}

TEST(GapCodeTest, RoundTripsEntries) {
  const std::int64_t far = std::int64_t{1} << 31;
  std::vector<Entry> all;
  for (std::int64_t i = 0; i < 100; ++i) all.push_back({i, std::uint32_t(i % 2)});
  for (const std::vector<Entry>& entries : {std::vector<Entry>{{0, 1}},
                                            {{99, 0}},
                                            {{0, 1}, {99, 1}},
                                            all,
                                            {{far, 1}},
                                            {{far - 1, 0}, {far, 1}},
                                            {{3, 0}, {4, 1}, {1000000, 1}, {far, 0}}}) {
    const std::int64_t elements = entries.back().index + 1;
    for (const int rice : {RiceParameter(std::int64_t(entries.size()), elements), 18, 31, 40}) {
      const auto bytes = Write(entries, rice, 1);
      EXPECT_EQ(Read(bytes, entries.size(), rice, elements, 1), entries) << rice;
      EXPECT_TRUE(Read(bytes, entries.size(), rice, elements - 1, 1).empty());
      EXPECT_TRUE(Read(bytes, entries.size() + 1, rice, elements, 1).empty());
      EXPECT_TRUE(Read(std::span(bytes).first(bytes.size() - 1), entries.size(), rice, elements, 1)
                      .empty());
    }
  }
  EXPECT_TRUE(Write({}, 5, 1).empty());
  EXPECT_TRUE(GolombRiceReader({}, 5, 10).AtEnd());
}

TEST(GapCodeTest, RoundTripsRandomEntriesWithEveryParameter) {
  Rng rng({1, Purpose::kTest});
  for (int round = 0; round < 300; ++round) {
    const auto gap_max = std::uint32_t{1} << (1 + round % 12);
    std::vector<Entry> entries;
    std::int64_t at = -1;
    for (std::uint32_t i = rng.Below(100) + 1; i > 0; --i) {
      at += 1 + std::int64_t(rng.Below(gap_max));
      entries.push_back({at, rng.Below(8)});
    }
    const int rice = int(rng.Below(14));
    const auto bytes = Write(entries, rice, 3);
    ASSERT_EQ(Read(bytes, entries.size(), rice, at + 1, 3), entries);
  }
}

// A gap g of geometric law takes k bits, one, and floor(g / 2^k), whose mean is q / (1 - q) with
// q = (1 - p)^(2^k): 8.11, 11.49, 14.79 bits; the entropy is 8.08, 11.41, 14.73. The standard
// deviation of the mean of 100,000 is 0.006: five of them.
TEST(GapCodeTest, BitsPerEntryMatchTheory) {
  for (const auto& [density, want] :
       std::vector<std::pair<double, double>>{{1e-2, 8.11}, {1e-3, 11.49}, {1e-4, 14.79}}) {
    Rng rng({2, Purpose::kTest});
    constexpr std::int64_t kEntries = 100000;
    const auto elements = std::int64_t(kEntries / density);
    const int rice = RiceParameter(kEntries, elements);
    const double q = std::pow(1 - density, std::exp2(rice));
    EXPECT_NEAR(rice + 1 + q / (1 - q), want, 0.006);
    GolombRiceWriter writer(rice);
    std::int64_t at = -1;
    for (std::int64_t i = 0; i < kEntries; ++i) {
      at += 1 + std::int64_t(std::log(1 - rng.Uniform()) / std::log1p(-density));
      writer.Add(at);
    }
    EXPECT_NEAR(double(writer.bits()) / kEntries, want, 0.03) << density;
  }
}

TEST(GapCodeTest, RejectsDamageAndNeverReadsPastEnd) {
  const std::vector<Entry> entries{{5, 1}, {9, 0}};
  auto bytes = Write(entries, 2, 1);
  bytes.back() |= std::byte{0x80};  // padding
  EXPECT_TRUE(Read(bytes, 2, 2, 10, 1).empty());
  auto longer = Write(entries, 2, 1);
  longer.push_back(std::byte{0});
  EXPECT_TRUE(Read(longer, 2, 2, 10, 1).empty());
  // Ones without end: more than any index, and more than there are bytes.
  const std::vector<std::byte> ones(1000, std::byte{0xff});
  std::int64_t index = 0;
  EXPECT_FALSE(GolombRiceReader(ones, 0, std::int64_t{1} << 40).Next(&index));
  EXPECT_FALSE(GolombRiceReader(ones, 40, 100).Next(&index));
  EXPECT_FALSE(GolombRiceReader(ones, 0, 100).Next(&index));
  Rng rng({3, Purpose::kTest});
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::byte> noise(rng.Below(20));
    for (std::byte& b : noise) b = std::byte(rng.Below(256));
    const auto elements = std::int64_t(rng.Below(1000));
    GolombRiceReader reader(noise, int(rng.Below(41)), elements);
    std::int64_t last = -1;
    std::uint32_t sign = 0;
    while (reader.Next(&index, &sign, 1)) {
      ASSERT_GT(index, last);
      ASSERT_LT(index, elements);
      last = index;
    }
  }
}

}  // namespace
}  // namespace troop
