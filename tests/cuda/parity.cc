#include "tests/cuda/parity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace troop::cuda {
namespace {

std::string Text(const char* format, double a, double b = 0, double c = 0) {
  char text[200];
  std::snprintf(text, sizeof text, format, a, b, c);
  return text;
}

}  // namespace

double Parity::Uniform(double low, double high) {
  draws_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = draws_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return low + (high - low) * double(z >> 11) * 0x1p-53;
}

std::int64_t Parity::Below(std::int64_t n) {
  return std::min(n - 1, std::int64_t(Uniform(0, double(n))));
}

std::vector<float> Parity::Random(std::int64_t n, double low, double high) {
  std::vector<float> x(std::size_t(n), 0);
  for (float& value : x) value = float(Uniform(low, high));
  return x;
}

void Parity::Put(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0 || to == nullptr) return;
  PinnedArray<std::byte> host(device_, std::int64_t(bytes), "a test's copy");
  if (host.data() == nullptr) return;
  std::memcpy(host.data(), from, bytes);
  stream_.CopyToDevice(to, host.data(), bytes);
  stream_.Synchronize();
}

void Parity::Get(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  PinnedArray<std::byte> host(device_, std::int64_t(bytes), "a test's copy");
  if (host.data() == nullptr) return;
  stream_.CopyToHost(host.data(), from, bytes);
  stream_.Synchronize();
  std::memcpy(to, host.data(), bytes);
}

void Parity::CheckGuard(const std::byte* guard) {
  if (!device_.ok()) return;
  for (std::int64_t i = 0; i < kGuardBytes; ++i) {
    if (guard[i] == std::byte{0xff}) continue;
    failures_.push_back("a kernel wrote " + std::to_string(i) + " bytes past the end of an array");
    return;
  }
}

void Parity::Close(const std::string& what, std::span<const double> got,
                   std::span<const double> want, double tolerance) {
  if (got.size() != want.size()) {
    failures_.push_back(what + ": " + std::to_string(got.size()) + " elements, not " +
                        std::to_string(want.size()));
    return;
  }
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) {
      failures_.push_back(what + Text(": element %.0f is %g, not %g", double(i), got[i], want[i]));
      return;
    }
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  worst_ = std::max(worst_, relative / tolerance);
  if (!(relative < tolerance))
    failures_.push_back(what + Text(": relative error %.3g, tolerance %.3g", relative, tolerance));
}

void Parity::Close(const std::string& what, std::span<const float> got,
                   std::span<const double> want, double tolerance) {
  Close(what, std::span<const double>(Doubles(got)), want, tolerance);
}

void Parity::Equal(const std::string& what, std::span<const float> got,
                   std::span<const float> want) {
  if (got.size() != want.size()) {
    failures_.push_back(what + ": different number of elements");
    return;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) == 0) continue;
    failures_.push_back(what +
                        Text(": element %.0f is %.9g, not %.9g", double(i), got[i], want[i]));
    return;
  }
}

void Parity::True(const std::string& what, bool condition) {
  if (!condition) failures_.push_back(what + ": is not so");
}

std::vector<double> Doubles(std::span<const float> x) { return {x.begin(), x.end()}; }

float RoundedToTF32(float x) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

float RoundedToBF16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

std::vector<BF16> ToBF16s(std::span<const float> x) {
  std::vector<BF16> out;
  for (const float f : x) {
    const float rounded = RoundedToBF16(f);
    std::uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    out.push_back({std::uint16_t(bits >> 16)});
  }
  return out;
}

std::vector<float> FromBF16s(std::span<const BF16> x) {
  std::vector<float> out;
  for (const BF16 b : x) {
    const std::uint32_t bits = std::uint32_t(b.bits) << 16;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    out.push_back(f);
  }
  return out;
}

}  // namespace troop::cuda
