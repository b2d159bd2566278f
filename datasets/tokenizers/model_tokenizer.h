#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "datasets/tokenizers/tokenizer.h"

namespace troop {

// The part of a tokenizer that does not depend on how texts are split: answers from a model with
// the members `pieces` (texts by id), `special`, `pair` and `fingerprint`.
template <class Model>
class ModelTokenizer : public Tokenizer {
 public:
  std::string_view piece(TokenId id) const final { return model_.pieces[std::size_t(id)]; }
  int size() const final { return int(model_.pieces.size()); }
  const SpecialTokens& special() const final { return model_.special; }
  PairFormat pair_format() const final { return model_.pair; }
  std::uint32_t fingerprint() const final { return model_.fingerprint; }

 protected:
  explicit ModelTokenizer(Model model) : model_(std::move(model)) {}
  Model model_;
};

}  // namespace troop
