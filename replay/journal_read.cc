#include "replay/journal_read.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/crc32c.h"

namespace troop {
namespace {

constexpr std::string_view kManifestTitle = "troop replay table 1";
constexpr std::size_t kManifestBytesMax = 64 << 10;
constexpr std::size_t kDictionaryBytesMax = 1 << 20;

std::uint32_t ChecksumOf(std::string_view text) { return Crc32c(std::as_bytes(std::span(text))); }

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// "key value\n" off the front of `text`.
bool TakeLine(std::string_view* text, std::string_view key, std::string_view* value) {
  const std::size_t end = text->find('\n');
  if (end == text->npos || !text->starts_with(key) || end <= key.size()) return false;
  *value = text->substr(key.size() + 1, end - key.size() - 1);
  text->remove_prefix(end + 1);
  return true;
}

// How far a segment consists of whole records (RecordHeader in replay/segment.h).
std::size_t WholeRecords(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  while (bytes.size() - at >= sizeof(RecordHeader)) {
    RecordHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    if (header.magic != RecordHeader::kMagic || header.bytes < sizeof(header) ||
        header.bytes % 8 != 0 || header.bytes > bytes.size() - at) {
      break;
    }
    if (Crc32c(bytes.subspan(at + 8, header.bytes - 8)) != header.crc) break;
    at += header.bytes;
  }
  return at;
}

// Reads the parts of a folder into `contents`.
struct FolderReader {
  Storage* storage;
  std::string folder;
  JournalContents* contents;

  template <class... Args>
  void Warn(fmt::format_string<Args...> format, Args&&... args) {
    contents->warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::string Path(std::string_view name) const { return fmt::format("{}/{}", folder, name); }

  Status ReadManifest();
  Status ReadSegments();
  Status CutLast();
  Status ReadSnapshots(const std::vector<std::string>& names);
  Status ReadDictionaries(const std::vector<std::string>& names);
};

Status FolderReader::ReadManifest() {
  const Result<Buffer> bytes = storage->Read(Path("table"), kManifestBytesMax);
  if (bytes.status().code() == Code::kNotFound) return Status::Ok();
  if (!bytes.ok()) return bytes.status();
  Result<JournalManifest> manifest = ParseManifest(bytes->text());
  if (!manifest.ok()) {
    Warn("{}: {}; its log is read as the options say", Path("table"), manifest.status().message());
    return Status::Ok();
  }
  contents->has_manifest = true;
  contents->manifest = std::move(*manifest);
  return Status::Ok();
}

Status FolderReader::ReadSegments() {
  TROOP_ASSIGN_OR_RETURN(const auto names, storage->List(Path("segments")));
  for (const std::string& name : names) {
    const std::uint64_t id = JournalNumber(name, "", ".log");
    if (id == 0) continue;
    const Result<Buffer> bytes = storage->Map(Path("segments/" + name));
    if (bytes.ok()) {
      contents->segments.push_back(Segment::Adopt(id, *bytes));
    } else {
      Warn("{}; what it held is lost", bytes.status().message());
    }
  }
  std::ranges::sort(contents->segments, {}, &Segment::id);
  const auto same = std::ranges::unique(contents->segments, {}, &Segment::id);
  contents->segments.erase(same.begin(), same.end());
  return contents->segments.empty() ? Status::Ok() : CutLast();
}

// The last segment was being written: what follows its last whole record never counted.
Status FolderReader::CutLast() {
  std::shared_ptr<Segment>& last = contents->segments.back();
  const std::span<const std::byte> bytes(last->data(), last->used());
  const std::size_t whole = WholeRecords(bytes);
  if (whole == bytes.size()) return Status::Ok();
  contents->torn_bytes = bytes.size() - whole;
  const std::string path = Path(JournalSegmentName(last->id()));
  TROOP_ASSIGN_OR_RETURN(const Buffer all, storage->Map(path));
  last = Segment::Adopt(last->id(), all.Slice(0, whole));
  return storage->Truncate(path, whole);
}

Status FolderReader::ReadSnapshots(const std::vector<std::string>& names) {
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const std::uint64_t number = JournalNumber(name, "snapshot-", ""))
      numbers.push_back(number);
  }
  std::ranges::sort(numbers, std::greater());
  if (!numbers.empty()) contents->found.next_snapshot = numbers.front() + 1;
  for (const std::uint64_t number : numbers) {
    const std::string path = Path(JournalSnapshotName(number));
    contents->found.outdated.push_back(path);
    if (contents->snapshot_number != 0) continue;
    const Result<Buffer> bytes = storage->Map(path);
    if (!bytes.ok()) {
      Warn("{}; an older snapshot is used", bytes.status().message());
      continue;
    }
    std::size_t used = 0;
    Result<Snapshot> snapshot = ReadSnapshot(bytes->bytes(), &contents->rounds, &used);
    // A file whose first round was never finished is as usual after a kill: no warning.
    if (snapshot.status().code() == Code::kFailedPrecondition) return snapshot.status();
    if (!snapshot.ok()) continue;
    contents->snapshot = std::move(*snapshot);
    contents->snapshot_number = number;
  }
  return Status::Ok();
}

Status FolderReader::ReadDictionaries(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (JournalNumber(name, "dictionary-", "") == 0) continue;
    const Result<Buffer> bytes = storage->Read(Path(name), kDictionaryBytesMax);
    if (bytes.ok()) {
      contents->dictionaries.push_back(*bytes);
    } else {
      Warn("{}; frames that need it are lost", bytes.status().message());
    }
  }
  return Status::Ok();
}

