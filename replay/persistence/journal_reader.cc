// Reads a journal's folder after a restart: manifest, segments, snapshots, dictionaries and
// ranges.
#include "replay/persistence/journal_reader.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/storage/crc32c.h"
#include "replay/persistence/journal_names.h"

namespace troop {
namespace {

constexpr std::uint64_t kSegmentIdMax = std::uint64_t{1} << 56;  // no log reaches it

constexpr std::string_view kManifestTitle = "troop replay table 1";
// Limits of file sizes: larger files are damaged or of another program.
constexpr std::size_t kManifestBytesMax = 64 << 10;
constexpr std::size_t kDictionaryBytesMax = 1 << 20;
constexpr std::size_t kRangesBytesMax = 64 << 20;

// Header of a dictionary file; `crc` covers everything after it.
struct DictionaryHead {
  static constexpr std::uint32_t kMagic = 0x44505254;  // "TRPD"
  std::uint32_t magic = kMagic;
  std::uint32_t crc = 0;
  std::uint32_t number = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(DictionaryHead) == 16);

std::uint32_t ChecksumOf(std::string_view text) { return Crc32c(std::as_bytes(std::span(text))); }

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// Removes a line "key value\n" from the front of `text`.
bool TakeLine(std::string_view* text, std::string_view key, std::string_view* value) {
  const std::size_t end = text->find('\n');
  if (end == text->npos || !text->starts_with(key) || end <= key.size()) return false;
  *value = text->substr(key.size() + 1, end - key.size() - 1);
  text->remove_prefix(end + 1);
  return true;
}

// Size of the complete record at the beginning (RecordHeader in replay/storage/segment.h); 0: none.
std::size_t RecordAt(std::span<const std::byte> bytes) {
  RecordHeader header;
  if (bytes.size() < sizeof(header)) return 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != RecordHeader::kMagic || header.bytes < sizeof(header) ||
      header.bytes % 8 != 0 || header.bytes > bytes.size()) {
    return 0;
  }
  return Crc32c(bytes.subspan(8, header.bytes - 8)) == header.crc ? header.bytes : 0;
}

// Size of the prefix that consists of complete records.
std::size_t WholeRecords(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  while (const std::size_t record = RecordAt(bytes.subspan(at))) at += record;
  return at;
}

// Offset of the next complete record; the size if there is none. Records are 8-byte aligned.
std::size_t NextRecord(std::span<const std::byte> bytes, std::size_t at) {
  while (at < bytes.size() && RecordAt(bytes.subspan(at)) == 0) at += 8;
  return std::min(at, bytes.size());
}

// True if a sector in the range was never written: disks write whole sectors, in any order, and a
// file system reads unwritten ones as zeros.
bool HasEmptySector(std::span<const std::byte> bytes, std::size_t from, std::size_t end) {
  constexpr std::size_t kSector = 512;
  for (std::size_t at = (from + kSector - 1) / kSector * kSector; at + kSector <= end;
       at += kSector) {
    const auto sector = bytes.subspan(at, kSector);
    if (std::ranges::all_of(sector, [](std::byte b) { return b == std::byte{0}; })) return true;
  }
  return false;
}

// Reads a folder into `contents`. Damage adds a warning; an I/O error ends the reading.
struct FolderReader {
  Storage* storage;
  std::string folder;
  JournalContents* contents;
  std::uint64_t highest_segment = 0;  // highest id among file names

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
  Status ReadRanges(std::string_view name, SegmentRanges* ranges, bool* known);
  Status FindLost();
};

// A damaged manifest is only a warning: the check of the options and the clean mark are lost.
Status FolderReader::ReadManifest() {
  const Result<Buffer> bytes = storage->Read(Path("table"), kManifestBytesMax);
  if (bytes.status().code() == Code::kNotFound) return Status::Ok();
  if (!bytes.ok()) return bytes.status();
  Result<JournalManifest> manifest = ParseManifest(bytes->text());
  if (!manifest.ok()) {
    Warn("{}: {}; its log is read with the configured options", Path("table"),
         manifest.status().message());
    return Status::Ok();
  }
  contents->has_manifest = true;
  contents->manifest = std::move(*manifest);
  return Status::Ok();
}

// Maps all segments. A file that vanished since it was listed is lost.
Status FolderReader::ReadSegments() {
  TROOP_ASSIGN_OR_RETURN(const auto names, storage->List(Path("segments")));
  for (const std::string& name : names) {
    const std::uint64_t id = JournalNumber(name, "", ".log");
    if (id == 0) continue;
    highest_segment = std::max(highest_segment, id);
    const Result<Buffer> bytes = storage->Map(Path("segments/" + name));
    if (bytes.ok()) {
      contents->segments.push_back(Segment::Adopt(id, *bytes));
    } else if (bytes.status().code() == Code::kNotFound) {
      Warn("{}; its content is lost", bytes.status().message());
    } else {
      return bytes.status();
    }
  }
  std::ranges::sort(contents->segments, {}, &Segment::id);
  const auto same = [](const auto& a, const auto& b) { return a->id() == b->id(); };
  contents->segments.erase(std::unique(contents->segments.begin(), contents->segments.end(), same),
                           contents->segments.end());
  return contents->segments.empty() ? Status::Ok() : CutLast();
}

// Truncates the last segment with data to its complete records: later bytes never counted and may
// not be on disk. If complete records follow a damaged range in which no sector is missing, the
// damage occurred later, and the records count. Empty files after the segment are those of a
// failed commit.
Status FolderReader::CutLast() {
  auto& segments = contents->segments;
  const auto written = std::ranges::find_if(
      segments.rbegin(), segments.rend(), [](const auto& segment) { return segment->used() > 0; });
  std::shared_ptr<Segment>& last = written == segments.rend() ? segments.back() : *written;
  const std::span<const std::byte> bytes(last->data(), last->used());
  const std::string path = Path(JournalSegmentName(last->id()));
  std::size_t whole = WholeRecords(bytes);
  while (whole < bytes.size()) {
    const std::size_t next = NextRecord(bytes, whole);
    if (next == bytes.size() || HasEmptySector(bytes, whole, next)) break;
    Warn("{}: bytes {} to {} are damaged", path, whole, next);
    whole = next + WholeRecords(bytes.subspan(next));
  }
  contents->torn_bytes = bytes.size() - whole;
  if (contents->torn_bytes > 0) {
    // The mapping must not extend past the truncated file.
    TROOP_ASSIGN_OR_RETURN(const Buffer all, storage->Map(path));
    last = Segment::Adopt(last->id(), all.Slice(0, whole));
  }
  return storage->Truncate(path, whole);
}

// Uses the newest snapshot file with a complete round.
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
    if (!bytes.ok() && bytes.status().code() != Code::kNotFound) return bytes.status();
    if (!bytes.ok()) {
      Warn("{}; an older snapshot is used", bytes.status().message());
      continue;
    }
    std::size_t used = 0;
    Result<Snapshot> snapshot = ReadSnapshot(bytes->bytes(), &contents->rounds, &used);
    // A file without a complete first round is normal after a kill: no warning.
    if (snapshot.status().code() == Code::kFailedPrecondition) return snapshot.status();
    if (!snapshot.ok()) continue;
    contents->snapshot = std::move(*snapshot);
    contents->snapshot_number = number;
  }
  return Status::Ok();
}

