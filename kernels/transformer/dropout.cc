// Dropout keys, and dispatch of dropout masks to the best instruction set.
#include "kernels/transformer/dropout.h"

#include "core/base/check.h"
#include "core/base/philox.h"

namespace troop {

// Compiled once per instruction set, from dropout_impl.h.
namespace plain {
void SiteFactors(const DropoutSite&, std::uint32_t, std::int64_t, std::int64_t, float*);
}
namespace avx2 {
void SiteFactors(const DropoutSite&, std::uint32_t, std::int64_t, std::int64_t, float*);
}
namespace avx512 {
void SiteFactors(const DropoutSite&, std::uint32_t, std::int64_t, std::int64_t, float*);
}

// One stream per sample and step: the same mask on every device and rank.
DropoutKey MakeDropoutKey(std::uint64_t seed, std::uint64_t sample, std::uint64_t step) {
  const Rng rng({seed, Purpose::kDropout, sample, step});
  return {{rng.key()[0], rng.key()[1]}, {rng.stream()[0], rng.stream()[1]}};
}

// The best version that `level` admits.
DropoutFunction DropoutFor(CpuLevel level) {
  if (level >= CpuLevel::kAvx512) return avx512::SiteFactors;
  return level == CpuLevel::kAvx2 ? avx2::SiteFactors : plain::SiteFactors;
}

void DropoutFactors(const DropoutSite& site, float rate, std::int64_t first, std::int64_t n,
                    float* factor) {
  static const DropoutFunction best = DropoutFor(BestCpuLevel());
  TROOP_CHECK(rate >= 0 && rate < 1, "dropout rate is {}, must be in [0, 1)", rate);
  // The number of a Philox block has 32 bits, and a block serves eight elements.
  TROOP_CHECK(first >= 0 && n >= 0 && first + n <= std::int64_t{1} << 35,
              "dropout of {} elements from {}, at most 2^35 in all", n, first);
  best(site, DropoutKept(rate), first, n, factor);
}

}  // namespace troop
