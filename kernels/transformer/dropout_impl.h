#pragma once

#pragma GCC optimize("O3")
#include "kernels/simd/vec.h"
#include "kernels/transformer/dropout.h"

// Loops of dropout.h, compiled once per instruction set; TROOP_ISA names the copy. 16 Philox blocks
// are computed together. Element e of a site is the 16-bit half h of word w of block
// 16 (e / 128) + e % 16, where 2 w + h = e % 128 / 16. So 16 consecutive elements use the same half
// word of 16 blocks, one per lane.
namespace troop::TROOP_ISA {
namespace {

constexpr int kBlocks = 16;              // Philox blocks computed together
constexpr int kGroup = kBlocks * 4 * 2;  // elements of a group of blocks

// Constants of Philox4x32-10 (Salmon et al. 2011), as internal::Philox4x32 of core/base/philox.h.
constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

#if defined(__AVX512F__)

// High and low halves of 16 products of 32 bits. GCC vectorizes the scalar code to six times as
// many instructions.
struct Product {
  __m512i high, low;
};
inline Product Multiply(__m512i x, std::uint32_t by) {
  const __m512i m = _mm512_set1_epi32(static_cast<int>(by));
  // vpmuludq multiplies the even lanes; the odd ones are shifted there, and the halves are merged.
  const __m512i even = _mm512_mul_epu32(x, m);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), m);
  return {_mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB),
          _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA)};
}

// factor [kGroup] of one group. The counter is (block, site, stream).
inline void GroupFactors(const DropoutSite& site, std::uint32_t kept, std::int64_t group,
                         float* factor) {
  const auto all = [](std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); };
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  // Counter of 16 consecutive blocks, one per lane: block index, site, stream.
  __m512i c[4] = {_mm512_add_epi32(all(static_cast<std::uint32_t>(group * kBlocks)), lanes),
                  all(site.site), all(site.key.stream[0]), all(site.key.stream[1])};
  std::uint32_t k0 = site.key.key[0], k1 = site.key.key[1];
#pragma GCC unroll 10
  for (int round = 0; round < kRounds; ++round, k0 += kWeyl0, k1 += kWeyl1) {
    const Product p0 = Multiply(c[0], kMultiplier0), p1 = Multiply(c[2], kMultiplier1);
    c[0] = _mm512_xor_si512(_mm512_xor_si512(p1.high, c[1]), all(k0));
    c[1] = p1.low;
    c[2] = _mm512_xor_si512(_mm512_xor_si512(p0.high, c[3]), all(k1));
    c[3] = p0.low;
  }
  // An element is kept if its 16-bit number is below `kept`; elements of a half word are
  // contiguous.
  const __m512 scale = _mm512_set1_ps(65536.0f / static_cast<float>(kept));
  const __m512i most = all(kept);
#pragma GCC unroll 4
  for (int w = 0; w < 4; ++w, factor += 2 * kBlocks) {
    const __m512i low = _mm512_and_si512(c[w], all(0xffff)), high = _mm512_srli_epi32(c[w], 16);
    _mm512_storeu_ps(factor, _mm512_maskz_mov_ps(_mm512_cmplt_epu32_mask(low, most), scale));
    _mm512_storeu_ps(factor + kBlocks,
                     _mm512_maskz_mov_ps(_mm512_cmplt_epu32_mask(high, most), scale));
  }
}

#else

// Word w of block j; the inner loops run over j and vectorize.
struct Blocks {
  std::uint32_t word[4][kBlocks];
};

// The Philox rounds for 16 consecutive blocks of a site.
inline void Philox(const DropoutSite& site, std::uint32_t first_block, Blocks& c) {
#pragma GCC ivdep
  for (int j = 0; j < kBlocks; ++j) {
    // Counter: block index, site, stream.
    c.word[0][j] = first_block + static_cast<std::uint32_t>(j);
    c.word[1][j] = site.site;
    c.word[2][j] = site.key.stream[0];
    c.word[3][j] = site.key.stream[1];
  }
  std::uint32_t k0 = site.key.key[0], k1 = site.key.key[1];
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC ivdep
    for (int j = 0; j < kBlocks; ++j) {
      // One round: two products of 32 bits, whose halves are mixed with the other words and the
      // key.
      const std::uint64_t p0 = static_cast<std::uint64_t>(kMultiplier0) * c.word[0][j];
      const std::uint64_t p1 = static_cast<std::uint64_t>(kMultiplier1) * c.word[2][j];
      c.word[0][j] = static_cast<std::uint32_t>(p1 >> 32) ^ c.word[1][j] ^ k0;
      c.word[1][j] = static_cast<std::uint32_t>(p1);
      c.word[2][j] = static_cast<std::uint32_t>(p0 >> 32) ^ c.word[3][j] ^ k1;
      c.word[3][j] = static_cast<std::uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

// Version for other instruction sets, over the blocks in memory.
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

#endif

}  // namespace

// Whole groups are written in place; a partial group at either end goes through a buffer.
void SiteFactors(const DropoutSite& site, std::uint32_t kept, std::int64_t first, std::int64_t n,
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

}  // namespace troop::TROOP_ISA
