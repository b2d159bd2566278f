#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troop {

// File names in a journal's folder.
std::string JournalSegmentName(std::uint64_t id);       // segments/0000000000000001.log
std::string JournalSnapshotName(std::uint64_t number);  // snapshot-0000000000000001
std::string JournalDictionaryName(std::uint32_t id);    // dictionary-0000000001
inline constexpr std::string_view kJournalRemoved = "removed";
inline constexpr std::string_view kJournalSkipped = "skipped";
// Number in a name of the form prefix, digits, suffix; 0 if the name has another form.
std::uint64_t JournalNumber(std::string_view name, std::string_view prefix,
                            std::string_view suffix);

}  // namespace troop
