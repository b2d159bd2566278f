#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

namespace troop {

// ALBERT's tokenizer (Lan et al. 2020): text is prepared (white space made single, `` and '' made
// quotes, without `cased` accents dropped and put into lower case), its characters mapped as the
// model says, and cut into the pieces whose scores have the largest sum (Viterbi; Kudo 2018).
// Pieces that end in a digit and a comma are cut again without the comma. Runs of characters of
// which no piece exists are one unknown piece. Equals SentencePiece 0.1.97 behind the slow
// tokenizer of transformers.
//
// model: the bytes of a `.model` file with the pieces <pad>, [CLS], [SEP], [MASK] and an unknown
// one. Errors: kDataLoss, kInvalidArgument.
Result<std::unique_ptr<Tokenizer>> MakeUnigram(std::string_view model,
                                               const TokenizerOptions& options);

// The preparation alone. Exposed for tests.
std::string PrepareForAlbert(std::string_view text, bool cased);

}  // namespace troop
