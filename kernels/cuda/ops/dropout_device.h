#pragma once

#include "kernels/cuda/ops/dropout.h"
#include "kernels/cuda/runtime/device_code.h"

// The random numbers of kernels/transformer/dropout_impl.h, in registers. Only for .cu files.
// Element e of a site is the 16-bit half h of word w of Philox block 16 (e / 128) + e % 16, where 2
// w + h = e % 128 / 16: a block serves eight elements that are 16 apart.
namespace troop::cuda {

inline constexpr int kDropoutGroup = 128, kDropoutLanes = 16;

// Dropout as a kernel argument. kept: elements kept of 65536; scale: 1 / keep.
struct DropoutArgs {
  const DropoutKey* keys = nullptr;
  std::uint32_t site = 0, kept = 0;
  float scale = 1;
};
inline DropoutArgs ArgsOf(const Dropout& dropout) {
  const std::uint32_t kept = DropoutKept(dropout.rate);
  return {dropout.keys, dropout.site, kept, 65536.0f / float(kept)};
}

// One block of Philox4x32-10 (Salmon et al. 2011).
TROOP_DEVICE void DropoutBlock(const DropoutKey& key, std::uint32_t site, std::uint32_t block,
                               std::uint32_t (&word)[4]) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  word[0] = block, word[1] = site, word[2] = key.stream[0], word[3] = key.stream[1];
  std::uint32_t k0 = key.key[0], k1 = key.key[1];
  TROOP_UNROLL for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(kMultiplier0, word[0]), low0 = kMultiplier0 * word[0];
    const std::uint32_t high1 = __umulhi(kMultiplier1, word[2]), low1 = kMultiplier1 * word[2];
    word[0] = high1 ^ word[1] ^ k0, word[1] = low1;
    word[2] = high0 ^ word[3] ^ k1, word[3] = low0;
    k0 += kWeyl0, k1 += kWeyl1;
  }
}
// The block of element e, its index (`step`) among the eight of the block, and whether the block
// keeps an element.
TROOP_DEVICE std::uint32_t DropoutBlockOf(std::int64_t e) {
  return std::uint32_t(e / kDropoutGroup * kDropoutLanes + e % kDropoutLanes);
}
TROOP_DEVICE int DropoutStepOf(std::int64_t e) { return int(e % kDropoutGroup) / kDropoutLanes; }
TROOP_DEVICE bool Keeps(const std::uint32_t (&word)[4], int step, std::uint32_t kept) {
  // No run-time index, so that `word` stays in registers.
  const std::uint32_t low =
      step < 4 ? (step < 2 ? word[0] : word[1]) : (step < 6 ? word[2] : word[3]);
  return (step % 2 == 0 ? low & 0xffffu : low >> 16) < kept;
}

}  // namespace troop::cuda
