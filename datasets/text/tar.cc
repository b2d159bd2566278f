// Tar reader over memory: sizes and checksums are validated before any byte is used.

#include "datasets/text/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace troop {
namespace {

constexpr std::size_t kBlock = 512;

// Header fields (POSIX.1-1988, "ustar"): offset and size.
struct FieldAt {
  std::size_t offset, size;
};
constexpr FieldAt kName = {0, 100}, kSize = {124, 12}, kChecksum = {148, 8}, kType = {156, 1},
                  kMagic = {257, 5}, kPrefix = {345, 155};

std::string_view Raw(std::string_view header, FieldAt at) {
  return header.substr(at.offset, at.size);
}
// A text field ends at its first zero byte, or fills the whole field.
std::string_view Text(std::string_view header, FieldAt at) {
  const std::string_view raw = Raw(header, at);
  return raw.substr(0, std::min(raw.find('\0'), raw.size()));
}

// Reads octal digits, possibly after spaces, that end at a space, a zero byte or the field's end;
// false for anything else.
bool ReadOctal(std::string_view field, std::uint64_t* value) {
  const std::size_t begin = std::min(field.find_first_not_of(' '), field.size());
  *value = 0;
  std::size_t i = begin;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) {
    *value = *value << 3 | std::uint64_t(field[i] - '0');
  }
  return i > begin && (i == field.size() || field[i] == ' ' || field[i] == '\0');
}

// Checksum: the sum of all header bytes, with the checksum field itself taken as spaces.
std::uint64_t SumOf(std::string_view header) {
  std::uint64_t sum = kChecksum.size * ' ';
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i - kChecksum.offset >= kChecksum.size) sum += static_cast<unsigned char>(header[i]);
  }
  return sum;
}

// Checks pax attributes of the next file ("LENGTH KEY=VALUE\n"): true if they change neither its
// name nor its size.
bool IsHarmless(std::string_view records) {
  return records.find(" path=") == records.npos && records.find(" size=") == records.npos &&
         records.find(" GNU.sparse") == records.npos;
}

// Visits a regular file; skips links and folders; rejects entries that would change a later name or
// size.
Status VisitEntry(std::string_view header, std::string_view bytes, const TarVisitor& visit) {
  switch (Raw(header, kType)[0]) {
    case '0':
    case '\0': {
      std::string name(Text(header, kName));
      const std::string_view prefix = Text(header, kPrefix);
      // ustar splits long names into a prefix and a name.
      if (Raw(header, kMagic) == "ustar" && !prefix.empty()) {
        name = std::string(prefix) + "/" + name;
      }
      return visit(name, bytes);
    }
    case 'x':
    case 'g':
      if (!IsHarmless(bytes))
        return DataLoss("a name or size that needs pax attributes is not supported");
      return {};
    case '1':  // links, devices, folders, pipes
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
      return {};
    default:
      return DataLoss("an entry of type {:?} is not supported", Raw(header, kType));
  }
}

}  // namespace

// Steps per entry: check the checksum, check the size, visit, skip the padding.
Status VisitTar(std::string_view archive, const TarVisitor& visit) {
  const auto at = [](std::size_t offset) { return fmt::format("tar archive, byte {}", offset); };
  for (std::size_t offset = 0; offset < archive.size();) {
    const std::string_view header = archive.substr(offset, kBlock);
    if (header.size() < kBlock) return DataLoss("{}: its end is missing", at(offset));
    if (header.find_first_not_of('\0') == header.npos) return {};  // end of the archive
    std::uint64_t sum = 0, size = 0;
    if (!ReadOctal(Raw(header, kChecksum), &sum) || sum != SumOf(header)) {
      return DataLoss("{}: not a file header, or a damaged one", at(offset));
    }
    if (!ReadOctal(Raw(header, kSize), &size)) {
      return DataLoss("{}: the size is not an octal number", at(offset));
    }
    // The header's size is untrusted.
    const std::size_t left = archive.size() - offset - kBlock;
    if (size > left) {
      return DataLoss("{}: a file of {} bytes where {} are left", at(offset), size, left);
    }
    const Status status = VisitEntry(header, archive.substr(offset + kBlock, size), visit);
    if (!status.ok()) return status.WithContext(at(offset));
    // Content is padded to whole blocks.
    offset += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
  return DataLoss("tar archive: its end is missing");
}

}  // namespace troop
