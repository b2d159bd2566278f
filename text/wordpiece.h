#pragma once

#include <memory>
#include <string_view>

#include "core/status.h"
#include "text/tokenizer.h"

namespace troop {

// BERT's tokenizer (Devlin et al. 2019; Wu et al. 2016, sec. 4.1). Text is cleaned of control
// characters, split at white space, at punctuation and around CJK ideographs, without `cased` put
// into lower case and freed of accents; then each word becomes the longest piece at its front, and
// so on behind it with pieces that begin with ##. A word that can't be covered, or longer than 100
// characters, is [UNK]. Equals the slow tokenizer of transformers where that doesn't cut out
// special tokens nor compose characters first.
//
// vocabulary: a piece a line, whose id is the line's number from 0; [PAD], [UNK], [CLS], [SEP] and
// [MASK] are among them. Errors: kInvalidArgument, naming the line.
Result<std::unique_ptr<Tokenizer>> MakeWordPiece(std::string_view vocabulary,
                                                 const TokenizerOptions& options);

}  // namespace troop
