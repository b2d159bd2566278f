#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// ALBERT's tokenizer (Lan et al. 2020). Text is preprocessed: white space is collapsed, `` and ''
// become quotes, and without `cased` accents are dropped and letters lowercased. Its characters are
// mapped as the model defines, and it is split into the pieces with the largest sum of scores
// (Viterbi; Kudo 2018). Pieces that end in a digit and a comma are split again without the comma. A
// run of characters that no piece covers is one unknown piece. Equals SentencePiece 0.2.3 as the
// slow tokenizer of transformers uses it; earlier versions resolve other sums to ties (decision
// 30).
//
// model: the bytes of a `.model` file with the pieces <pad>, [CLS], [SEP], [MASK] and an unknown
// piece. Errors: kDataLoss, kInvalidArgument.
Result<std::unique_ptr<Tokenizer>> MakeUnigram(std::string_view model,
                                               const TokenizerOptions& options);

// The preprocessing alone. Exposed for tests.
std::string PrepareForAlbert(std::string_view text, bool cased);

}  // namespace troop
