// Masking with one random stream per sample and a fixed position in it per token.

#include "datasets/text/masked_lm.h"

#include <utility>

#include "core/base/philox.h"

namespace troop {
namespace {

// Special tokens are never masked; the unknown token is, as in BERT.
bool IsSpecial(TokenId id, const SpecialTokens& special) {
  return id == special.pad || id == special.begin || id == special.end || id == special.mask;
}

}  // namespace

// Masked language modelling (Devlin et al. 2018, sec. 3.1). O(tokens of the batch).
MaskedBatch MaskTokens(PackedBatch batch, const Tokenizer& tokenizer,
                       const MaskingOptions& options) {
  MaskedBatch out;
  const SpecialTokens& special = tokenizer.special();
  for (std::size_t sample = 0; sample < batch.samples.size(); ++sample) {
    // One stream per sample and epoch: the mask does not depend on the batch or on the worker.
    Rng rng({.run_seed = options.seed,
             .purpose = Purpose::kMasking,
             .index = std::uint64_t(batch.samples[sample]),
             .episode = std::uint64_t(options.epoch)});
    const std::int32_t begin = batch.begins[sample], end = batch.begins[sample + 1];
    for (std::int32_t i = begin; i < end; ++i) {
      // Room for three draws: chosen or not, kind of change, replacement. Below may draw again.
      constexpr std::uint64_t kNumbersPerToken = 4;
      TokenId& id = batch.ids[std::size_t(i)];
      rng.Seek(kNumbersPerToken * std::uint64_t(i - begin));
      if (IsSpecial(id, special) || rng.UniformF32() >= options.chosen) continue;
      out.positions.push_back(i);
      out.targets.push_back(id);
      // BERT's three cases: [MASK], a random token, or unchanged.
      const double what = rng.UniformF32();
      if (what < options.masked) {
        id = special.mask;
      } else if (what < options.masked + options.replaced) {
        id = TokenId(rng.Below(std::uint32_t(tokenizer.size())));
      }
    }
  }
  out.batch = std::move(batch);
  return out;
}

}  // namespace troop
