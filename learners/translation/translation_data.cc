// Implements the data of translation runs: vocabulary, limits, splits and batches.

#include "learners/translation/translation_data.h"

#include <fmt/format.h>

#include "core/storage/crc32c.h"
#include "learners/supervised/dataset.h"

namespace troop {
namespace {

// Encodes pairs. held: which of them, and whether those or the others are taken; empty: all.
struct Selection {
  const std::vector<bool>& held;
  bool take = false;
};
EncodedPairs Encode(const SentencePairs& pairs, const Selection& selection, std::int64_t length_max,
                    TranslationData* data) {
  EncodedPairs encoded;
  for (std::size_t i = 0; i < pairs.source.size(); ++i) {
    if (!selection.held.empty() && selection.held[i] != selection.take) continue;
    const auto source = data->subwords.Encode(pairs.source[i]),
               target = data->subwords.Encode(pairs.target[i]);
    // Long pairs would decide the memory of every batch.
    if (std::max(std::ssize(source), std::ssize(target)) > length_max) {
      ++data->too_long;
      continue;
    }
    encoded.source.insert(encoded.source.end(), source.begin(), source.end());
    encoded.target.insert(encoded.target.end(), target.begin(), target.end());
    encoded.source_starts.push_back(std::ssize(encoded.source));
    encoded.target_starts.push_back(std::ssize(encoded.target));
    encoded.references.push_back(pairs.target[i]);
  }
  return encoded;
}

}  // namespace

// The end counts, since the decoder has a step for it.
std::vector<std::int32_t> EncodedPairs::Lengths() const {
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < size(); ++i)
    lengths.push_back(std::int32_t(source_of(i).size() + target_of(i).size() + 1));
  return lengths;
}

// Starts separate the sentences.
std::string TranslationData::Identity() const {
  std::uint32_t checksum = 0;
  const auto add = [&](const auto& values) {
    checksum = Crc32c(std::as_bytes(std::span(values)), checksum);
  };
  for (const EncodedPairs* const pairs : {&train, &validation}) {
    add(pairs->source);
    add(pairs->target);
    add(pairs->source_starts);
    add(pairs->target_starts);
    for (const std::string& reference : pairs->references) add(reference);
  }
  add(subwords.Serialize());
  return fmt::format("{} pairs to learn, {} held out, {} subwords, checksum {:08x}", train.size(),
                     validation.size(), subwords.size(), checksum);
}

// Steps: 1. split; 2. vocabulary, of the training pairs alone; 3. subwords.
Result<std::shared_ptr<const TranslationData>> MakeTranslationData(
    const SentencePairs& train, const SentencePairs& validation,
    const TranslationDataOptions& options) {
  if (validation.size() > 0 && options.validation_split > 0) {
    return InvalidArgument(
        "the validation split is {}, but there are {} validation pairs; omit one of the two",
        options.validation_split, validation.size());
  }
  // Step 1: the split, which depends on the seed and the number of pairs alone.
  std::vector<bool> held;
  if (options.validation_split > 0) {
    // All pairs are one stratum.
    const std::vector<std::int32_t> none(std::size_t(train.size()), -1);
    held = HeldOut(none, options.validation_split, options.seed, HeldPart::kValidation);
  }
  // Step 2: words of the validation pairs must not become subwords.
  WordCounts words;
  for (std::size_t i = 0; i < train.source.size(); ++i) {
    if (!held.empty() && held[i]) continue;
    CountWords(train.source[i], &words);
    CountWords(train.target[i], &words);
  }
  TROOP_ASSIGN_OR_RETURN(Subwords subwords, Subwords::Learn(words, options.vocabulary));
  // Step 3: the order of the pairs is that of the file.
  auto data = std::make_shared<TranslationData>(TranslationData{.subwords = std::move(subwords)});
  data->train = Encode(train, {held, false}, options.length_max, data.get());
  data->validation = held.empty() ? Encode(validation, {held}, options.length_max, data.get())
                                  : Encode(train, {held, true}, options.length_max, data.get());
  for (const auto& [name, pairs] :
       {std::pair("training", &data->train), std::pair("validation", &data->validation)}) {
    if (pairs->size() > 0) continue;
    return InvalidArgument(
        "no {} pairs are left ({} were longer than {} subwords); add pairs, or raise the limit",
        name, data->too_long, options.length_max);
  }
  return std::shared_ptr<const TranslationData>(std::move(data));
}

std::vector<ConstTensor> TranslationBatch::Inputs() const {
  std::vector<ConstTensor> in;
  for (const auto* const one : {&source, &source_starts, &target, &target_starts})
    in.push_back(
        ConstTensor::Borrow(std::as_bytes(std::span(*one)), {DType::kI32, {std::ssize(*one)}}));
  return in;
}

// The decoder takes a begin, then the translation; it predicts the translation, then an end.
TranslationBatch PackPairs(const EncodedPairs& pairs, std::span<const std::int32_t> samples) {
  TranslationBatch batch;
  // Pairs lie end to end, in the order of the samples.
  for (const std::int32_t i : samples) {
    const auto source = pairs.source_of(i), target = pairs.target_of(i);
    batch.source.insert(batch.source.end(), source.begin(), source.end());
    batch.source_starts.push_back(std::int32_t(batch.source.size()));
    batch.target.push_back(Subwords::kBegin);
    batch.target.insert(batch.target.end(), target.begin(), target.end());
    batch.target_starts.push_back(std::int32_t(batch.target.size()));
    batch.labels.insert(batch.labels.end(), target.begin(), target.end());
    batch.labels.push_back(Subwords::kEnd);
  }
  return batch;
}

}  // namespace troop
