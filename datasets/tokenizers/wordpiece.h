#pragma once

#include <memory>
#include <string_view>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// BERT's tokenizer (Devlin et al. 2019; Wu et al. 2016, sec. 4.1). Control characters are removed;
// text is split at white space, at punctuation and around CJK ideographs; without `cased` it is
// lowercased and stripped of accents. Each word is then split greedily into the longest matching
// pieces, where pieces after the first begin with ##. A word that pieces cannot cover, or with more
// than 100 characters, is [UNK]. Equals the slow tokenizer of transformers where that neither
// extracts special tokens nor composes characters first.
//
// vocabulary: one piece per line, whose id is the line's number from 0; it must contain [PAD],
// [UNK], [CLS], [SEP] and [MASK]. Errors: kInvalidArgument, naming the line.
Result<std::unique_ptr<Tokenizer>> MakeWordPiece(std::string_view vocabulary,
                                                 const TokenizerOptions& options);

}  // namespace troop
