#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "datasets/lookup/charsmap.h"

namespace troop {

// One step of a tokenizer.json's "normalizer", as Hugging Face's tokenizers apply it.
struct NormalizerStep {
  enum class Kind : std::uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,       // each character by itself
    kStripAccents,    // removes characters of category M*
    kReplace,         // each occurrence of `pattern` by `content`
    kCollapseSpaces,  // each run of two or more spaces by `content`
    kStrip,           // removes white space at the ends
    kPrecompiled,     // SentencePiece's character map
  };
  Kind kind = Kind::kNfc;
  std::string pattern{}, content{};            // kReplace: `pattern` is not empty
  bool left = false, right = false;            // kStrip
  std::shared_ptr<const Charsmap> charsmap{};  // kPrecompiled
};

// Applies steps in their order. Immutable after construction: any thread.
class TextNormalizer {
 public:
  TextNormalizer() = default;  // leaves text as it is
  explicit TextNormalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}
  bool empty() const { return steps_.empty(); }
  // Normalizes valid UTF-8. The result is valid unless the content of a step is not. O(bytes) per
  // step.
  std::string operator()(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

// True if all bytes are below 0x80.
bool IsAscii(std::string_view text);
// Returns `text` if it is valid UTF-8, else a copy in `*valid` whose invalid bytes are U+FFFD.
std::string_view ValidUtf8(std::string_view text, std::string* valid);

}  // namespace troop
