// Implements Rng (Philox4x32-10) and its distributions.
#include "core/base/philox.h"

#include <cmath>
#include <numbers>

#include "core/base/check.h"

namespace troop {
namespace {

// Finalizer of SplitMix64 (Steele et al. 2014); mixes the fields of a key into 64 bits.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

// Ten rounds with the constants of Salmon et al. 2011.
std::array<std::uint32_t, 4> internal::Philox4x32(std::array<std::uint32_t, 4> c,
                                                  std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {std::uint32_t(p1 >> 32) ^ c[1] ^ k[0], std::uint32_t(p1),
         std::uint32_t(p0 >> 32) ^ c[3] ^ k[1], std::uint32_t(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

Rng::Rng(const RngKey& key) {
  // The seed and the purpose select the key; index and episode the upper half of the counter.
  const std::uint64_t a = Mix(key.run_seed ^ Mix(std::uint64_t(key.purpose)));
  const std::uint64_t b = Mix(a ^ Mix(key.index) ^ Mix(Mix(key.episode)));
  key_ = {std::uint32_t(a), std::uint32_t(a >> 32)};
  stream_ = {std::uint32_t(b), std::uint32_t(b >> 32)};
}

// The lower half of the counter is the block number, so streams have 2^66 words.
void Rng::Refill() {
  out_ = internal::Philox4x32(
      {std::uint32_t(block_), std::uint32_t(block_ >> 32), stream_[0], stream_[1]}, key_);
  ++block_;
  used_ = 0;
}

std::uint32_t Rng::NextU32() {
  if (used_ == 4) Refill();
  return out_[used_++];
}

std::uint64_t Rng::NextU64() {
  const std::uint64_t low = NextU32();
  return low | std::uint64_t{NextU32()} << 32;
}

// All values are exact: multiples of 2^-53 or 2^-24, below 1.
double Rng::Uniform() { return double(NextU64() >> 11) * 0x1p-53; }
float Rng::UniformF32() { return float(NextU32() >> 8) * 0x1p-24f; }
double Rng::Uniform(double low, double high) { return low + (high - low) * Uniform(); }

std::uint32_t Rng::Below(std::uint32_t n) {
  TROOP_CHECK(n > 0, "an empty range");
  // Method of Lemire 2019, "Fast random integer generation in an interval".
  std::uint64_t m = std::uint64_t{NextU32()} * n;
  if (std::uint32_t(m) < n) {
    const std::uint32_t threshold = -n % n;
    while (std::uint32_t(m) < threshold) m = std::uint64_t{NextU32()} * n;
  }
  return std::uint32_t(m >> 32);
}

double Rng::Normal() {
  const double u = 1.0 - Uniform();  // (0, 1]: the logarithm is finite
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * Uniform());
}

void Rng::Seek(std::uint64_t position) {
  block_ = position / 4;
  used_ = 4;
  // A position within a block requires the block to be generated.
  const std::uint32_t offset = position % 4;
  if (offset != 0) {
    Refill();
    used_ = offset;
  }
}

std::uint64_t DeriveSeed(const RngKey& key) { return Rng(key).NextU64(); }

}  // namespace troop
