#pragma once

#include "kernels/dropout.h"

// The loops of dropout.h, compiled once per instruction set: TROOP_DROPOUT_NAMESPACE names the
// copy. Of 16 Philox blocks at a time the compiler makes vectors. Element e of a site is the 16-bit
// number h of word w of block 16 (e / 128) + e % 16, where 2 w + h = e % 128 / 16: so that 16
// neighbours are the same word of 16 blocks.
namespace troop::TROOP_DROPOUT_NAMESPACE {
namespace {

constexpr int kBlocks = 16;              // computed together
constexpr int kGroup = kBlocks * 4 * 2;  // elements of them

struct Blocks {
  std::uint32_t word[4][kBlocks];
};

// Salmon et al. 2011; as internal::Philox4x32 of core/rng.h.
inline void Philox(const DropoutSite& site, std::uint32_t first_block, Blocks& c) {
#pragma GCC ivdep
  for (int j = 0; j < kBlocks; ++j) {
    c.word[0][j] = first_block + static_cast<std::uint32_t>(j);
    c.word[1][j] = site.site;
    c.word[2][j] = site.key.stream[0];
    c.word[3][j] = site.key.stream[1];
  }
  std::uint32_t k0 = site.key.key[0], k1 = site.key.key[1];
  for (int round = 0; round < 10; ++round) {
#pragma GCC ivdep
    for (int j = 0; j < kBlocks; ++j) {
      const std::uint64_t p0 = static_cast<std::uint64_t>(0xD2511F53u) * c.word[0][j];
      const std::uint64_t p1 = static_cast<std::uint64_t>(0xCD9E8D57u) * c.word[2][j];
      c.word[0][j] = static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1][j] ^ k0;
      c.word[1][j] = static_cast<std::uint32_t>(p1);
      c.word[2][j] = static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3][j] ^ k1;
      c.word[3][j] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

inline void GroupFactors(const DropoutSite& site, std::uint32_t kept, std::int64_t group,
                         float* factor) {
  Blocks c;
  Philox(site, static_cast<std::uint32_t>(group * kBlocks), c);
  const float scale = 65536.0f / static_cast<float>(kept);
  for (int w = 0; w < 4; ++w) {
#pragma GCC ivdep
    for (int j = 0; j < kBlocks; ++j) {
      factor[2 * w * kBlocks + j] = (c.word[w][j] & 0xffffu) < kept ? scale : 0.0f;
      factor[(2 * w + 1) * kBlocks + j] = (c.word[w][j] >> 16) < kept ? scale : 0.0f;
    }
  }
}

}  // namespace

void Factors(const DropoutSite& site, std::uint32_t kept, std::int64_t first, std::int64_t n,
             float* factor) {
  const std::int64_t end = first + n;
  for (std::int64_t group = first / kGroup; group * kGroup < end; ++group) {
    const std::int64_t from = group * kGroup;
    if (from >= first && from + kGroup <= end) {
      GroupFactors(site, kept, group, factor + (from - first));
      continue;
    }
    float all[kGroup];
    GroupFactors(site, kept, group, all);
    for (int i = 0; i < kGroup; ++i) {
      if (from + i >= first && from + i < end) factor[from + i - first] = all[i];
    }
  }
}

}  // namespace troop::TROOP_DROPOUT_NAMESPACE
