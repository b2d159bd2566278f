// Implements the search of checksums in the files of sha256sum.

#include "datasets/text/file_checksum.h"

#include <algorithm>
#include <filesystem>

#include "core/storage/read_file.h"
#include "core/storage/sha256.h"

namespace troop {

namespace fs = std::filesystem;

std::optional<std::string> ExpectedSha256(const std::string& path) {
  const fs::path file = path;
  const Result<std::string> sums =
      ReadFile((file.parent_path() / "SHA256SUMS").string(), std::size_t{1} << 20);
  if (!sums.ok()) return std::nullopt;
  // Lines of sha256sum: 64 hex digits, a space, a mode character (' ' or '*'), the name.
  const std::string name = file.filename().string();
  for (std::string_view rest = *sums; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    constexpr std::size_t kDigits = 64;
    if (line.size() > kDigits + 2 && line.substr(kDigits + 2) == name) {
      return std::string(line.substr(0, kDigits));
    }
  }
  return std::nullopt;
}

// A file without a SHA256SUMS next to it passes: the checksum is optional.
Status CheckSha256Sums(const std::string& path, std::string_view bytes) {
  const std::optional<std::string> expected = ExpectedSha256(path);
  if (!expected) return {};
  const std::string found = Sha256Hex(bytes);
  if (found == *expected) return {};
  return DataLoss("it is damaged: {} bytes with SHA-256 {}, expected {} (SHA256SUMS)", bytes.size(),
                  found, *expected);
}

}  // namespace troop
