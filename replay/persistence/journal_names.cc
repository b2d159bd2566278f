// File names in a journal's folder.
#include "replay/persistence/journal_names.h"

#include <fmt/format.h>

#include <charconv>

namespace troop {

std::string JournalSegmentName(std::uint64_t id) { return fmt::format("segments/{:016}.log", id); }
std::string JournalSnapshotName(std::uint64_t number) {
  return fmt::format("snapshot-{:016}", number);
}
std::string JournalDictionaryName(std::uint32_t id) { return fmt::format("dictionary-{:010}", id); }

// Snapshot, segment and dictionary names have their numbers padded with zeros.
std::uint64_t JournalNumber(std::string_view name, std::string_view prefix,
                            std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix)) {
    return 0;
  }
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

}  // namespace troop
