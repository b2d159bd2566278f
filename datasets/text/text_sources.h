#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "datasets/text/labeled_texts.h"
#include "datasets/text/tokenized_dataset.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// Files of a data set, and how they are read.
struct TextSources {
  std::string train;                 // its own validation and test sets count too
  std::string validation{}, test{};  // separate sources, each of one set; empty: none
  TextFormat format{};               // of all of them; the columns only of the tables among them
  std::vector<std::string> names{};  // classes by id; empty: learned from the training examples
  std::string train_key = "data.reviews";  // config key of `train`, for messages
};

// Reads the sources, learns the classes if they are not given, and tokenizes. Errors: those of
// ReadTexts, LabelMap and TokenizeTexts with key and path; kInvalidArgument: a separate source that
// has several sets, and pairs in one source but not in another.
Result<TokenizedTexts> TokenizeSources(const TextSources& sources, const Tokenizer& tokenizer,
                                       const TokenizationOptions& options);

// Reads the sources as they are, for models without a tokenizer: the sets of the training source,
// which the separate sources replace, and the classes as `names`. Errors: those of TokenizeSources
// except labels' ones.
Result<LabeledTexts> ReadSources(const TextSources& sources);

// Fingerprint of a source: for an archive or a table of its bytes; for a folder of the files'
// names, sizes and modification times. Errors: those of ReadTexts.
Result<std::uint64_t> SourceFingerprint(const std::string& path);
// Fingerprint of all sources and of the format, but not of `names`.
Result<std::uint64_t> SourcesFingerprint(const TextSources& sources);

}  // namespace troop
