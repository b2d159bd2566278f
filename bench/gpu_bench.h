#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/runtime/device.h"

// Timing and output, shared by gpu_bench.cc and gpu_bench_text.cc.
namespace troop::cuda {

inline constexpr int kSamples = 7;

// Deterministic inputs, equal to those of gpu_torch.py.
inline std::uint32_t Synthetic(std::uint32_t stream, std::uint64_t index) {
  std::uint32_t x = std::uint32_t(index) * 0x9E3779B1u ^ stream * 0x85EBCA77u;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}
inline float Uniform(std::uint32_t stream, std::uint64_t index) {  // [-1, 1)
  return float(double(Synthetic(stream, index)) * 0x1p-31 - 1);
}

class Bench {
 public:
  Bench(Device& device, double seconds, std::FILE* json)
      : device_(device),
        stream_(device),
        begin_(device),
        end_(device),
        seconds_(seconds),
        json_(json) {}

  Device& device() { return device_; }
  Stream& stream() { return stream_; }

  template <class T>
  DeviceArray<T> Upload(const std::vector<T>& from) {
    DeviceArray<T> to(device_, std::int64_t(from.size()), "a benchmark's input");
    PinnedArray<T> host(device_, std::int64_t(from.size()), "a benchmark's input");
    if (to.data() == nullptr || host.data() == nullptr) return to;
    std::copy(from.begin(), from.end(), host.data());
    stream_.CopyToDevice(to.data(), host.data(), to.bytes());
    stream_.Synchronize();
    return to;
  }
  // Random values in [-1, 1): uninitialized memory may be NaN, which some units process faster.
  DeviceArray<float> RandomF32(std::int64_t n, std::uint32_t key) {
    std::vector<float> x(std::size_t(std::min<std::int64_t>(n, 1 << 20)), 0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = Uniform(key, i);
    const auto some = Upload(x);
    DeviceArray<float> all(device_, n, "a benchmark's input");
    for (std::int64_t at = 0; at < n && all.data() != nullptr; at += some.size())
      stream_.CopyOnDevice(all.data() + at, some.data(),
                           std::size_t(std::min(some.size(), n - at)) * sizeof(float));
    stream_.Synchronize();
    return all;
  }
  DeviceArray<BF16> RandomBF16(std::int64_t n, std::uint32_t key) {
    const auto f32 = RandomF32(n, key);
    DeviceArray<BF16> bf16(device_, n, "a benchmark's input");
    ConvertScaled(stream_,
                  {.n = n, .from = f32.data(), .to = bf16.data(), .to_dtype = DType::kBF16});
    stream_.Synchronize();
    return bf16;
  }

  // Seconds of one `work`: kSamples samples, each over as many calls as take `seconds_`.
  std::vector<double> Time(const std::function<void()>& work) {
    for (int i = 0; i < 3; ++i) work();
    int repeats = 1;
    for (;;) {
      const double s = Once(work, repeats);
      if (s > seconds_ / kSamples || repeats > 100'000 || !device_.ok()) break;
      repeats = s <= 0 ? repeats * 10
                       : std::max(repeats + 1, int(repeats * 1.1 * seconds_ / kSamples / s));
    }
    std::vector<double> samples;
    for (int i = 0; i < kSamples && device_.ok(); ++i)
      samples.push_back(Once(work, repeats) / repeats);
    return samples;
  }

  // Records a rate: `amount` of `unit` per second of `work`.
  void Rate(const std::string& name, const char* metric, const char* unit, double amount,
            const std::function<void()>& work, double check = NAN) {
    std::vector<double> values = Time(work);
    for (double& value : values) value = amount / value;
    Report(name, metric, unit, "higher", std::move(values), check);
  }

  void Report(const std::string& name, const char* metric, const char* unit, const char* better,
              std::vector<double> values, double check) {
    if (!device_.ok() || values.empty()) return;
    std::sort(values.begin(), values.end());
    const double median = values[values.size() / 2];
    const double spread = (values.back() - values.front()) / median;
    std::printf("%-44s %-12s %12.5g %-10s ± %.1f %%\n", name.c_str(), metric, median, unit,
                50 * spread);
    std::fflush(stdout);
    if (json_ == nullptr) return;
    std::fprintf(json_,
                 "{\"case\": \"%s\", \"metric\": \"%s\", \"unit\": \"%s\", \"better\": \"%s\", "
                 "\"value\": %.8g, \"spread\": %.4g, \"samples\": %zu",
                 name.c_str(), metric, unit, better, median, spread, values.size());
    if (std::isfinite(check)) std::fprintf(json_, ", \"check\": %.10g", check);
    std::fprintf(json_, "}\n");
    std::fflush(json_);
  }

 private:
  double Once(const std::function<void()>& work, int repeats) {
    begin_.Record(stream_);
    for (int i = 0; i < repeats; ++i) work();
    end_.Record(stream_);
    end_.Synchronize();
    return double(end_.MillisecondsSince(begin_)) / 1e3;
  }

  Device& device_;
  Stream stream_;
  Event begin_, end_;
  const double seconds_;
  std::FILE* const json_;
};

// Cases of gpu_bench_text.cc.
void Attention(Bench& bench);
void Transformers(Bench& bench);
void BertStep(Bench& bench);

}  // namespace troop::cuda
