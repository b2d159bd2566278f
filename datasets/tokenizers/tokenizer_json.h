#pragma once

#include <memory>
#include <string_view>

#include "core/base/status.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Reads a tokenizer.json, the file of Hugging Face's tokenizers, and gives the ids of the fast
// tokenizers. Supported are
//   WordPiece  with BertNormalizer and BertPreTokenizer (BERT, DistilBERT, ELECTRA)
//   Unigram    with Metaspace, after WhitespaceSplit or not (ALBERT, XLM-R)
//   BPE        with ByteLevel (RoBERTa)
// where Unigram and BPE may have the normalizers NFC, NFD, NFKC, NFKD, Lowercase, StripAccents,
// Replace, Strip and Precompiled. Begin and end token and the format of pairs come from the
// post-processor (TemplateProcessing, BertProcessing or RobertaProcessing). The padding and the
// mask token are [PAD] or <pad>, and [MASK] or <mask>. Added tokens are found in texts
// (datasets/tokenizers/added_tokens.h), also special ones such as <speaker>. Special tokens with a
// role ([CLS], [MASK], …) are plain text in a text, as in all tokenizers of Troop. "truncation" and
// "padding" are not used.
//
// Differences to the file vocab.txt of the same BERT model: the last sigma of a word is not final,
// and 256 ideographs are parts of words. To ALBERT's spiece.model: words, and the texts between
// user-defined pieces, are split separately, and numbers that end in a comma are not split again.
//
// Errors: kDataLoss: not such a document; kInvalidArgument: a component or setting that is not
// supported, by name, or an added token without a place in the vocabulary.
Result<std::unique_ptr<Tokenizer>> MakeTokenizerJson(std::string_view json,
                                                     const TokenizerOptions& options);

}  // namespace troop