// Sorted by number: the last one is used for encoding.
Status FolderReader::ReadDictionaries(const std::vector<std::string>& names) {
  std::vector<DictionaryFile> files;
  for (const std::string& name : names) {
    if (JournalNumber(name, "dictionary-", "") == 0) continue;
    const Result<Buffer> bytes = storage->Read(Path(name), kDictionaryBytesMax);
    const Code code = bytes.status().code();
    if (!bytes.ok() && code != Code::kNotFound && code != Code::kResourceExhausted) {
      return bytes.status();
    }
    const Result<DictionaryFile> file =
        bytes.ok() ? ParseDictionaryFile(*bytes) : Result<DictionaryFile>(bytes.status());
    if (file.ok()) {
      files.push_back(*file);
    } else {
      Warn("{}: {}; frames that need it are lost", Path(name), file.status().message());
    }
  }
  std::ranges::stable_sort(files, {}, &DictionaryFile::number);
  for (DictionaryFile& file : files) contents->dictionaries.push_back(std::move(file.bytes));
  if (!files.empty()) contents->found.next_dictionary = files.back().number + 1;
  return Status::Ok();
}

// Adds the ranges of a file. `known`: the file exists and is intact.
Status FolderReader::ReadRanges(std::string_view name, SegmentRanges* ranges, bool* known) {
  const Result<Buffer> bytes = storage->Read(Path(name), kRangesBytesMax);
  if (bytes.status().code() == Code::kNotFound) return Status::Ok();
  if (!bytes.ok()) return bytes.status();
  const Result<SegmentRanges> read = SegmentRanges::Parse(bytes->text());
  if (read.ok()) {
    ranges->Add(*read);
    *known = true;
  } else {
    Warn("{}: {}; missing segments are not detected during this start", Path(name),
         read.status().message());
  }
  return Status::Ok();
}

