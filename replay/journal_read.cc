#include "replay/journal_read.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/crc32c.h"

namespace troop {
namespace {

constexpr std::uint64_t kSegmentIdMax = std::uint64_t{1} << 56;

constexpr std::string_view kManifestTitle = "troop replay table 1";
constexpr std::size_t kManifestBytesMax = 64 << 10;
constexpr std::size_t kDictionaryBytesMax = 1 << 20;
constexpr std::size_t kRangesBytesMax = 64 << 20;

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

// "key value\n" off the front of `text`.
bool TakeLine(std::string_view* text, std::string_view key, std::string_view* value) {
  const std::size_t end = text->find('\n');
  if (end == text->npos || !text->starts_with(key) || end <= key.size()) return false;
  *value = text->substr(key.size() + 1, end - key.size() - 1);
  text->remove_prefix(end + 1);
  return true;
}

// The bytes of the whole record at the beginning (RecordHeader in replay/segment.h); 0: none.
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

// How far a segment consists of whole records.
std::size_t WholeRecords(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  while (const std::size_t record = RecordAt(bytes.subspan(at))) at += record;
  return at;
}

// Where the next whole record begins; the size if there is none.
std::size_t NextRecord(std::span<const std::byte> bytes, std::size_t at) {
  while (at < bytes.size() && RecordAt(bytes.subspan(at)) == 0) at += 8;
  return std::min(at, bytes.size());
}

// True when a sector is missing there: disks write sectors whole, in any order, and a file system
// reads those that it never wrote as zeros.
bool HasEmptySector(std::span<const std::byte> bytes, std::size_t from, std::size_t end) {
  constexpr std::size_t kSector = 512;
  for (std::size_t at = (from + kSector - 1) / kSector * kSector; at + kSector <= end;
       at += kSector) {
    const auto sector = bytes.subspan(at, kSector);
    if (std::ranges::all_of(sector, [](std::byte b) { return b == std::byte{0}; })) return true;
  }
  return false;
}

// Reads the parts of a folder into `contents`.
struct FolderReader {
  Storage* storage;
  std::string folder;
  JournalContents* contents;
  std::uint64_t highest_segment = 0;  // of those that have a name

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
    highest_segment = std::max(highest_segment, id);
    const Result<Buffer> bytes = storage->Map(Path("segments/" + name));
    if (bytes.ok()) {
      contents->segments.push_back(Segment::Adopt(id, *bytes));
    } else if (bytes.status().code() == Code::kNotFound) {
      Warn("{}; what it held is lost", bytes.status().message());
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

// The last segment was being written: what follows its last whole record never counted, and nobody
// knows whether the rest is on the disk yet. Where whole records follow, and no sector is missing,
// the damage came later: they count. Empty files behind it are those of a commit that failed.
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
    TROOP_ASSIGN_OR_RETURN(const Buffer all, storage->Map(path));
    last = Segment::Adopt(last->id(), all.Slice(0, whole));
  }
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
    if (!bytes.ok() && bytes.status().code() != Code::kNotFound) return bytes.status();
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

// `known`: the file is there, and whole.
Status FolderReader::ReadRanges(std::string_view name, SegmentRanges* ranges, bool* known) {
  const Result<Buffer> bytes = storage->Read(Path(name), kRangesBytesMax);
  if (bytes.status().code() == Code::kNotFound) return Status::Ok();
  if (!bytes.ok()) return bytes.status();
  const Result<SegmentRanges> read = SegmentRanges::Parse(bytes->text());
  if (read.ok()) {
    ranges->Add(*read);
    *known = true;
  } else {
    Warn("{}: {}; segments that are missing are not noticed this time", Path(name),
         read.status().message());
  }
  return Status::Ok();
}

// The log came to the disk in its order: what lies before something that is there, or before the
// end that a snapshot names, was there, too. Without the file `removed` (of an older release, or of
// a journal that was never restored) no file lists what was removed.
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

// All that has no file up to the end is accounted for from now on.
void ReserveRemoved(JournalContents* contents) {
  SegmentRanges here;
  for (const auto& segment : contents->segments) {
    if (segment->used() > 0 || segment->id() < contents->found.end.segment) here.Add(segment->id());
  }
  for (const auto& range : here.Missing(contents->found.end.segment)) {
    contents->found.removed.Add(range);
  }
}

// Ids of segments never come again, even of those that never reached the disk: lines of snapshots
// were read at positions in them. An empty segment keeps the highest number.
void ReserveIds(std::uint64_t highest, JournalContents* contents) {
  highest = std::max(highest, contents->snapshot.end.segment);
  for (const Snapshot::Line& line : contents->snapshot.lines) {
    highest = std::max(highest, line.read_at.segment);
  }
  auto& segments = contents->segments;
  // No log gets so far: whoever wrote it wants numbers to begin again at 0.
  if (highest > kSegmentIdMax) {
    contents->warnings.push_back(fmt::format("a snapshot knows of segment {}", highest));
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

Buffer EncodeDictionaryFile(std::uint32_t number, const Buffer& bytes) {
  MutableBuffer file(sizeof(DictionaryHead) + bytes.size());
  DictionaryHead head{.number = number};
  std::memcpy(file.data(), &head, sizeof(head));
  if (!bytes.empty()) std::memcpy(file.data() + sizeof(head), bytes.data(), bytes.size());
  head.crc = Crc32c(std::span<const std::byte>(file.data(), file.size()).subspan(8));
  std::memcpy(file.data(), &head, sizeof(head));
  return std::move(file).Freeze();
}

Result<DictionaryFile> ParseDictionaryFile(const Buffer& file) {
  DictionaryHead head;
  if (file.size() < sizeof(head)) return DataLoss("a dictionary of {} bytes", file.size());
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
  return found.end == snapshot.end && torn_bytes == 0 && lost.empty();
}

Result<JournalContents> ReadJournal(Storage* storage, std::string_view folder) {
  JournalContents contents;
  FolderReader reader{storage, std::string(folder), &contents};
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
