#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/status.h"

struct archive;        // of libarchive
struct archive_entry;  // of libarchive

namespace troop {

enum class Compression : std::uint8_t { kNone, kXz, kGzip };

// Compression of a file, judged by its name: .gz and .tgz, .xz, else none.
Compression CompressionOf(std::string_view path);

// Decompresses a file in memory; concatenated parts (.gz, .xz) give one text. Checksums are
// verified. Errors: kDataLoss: damaged or truncated; kResourceExhausted: more than `bytes_max`.
Result<std::string> Decompress(std::string_view bytes, Compression compression,
                               std::size_t bytes_max);

// Reads the regular files of a tar archive in memory, in order, while it is decompressed: ustar,
// pax and GNU. Folders, links, devices and other entries are skipped. No file is created, so names
// are passed as written. The bytes are borrowed. Owner: one thread.
//
// Errors of all methods: kDataLoss with the offset in the unpacked archive; kResourceExhausted:
// over a limit. After an error only the destructor may be called. Next verifies the checksums of
// .xz only by reaching the end: until it returned false, what was read is not verified.
class ArchiveReader {
 public:
  struct Options {
    bool xz = true;    // false: a tar archive without compression
    bool raw = false;  // not a tar archive: a single file without a name
    std::size_t bytes_max = std::size_t{2} << 30;       // unpacked, skipped entries included
    std::size_t file_bytes_max = std::size_t{1} << 24;  // size of a file that is read
  };
  // Opens an archive; a damaged one may be detected here or later.
  static Result<ArchiveReader> Make(std::string_view bytes, const Options& options);

  // Moves to the next file, over the content of the current one if that was not read; false: the
  // end of the archive.
  Result<bool> Next();
  // The current file's name: UTF-8 if it is a pax attribute, else any bytes.
  const std::string& name() const { return name_; }
  // The content of the current file. REQUIRES: at most one call per file. O(content).
  Result<std::string> Read();
  // Consumed bytes of the archive, for progress.
  std::size_t position() const;

 private:
  struct Closer {
    void operator()(archive* open) const;
  };
  ArchiveReader(archive* open, const Options& options) : archive_(open), options_(options) {}
  Status Failure() const;
  Status CheckUnpackedBytes() const;
  Result<bool> NextHeader(archive_entry** entry);
  Status SkipContent();

  std::unique_ptr<archive, Closer> archive_;
  Options options_;
  std::string name_;
  std::string buffer_;   // of Read
  bool unread_ = false;  // the content of the current entry was not read
};

}  // namespace troop