// Finds lost segments. The log is written in order: everything before an existing segment, or
// before the end that a snapshot names, was written too. Without the file `removed` (an older
// release, or a journal that was never restored) removed segments cannot be distinguished from
// lost ones.
Status FolderReader::FindLost() {
  SegmentRanges here;
  std::uint64_t durable = contents->snapshot.end.segment;
  if (durable > 0 && contents->snapshot.end.offset == 0) --durable;
  for (const auto& segment : contents->segments) {
    here.Add(segment->id());
    if (segment->used() > 0) durable = std::max(durable, segment->id());
  }
  SegmentRanges known = here;
  bool removed = false, skipped = false;
  TROOP_RETURN_IF_ERROR(ReadRanges(kJournalRemoved, &known, &removed));
  TROOP_RETURN_IF_ERROR(ReadRanges(kJournalSkipped, &known, &skipped));
  if (removed && durable <= kSegmentIdMax) contents->lost = known.Missing(durable);
  return Status::Ok();
}

// Adds all segments without a file, up to the end of the log, to `removed`.
void ReserveRemoved(JournalContents* contents) {
  SegmentRanges here;
  for (const auto& segment : contents->segments) {
    if (segment->used() > 0 || segment->id() < contents->found.end.segment) here.Add(segment->id());
  }
  for (const auto& range : here.Missing(contents->found.end.segment)) {
    contents->found.removed.Add(range);
  }
}

// Reserves segment ids: none is reused, even if its segment never reached the disk, because lines
// of snapshots have positions in it. An empty segment holds the highest id.
void ReserveIds(std::uint64_t highest, JournalContents* contents) {
  highest = std::max(highest, contents->snapshot.end.segment);
  for (const Snapshot::Line& line : contents->snapshot.lines) {
    highest = std::max(highest, line.read_at.segment);
  }
  auto& segments = contents->segments;
  // Not written by a real log: accepting it would let ids overflow.
  if (highest > kSegmentIdMax) {
    contents->warnings.push_back(
        fmt::format("a snapshot refers to segment {}, which cannot exist; ignored", highest));
    highest = 0;
  }
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

// The checksum covers everything after itself, so the header is written twice.
Buffer EncodeDictionaryFile(std::uint32_t number, const Buffer& bytes) {
  MutableBuffer file(sizeof(DictionaryHead) + bytes.size());
  DictionaryHead head{.number = number};
  std::memcpy(file.data(), &head, sizeof(head));
  if (!bytes.empty()) std::memcpy(file.data() + sizeof(head), bytes.data(), bytes.size());
  head.crc = Crc32c(std::span<const std::byte>(file.data(), file.size()).subspan(8));
  std::memcpy(file.data(), &head, sizeof(head));
  return std::move(file).Freeze();
}

// The dictionary itself is checked by MakeFrameDictionary.
Result<DictionaryFile> ParseDictionaryFile(const Buffer& file) {
  DictionaryHead head;
  if (file.size() < sizeof(head)) return DataLoss("file has only {} bytes", file.size());
  std::memcpy(&head, file.data(), sizeof(head));
  if (head.magic != DictionaryHead::kMagic || Crc32c(file.bytes().subspan(8)) != head.crc) {
    return DataLoss("damaged, or of another version");
  }
  return DictionaryFile{head.number, file.Slice(sizeof(head), file.size() - sizeof(head))};
}

Result<JournalManifest> ParseManifest(std::string_view text) {
  std::string_view rest = text, title, generation, incarnation, snapshot, round, identity, checksum;
  JournalManifest manifest;
  std::uint32_t sum = 0;
  // Fixed keys in fixed order, so that every field is present exactly once.
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
  // A restart has used this round already and has changed the log since.
  if (manifest.used_snapshot == snapshot_number && manifest.used_round == rounds) return false;
  return found.end == snapshot.end && torn_bytes == 0 && lost.empty();
}

Result<JournalContents> ReadJournal(Storage* storage, std::string_view folder) {
  JournalContents contents;
  FolderReader reader{storage, std::string(folder), &contents};
  // The lock comes first: another process may be writing.
  TROOP_ASSIGN_OR_RETURN(
      contents.found.lock,
      storage->Lock(reader.Path("lock"), fmt::format("a replay, process {}", getpid())));
  TROOP_RETURN_IF_ERROR(reader.ReadManifest());
  TROOP_RETURN_IF_ERROR(reader.ReadSegments());
  TROOP_ASSIGN_OR_RETURN(const auto names, storage->List(folder));
  TROOP_RETURN_IF_ERROR(reader.ReadSnapshots(names));
  TROOP_RETURN_IF_ERROR(reader.ReadDictionaries(names));
  TROOP_RETURN_IF_ERROR(reader.FindLost());
  ReserveIds(reader.highest_segment, &contents);
  ReserveRemoved(&contents);
  return contents;
}

Status NoteRemoved(Storage* storage, std::string_view folder, const Journal::Found& found) {
  return storage->WriteAtomic(fmt::format("{}/{}", folder, kJournalRemoved),
                              found.removed.Encode());
}

}  // namespace troop
