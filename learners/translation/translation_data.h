#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "datasets/translation/sentence_pairs.h"
#include "datasets/translation/subwords.h"
#include "kernels/transformer/dropout.h"

namespace troop {

// Sentence pairs as subwords, end to end; without begins and ends.
struct EncodedPairs {
  std::vector<TokenId> source, target;
  std::vector<std::int64_t> source_starts = {0}, target_starts = {0};  // [n + 1]
  std::vector<std::string> references;                                 // [n]: the translations
  std::int64_t size() const { return std::int64_t(references.size()); }
  std::span<const TokenId> source_of(std::int64_t i) const { return Of(source, source_starts, i); }
  std::span<const TokenId> target_of(std::int64_t i) const { return Of(target, target_starts, i); }
  // [n]: subwords of both sides and the end, for batches of similar lengths.
  std::vector<std::int32_t> Lengths() const;

 private:
  static std::span<const TokenId> Of(const std::vector<TokenId>& ids,
                                     const std::vector<std::int64_t>& starts, std::int64_t i) {
    const auto begin = std::size_t(starts[std::size_t(i)]);
    return std::span(ids).subspan(begin, std::size_t(starts[std::size_t(i) + 1]) - begin);
  }
};

// Data of a translation run. Immutable, so usable from any thread.
struct TranslationData {
  Subwords subwords;  // of both languages, learned from the training pairs
  EncodedPairs train, validation;
  std::int64_t too_long = 0;  // training and validation pairs that were left out
  // Human-readable fingerprint: the sizes, and a checksum of all subwords and references.
  std::string Identity() const;
};

// How pairs become data.
struct TranslationDataOptions {
  std::int64_t vocabulary = 8000;  // subwords
  std::int64_t length_max = 100;   // subwords of a side; longer pairs are left out and counted
  double validation_split = 0;     // share of the training pairs, selected by the seed
  std::uint64_t seed = 1;
};

// Learns the vocabulary and encodes the pairs. validation: empty with a split. Errors:
// kInvalidArgument: those of Subwords::Learn; no training or validation pairs are left; pairs and a
// split for validation.
Result<std::shared_ptr<const TranslationData>> MakeTranslationData(
    const SentencePairs& train, const SentencePairs& validation,
    const TranslationDataOptions& options);

// Inputs of Gnmt for a batch of B pairs, and the labels: the target's subwords, then the end.
struct TranslationBatch {
  std::vector<std::int32_t> source, source_starts = {0};
  std::vector<std::int32_t> target, target_starts = {0}, labels;  // [T]
  std::vector<DropoutKey> dropout;                                // [B]; empty: none
  // Borrowed from this.
  std::vector<ConstTensor> Inputs() const;
};
// Packs the given pairs. O(subwords).
TranslationBatch PackPairs(const EncodedPairs& pairs, std::span<const std::int32_t> samples);

}  // namespace troop
