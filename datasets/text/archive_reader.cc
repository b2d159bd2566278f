// Tar archives, also compressed, through libarchive, with limits on what hostile bytes can request.
#include "datasets/text/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "core/storage/gunzip.h"

namespace troop {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A pax attribute is UTF-8; the name of a plain header has no declared encoding. "": no name.
std::string NameOf(archive_entry* entry) {
  const char* name = archive_entry_pathname_utf8(entry);
  if (name == nullptr) name = archive_entry_pathname(entry);
  return name == nullptr ? "" : name;
}

}  // namespace

Compression CompressionOf(std::string_view path) {
  if (path.ends_with(".gz") || path.ends_with(".tgz")) return Compression::kGzip;
  return path.ends_with(".xz") ? Compression::kXz : Compression::kNone;
}

// An .xz file is read as an archive of libarchive's raw format, which has one file.
Result<std::string> Decompress(std::string_view bytes, Compression compression,
                               std::size_t bytes_max) {
  if (compression == Compression::kNone) return std::string(bytes);
  if (compression == Compression::kGzip) return Gunzip(bytes, bytes_max);
  const ArchiveReader::Options options = {
      .xz = true, .raw = true, .bytes_max = bytes_max, .file_bytes_max = bytes_max};
  TROOP_ASSIGN_OR_RETURN(ArchiveReader reader, ArchiveReader::Make(bytes, options));
  TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next());
  if (!more) return std::string();
  return reader.Read();
}

void ArchiveReader::Closer::operator()(archive* open) const { archive_read_free(open); }

// The filter is appended, not searched: a search also accepts .xz inside .xz, of which a small file
// can expand to terabytes in an inner layer, whose output no limit counts.
Result<ArchiveReader> ArchiveReader::Make(std::string_view bytes, const Options& options) {
  ArchiveReader reader(archive_read_new(), options);
  archive* const a = reader.archive_.get();
  if (a == nullptr) return ResourceExhausted("not enough memory to read it");
  // read_concatenated_archives: reads on after the end mark, up to the checksums of .xz.
  const int format =
      options.raw ? archive_read_support_format_raw(a) : archive_read_support_format_tar(a);
  if (format != ARCHIVE_OK ||
      (options.xz && archive_read_append_filter(a, ARCHIVE_FILTER_XZ) != ARCHIVE_OK) ||
      (!options.raw &&
       archive_read_set_format_option(a, "tar", "read_concatenated_archives", "1") != ARCHIVE_OK) ||
      archive_read_open_memory(a, bytes.data(), bytes.size()) != ARCHIVE_OK) {
    return reader.Failure();
  }
  return reader;
}

// libarchive's message with the unpacked bytes that it has consumed, and ENOMEM apart from damage.
Status ArchiveReader::Failure() const {
  archive* const a = archive_.get();
  const char* const text = archive_error_string(a);
  const Code code = archive_errno(a) == ENOMEM ? Code::kResourceExhausted : Code::kDataLoss;
  const la_int64_t at = std::max<la_int64_t>(0, archive_filter_bytes(a, 0));
  return Status(code, fmt::format("archive, byte {}: {}", at, text == nullptr ? "damaged" : text));
}

// Limits the time that a small file can take: filter 0 counts the bytes after decompression.
Status ArchiveReader::CheckUnpackedBytes() const {
  if (std::uint64_t(archive_filter_bytes(archive_.get(), 0)) <= options_.bytes_max) return {};
  return ResourceExhausted("its content is larger than {} bytes", options_.bytes_max);
}

std::size_t ArchiveReader::position() const {
  return std::size_t(std::max<la_int64_t>(0, archive_filter_bytes(archive_.get(), -1)));
}

// Reads on in blocks instead of archive_read_data_skip, which would decompress an entry of any size
// in one call.
Status ArchiveReader::SkipContent() {
  const void* block = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  for (int code = ARCHIVE_OK; code != ARCHIVE_EOF;) {
    code = archive_read_data_block(archive_.get(), &block, &size, &offset);
    if (code != ARCHIVE_OK && code != ARCHIVE_EOF) return Failure();
    TROOP_RETURN_IF_ERROR(CheckUnpackedBytes());
  }
  return {};
}

// False at the end. libarchive accepts an archive without an end mark; here it counts as cut off.
Result<bool> ArchiveReader::NextHeader(archive_entry** entry) {
  archive* const a = archive_.get();
  const int code = archive_read_next_header(a, entry);
  if (code == ARCHIVE_EOF) {
    if (archive_filter_bytes(a, 0) > archive_read_header_position(a)) return false;
    return DataLoss("archive: its end is missing");
  }
  // A warning concerns an attribute that is not used here, unless there is no name.
  if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return Failure();
  name_ = NameOf(*entry);
  if (name_.empty()) return Failure();
  return true;
}

Result<bool> ArchiveReader::Next() {
  for (;;) {
    if (unread_) TROOP_RETURN_IF_ERROR(SkipContent());
    archive_entry* entry = nullptr;
    TROOP_ASSIGN_OR_RETURN(const bool more, NextHeader(&entry));
    TROOP_RETURN_IF_ERROR(CheckUnpackedBytes());
    unread_ = more;
    if (!more) return false;
    // A hard link has the type of its target.
    if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr) {
      return true;
    }
  }
}

// The buffer grows by halves, since the size in the header is not trusted, and is kept: a result
// has no spare capacity. Holes of a sparse file are zeros, and count.
Result<std::string> ArchiveReader::Read() {
  unread_ = false;
  std::size_t size = 0;
  for (;;) {
    if (size == buffer_.size()) buffer_.resize(size + std::max(kMiB / 64, size / 2));
    const la_ssize_t n =
        archive_read_data(archive_.get(), buffer_.data() + size, buffer_.size() - size);
    if (n < 0) return Failure();
    TROOP_RETURN_IF_ERROR(CheckUnpackedBytes());
    if (n == 0) return std::string(buffer_.data(), size);
    size += std::size_t(n);
    if (size > options_.file_bytes_max) {
      return ResourceExhausted("{:?} is larger than {} bytes", name_, options_.file_bytes_max);
    }
  }
}

}  // namespace troop
