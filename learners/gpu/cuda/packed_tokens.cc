// Implements the packing of a text batch into one buffer for the device.
#include "learners/gpu/cuda/packed_tokens.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace troop::cuda {
namespace {

// Appends values of 32 bits, and room for more; returns their offset.
template <class T>
std::int64_t Append(std::span<const T> values, std::int64_t room, PackedTokens* to) {
  static_assert(sizeof(T) == sizeof(std::uint32_t));
  const std::int64_t at = to->Take(room);
  if (!values.empty()) std::memcpy(to->at(at), values.data(), values.size_bytes());
  return at;
}
template <class T>
std::int64_t Append(std::span<const T> values, PackedTokens* to) {
  return Append(values, std::int64_t(values.size()), to);
}

}  // namespace

PackedTokens::Groups TokenSorter::Sort(std::int64_t index, PackedTokens* batch) {
  std::ranges::fill(begins_, 0);
  const std::int32_t* rows = batch->at(index);
  std::int64_t tokens = 0;
  // Count, prefix sum, then placement; only rows that occur are listed.
  for (std::int64_t t = 0; t < batch->tokens; ++t)
    if (const auto row = RowOf(rows[t])) ++begins_[*row + 1], ++tokens;
  PackedTokens::Groups groups;
  groups.count = std::int64_t(begins_.size()) - std::ranges::count(begins_, 0);
  groups.row = batch->Take(groups.count);
  groups.first = batch->Take(groups.count + 1);
  groups.order = batch->Take(tokens);
  rows = batch->at(index);
  std::int32_t *row = batch->at(groups.row), *first = batch->at(groups.first);
  std::int64_t distinct = 0;
  for (std::size_t r = 0; r + 1 < begins_.size(); ++r) {
    if (begins_[r + 1] > 0) row[distinct] = std::int32_t(r), first[distinct++] = begins_[r];
    begins_[r + 1] += begins_[r];
  }
  first[distinct] = std::int32_t(tokens);
  std::int32_t* const order = batch->at(groups.order);
  for (std::int64_t t = 0; t < batch->tokens; ++t)
    if (const auto at = RowOf(rows[t])) order[begins_[*at]++] = std::int32_t(t);
  return groups;
}

std::optional<std::size_t> TokenSorter::RowOf(std::int32_t index) const {
  const std::int64_t row = index - first_row_;
  if (row < 0 || row + 1 >= std::int64_t(begins_.size())) return std::nullopt;
  return std::size_t(row);
}

TokenPacker::TokenPacker(const TransformerSpec& model)
    : masked_(model.masked()),
      length_max_(model.length_max()),
      padding_(model.padding),
      ids_(model.word_share()),
      places_(Share{0, padding_ >= 0 ? model.positions : 0}) {}

void TokenPacker::Pack(const HostTokens& from, PackedTokens* to) {
  to->words.clear();
  PackSequences(from, to);
  PackRows(from, to);
  to->drops = !from.dropout.empty();
  to->keys = to->Take(to->drops ? 4 * to->sequences : 0);
  static_assert(sizeof(DropoutKey) == 4 * sizeof(std::uint32_t));
  if (to->drops) std::memcpy(to->at(to->keys), from.dropout.data(), from.dropout.size_bytes());
  to->ids = ids_.Sort(to->id, to);
  to->placed = padding_ >= 0;
  if (to->placed) PackPlaces(to);
}

// Tokens, their types, and where the sequences begin.
void TokenPacker::PackSequences(const HostTokens& from, PackedTokens* to) const {
  to->tokens = RoundedTokens(std::int64_t(from.ids.size()));
  to->longest = 0;
  std::vector<std::int32_t> starts(from.starts.begin(), from.starts.end());
  // A padding sequence is no longer than the model's positions.
  while (starts.back() < to->tokens) {
    const std::int64_t left = to->tokens - starts.back();
    starts.push_back(starts.back() + std::int32_t(std::min(left, length_max_)));
  }
  for (std::size_t s = 0; s + 1 < starts.size(); ++s)
    to->longest = std::max<std::int64_t>(to->longest, starts[s + 1] - starts[s]);
  to->sequences = std::int64_t(starts.size()) - 1;
  to->id = Append(from.ids, to->tokens, to);
  to->starts = Append(std::span<const std::int32_t>(starts), to);
  // Padding has type 0.
  to->type = Append(from.types, from.types.empty() ? 0 : to->tokens, to);
  to->types = from.types.empty() ? 0 : std::ranges::max(from.types) + 1;
}

// Positions from padding + 1 on, which skip padding ids. Sorted for the gradient of their table.
void TokenPacker::PackPlaces(PackedTokens* to) {
  to->place = to->Take(to->tokens);
  const std::int32_t *id = to->at(to->id), *starts = to->at(to->starts);
  std::int32_t* const place = to->at(to->place);
  const auto padding = std::int32_t(padding_);
  for (std::int64_t s = 0; s < to->sequences; ++s) {
    std::int32_t next = padding + 1;
    for (std::int32_t t = starts[s]; t < starts[s + 1]; ++t)
      place[t] = id[t] == padding ? padding : next++;
  }
  to->by_place = places_.Sort(to->place, to);
}

// Rows that the head reads, with what is expected of them.
void TokenPacker::PackRows(const HostTokens& from, PackedTokens* to) const {
  const auto sequences = std::int64_t(from.starts.size()) - 1;
  const std::int64_t rows = masked_ ? std::int64_t(from.labels.size()) : sequences;
  to->rows = masked_ ? RoundedTokens(rows) : rows;
  to->scattered = rows;
  to->chosen =
      Append(masked_ ? from.places : from.starts.first(std::size_t(sequences)), to->rows, to);
  to->label = Append(from.labels, to->rows, to);
  // The loss ignores the padding rows by their label.
  std::fill(to->at(to->label) + rows, to->at(to->label) + to->rows, kIgnoredLabel);
  to->target = Append(from.targets, to);
  to->weighs = !from.weights.empty();
  to->weight = Append(from.weights, to);
}

}  // namespace troop::cuda
