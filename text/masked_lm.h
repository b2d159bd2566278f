#pragma once

#include <cstdint>
#include <vector>

#include "text/length_batches.h"
#include "text/tokenizer.h"

namespace troop {

// Masked language model (Devlin et al. 2019, sec. 3.1): tokens that are chosen by chance are to be
// told from those around them.
struct MaskingOptions {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  double chosen = 0.15;   // of the tokens that are not special
  double masked = 0.8;    // of those chosen: become [MASK]
  double replaced = 0.1;  // of those chosen: become any token; the rest stays
};

struct MaskedBatch {
  PackedBatch batch;                    // what the model sees
  std::vector<std::int32_t> positions;  // [M] of chosen tokens, in batch.ids, growing
  std::vector<TokenId> targets;         // [M]: what stood there
};

// What happens to a token follows from seed, epoch, the sample's global index and the token's place
// in it: not from the batch or the worker that it is in. O(T).
MaskedBatch MaskTokens(PackedBatch batch, const Tokenizer& tokenizer,
                       const MaskingOptions& options);

}  // namespace troop
