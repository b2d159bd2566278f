// Probes of the machine, so that figures of two machines can be compared: peak of fp32
// multiply-adds on one core, bandwidth of a large copy, and durable writes per second.
#include <fcntl.h>
#include <immintrin.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/storage/json.h"

namespace {

constexpr int kRepeats = 5;

double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Twelve independent sums: a latency of 4 times 2 units, plus half. They stay in registers; the
// empty asm keeps the compiler from removing them.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) double FlopsAvx512(long rounds) {
  __m512 sum[kChains];
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
  for (auto& s : sum) s = b;
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& s : sum) {
      s = _mm512_fmadd_ps(s, a, b);
      asm volatile("" : "+v"(s));
    }
  }
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double FlopsAvx2(long rounds) {
  __m256 sum[kChains];
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (auto& s : sum) s = b;
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& s : sum) {
      s = _mm256_fmadd_ps(s, a, b);
      asm volatile("" : "+v"(s));
    }
  }
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

double FlopsSse(long rounds) {
  __m128 sum[kChains];
  const __m128 a = _mm_set1_ps(0.999f), b = _mm_set1_ps(0.001f);
  for (auto& s : sum) s = b;
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& s : sum) {
      s = _mm_add_ps(_mm_mul_ps(s, a), b);
      asm volatile("" : "+v"(s));
    }
  }
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

double FmaGflops() {
  constexpr long kRounds = 2'000'000;
  const double begin = Seconds();
  double flops = 0;
  if (__builtin_cpu_supports("avx512f")) {
    flops = FlopsAvx512(kRounds);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    flops = FlopsAvx2(kRounds);
  } else {
    flops = FlopsSse(kRounds);
  }
  return flops / (Seconds() - begin) / 1e9;
}

// Bytes copied, not bytes transferred: a copy of n bytes counts n.
double CopyGbPerS() {
  constexpr std::size_t kBytes = 256u << 20;
  static std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const double begin = Seconds();
  std::memcpy(to.data(), from.data(), kBytes);
  benchmark::DoNotOptimize(to.data());
  benchmark::ClobberMemory();
  return static_cast<double>(kBytes) / (Seconds() - begin) / 1e9;
}

// Appends of 4 KiB per second, each followed by fsync, in the current folder; 0: not writable.
double FsyncPerS() {
  std::string path = "probe_bench.XXXXXX";
  const int file = ::mkstemp(path.data());
  if (file < 0) return 0;
  const std::vector<char> block(4096, 'x');
  const double begin = Seconds();
  int count = 0;
  while (count < 1000 && Seconds() - begin < 0.2) {
    if (::write(file, block.data(), block.size()) < 0 || ::fsync(file) != 0) break;
    ++count;
  }
  const double elapsed = Seconds() - begin;
  ::close(file);
  ::unlink(path.c_str());
  return count / elapsed;
}

void Print(const char* name, const char* unit, double (*measure)()) {
  measure();  // warms up caches, pages and the core's clock
  troop::JsonArray values;
  for (int i = 0; i < kRepeats; ++i) values.Add(troop::JsonText::Rounded(measure(), 4));
  troop::JsonObject row;
  row.Add("case", name).Add("metric", "probe").Add("unit", unit).Add("values", values);
  std::printf("%s\n", row.str().c_str());
}

}  // namespace

int main() {
  Print("fma_gflops", "GFLOP/s", FmaGflops);
  Print("copy_gb_s", "GB/s", CopyGbPerS);
  Print("fsync_per_s", "1/s", FsyncPerS);
}