// Ids of segments never come again, even of those that never reached the disk: lines of snapshots
// were read at positions in them. An empty segment keeps the highest number.
void ReserveIds(JournalContents* contents) {
  std::uint64_t highest = contents->snapshot.end.segment;
  for (const Snapshot::Line& line : contents->snapshot.lines) {
    highest = std::max(highest, line.read_at.segment);
  }
  auto& segments = contents->segments;
  if (highest > (segments.empty() ? 0 : segments.back()->id())) {
    segments.push_back(Segment::Adopt(highest, Buffer()));
  }
  if (!segments.empty()) contents->found.end = {segments.back()->id(), segments.back()->used()};
}

}  // namespace

std::string EncodeManifest(const JournalManifest& manifest) {
  std::string text = fmt::format(
      "{}\nidentity {}\nfirst_generation {}\nincarnation {}\nused_snapshot {}\nused_round {}\n",
      kManifestTitle, manifest.identity, manifest.first_generation, manifest.incarnation,
      manifest.used_snapshot, manifest.used_round);
  return text + fmt::format("checksum {}\n", ChecksumOf(text));
}

Result<JournalManifest> ParseManifest(std::string_view text) {
  std::string_view rest = text, title, generation, incarnation, snapshot, round, identity, checksum;
  JournalManifest manifest;
  std::uint32_t sum = 0;
  const bool whole =
      TakeLine(&rest, kManifestTitle.substr(0, kManifestTitle.rfind(' ')), &title) &&
      TakeLine(&rest, "identity", &identity) && TakeLine(&rest, "first_generation", &generation) &&
      TakeLine(&rest, "incarnation", &incarnation) && TakeLine(&rest, "used_snapshot", &snapshot) &&
      TakeLine(&rest, "used_round", &round);
  const std::string_view summed = text.substr(0, text.size() - rest.size());
  if (!whole || !TakeLine(&rest, "checksum", &checksum) || !ParseNumber(checksum, &sum) ||
      sum != ChecksumOf(summed) || !kManifestTitle.ends_with(title) ||
      !ParseNumber(generation, &manifest.first_generation) ||
      !ParseNumber(incarnation, &manifest.incarnation) ||
      !ParseNumber(snapshot, &manifest.used_snapshot) ||
      !ParseNumber(round, &manifest.used_round) || manifest.first_generation == 0) {
    return DataLoss("damaged, or of another version");
  }
  manifest.identity = identity;
  return manifest;
}

bool JournalContents::clean() const {
  if (!snapshot.clean || !has_manifest) return false;
  if (manifest.used_snapshot == snapshot_number && manifest.used_round == rounds) return false;
  return found.end == snapshot.end && torn_bytes == 0;
}

Result<JournalContents> ReadJournal(Storage* storage, std::string_view folder) {
  JournalContents contents;
  FolderReader reader{storage, std::string(folder), &contents};
  TROOP_ASSIGN_OR_RETURN(contents.found.lock, storage->Lock(reader.Path("lock"), "a replay"));
  TROOP_RETURN_IF_ERROR(reader.ReadManifest());
  TROOP_RETURN_IF_ERROR(reader.ReadSegments());
  TROOP_ASSIGN_OR_RETURN(const auto names, storage->List(folder));
  TROOP_RETURN_IF_ERROR(reader.ReadSnapshots(names));
  TROOP_RETURN_IF_ERROR(reader.ReadDictionaries(names));
  ReserveIds(&contents);
  return contents;
}

}  // namespace troop
