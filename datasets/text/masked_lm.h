#pragma once

#include <cstdint>
#include <vector>

#include "datasets/text/length_bucketing.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Masked language model (Devlin et al. 2019, sec. 3.1): randomly chosen tokens are predicted from
// their context.
struct MaskingOptions {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  double chosen = 0.15;   // share of the tokens that are not special
  double masked = 0.8;    // share of the chosen ones that become [MASK]
  double replaced = 0.1;  // share of them that become a random token; the rest stays
};

struct MaskedBatch {
  PackedBatch batch;                    // input of the model
  std::vector<std::int32_t> positions;  // [M]: chosen tokens in batch.ids, increasing
  std::vector<TokenId> targets;         // [M]: the original tokens
};

// Masks a batch. The choice for a token depends on seed, epoch, the sample's global index and the
// token's position in it, not on the batch or the worker. O(T).
MaskedBatch MaskTokens(PackedBatch batch, const Tokenizer& tokenizer,
                       const MaskingOptions& options);

}  // namespace troop
