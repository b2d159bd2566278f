#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/tensor/dtype.h"
#include "kernels/cuda/runtime/device.h"

// Parity cases: a kernel of kernels/cuda against the plain CPU reference in f64. A case runs on a
// real GPU (gpu_check, which needs only CUDA) and on the emulated one (cuda_test, in every build).
namespace troop::cuda {

std::vector<double> Doubles(std::span<const float> x);
// x rounded to bf16: the input that a bf16 kernel sees.
float RoundedToBF16(float x);
float RoundedToTF32(float x);  // to nearest, ties away from zero
std::vector<BF16> ToBF16s(std::span<const float> x);
std::vector<float> FromBF16s(std::span<const BF16> x);

// For cases that are the same for f32 and bf16.
template <class T>
inline constexpr DType kElement = std::is_same_v<T, BF16> ? DType::kBF16 : DType::kF32;

class Parity {
 public:
  Parity(Device& device, std::uint64_t seed) : device_(device), stream_(device), draws_(seed) {}

  Device& device() { return device_; }
  Stream& stream() { return stream_; }
  // True on GPUs, which run larger sizes than the emulator has time for.
  bool large() const { return !device_.info().emulated; }

  double Uniform(double low, double high);
  std::int64_t Below(std::int64_t n);
  std::vector<float> Random(std::int64_t n, double low = -1, double high = 1);

  // Uploads to the device. The memory after the end is NaN (0xff), and must stay so.
  template <class T>
  DeviceArray<T> Upload(std::span<const T> from) {
    DeviceArray<T> to = Output<T>(std::int64_t(from.size()));
    Put(to.data(), from.data(), from.size_bytes());
    return to;
  }
  template <class T>
  DeviceArray<T> Upload(const std::vector<T>& from) {
    return Upload(std::span<const T>(from));
  }
  // n elements of 0xff bytes, followed by a guard.
  template <class T>
  DeviceArray<T> Output(std::int64_t n) {
    DeviceArray<T> out(device_, n + Guards<T>(), "a test's array");
    if (out.data() != nullptr) stream_.Fill(out.data(), 0xff, out.bytes());
    return out;
  }
  template <class T>
  std::vector<T> Download(const DeviceArray<T>& from) {
    const std::int64_t n = from.size() - Guards<T>();
    std::vector<T> all(std::size_t(from.size()));
    Get(all.data(), from.data(), all.size() * sizeof(T));
    CheckGuard(reinterpret_cast<const std::byte*>(all.data() + n));
    all.resize(std::size_t(n));
    return all;
  }

  // Values as elements of T, float or BF16; and downloads as floats.
  template <class T>
  DeviceArray<T> UploadAs(const std::vector<float>& from) {
    if constexpr (std::is_same_v<T, BF16>) {
      return Upload(ToBF16s(from));
    } else {
      return Upload(from);
    }
  }
  template <class T>
  std::vector<float> DownloadFloats(const DeviceArray<T>& from) {
    if constexpr (std::is_same_v<T, BF16>) {
      return FromBF16s(Download(from));
    } else {
      return Download(from);
    }
  }

  // ‖got - want‖ / ‖want‖ < tolerance; both of the same size and without NaN.
  void Close(const std::string& what, std::span<const double> got, std::span<const double> want,
             double tolerance);
  void Close(const std::string& what, std::span<const float> got, std::span<const double> want,
             double tolerance);
  void Equal(const std::string& what, std::span<const float> got,
             std::span<const float> want);  // compares bits
  void True(const std::string& what, bool condition);

  const std::vector<std::string>& failures() const { return failures_; }
  double worst() const { return worst_; }  // largest error in Close, relative to its tolerance

 private:
  static constexpr std::int64_t kGuardBytes = 256;
  template <class T>
  static constexpr std::int64_t Guards() {
    return (kGuardBytes + std::int64_t(sizeof(T)) - 1) / std::int64_t(sizeof(T));
  }
  void Put(void* to, const void* from, std::size_t bytes);
  void Get(void* to, const void* from, std::size_t bytes);
  void CheckGuard(const std::byte* guard);

  Device& device_;
  Stream stream_;
  std::uint64_t draws_;
  double worst_ = 0;
  std::vector<std::string> failures_;
};

struct ParityCase {
  const char* name;  // Operation.SaysWhatIsTried
  void (*run)(Parity&);
  int needs = 0;  // required compute capability × 10: 80 for bf16 and TF32
};
std::vector<ParityCase> AllParityCases();

}  // namespace troop::cuda
