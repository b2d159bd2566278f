// Code checksums: detect that machines of one run have different builds of an environment.

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/storage/crc32c.h"
#include "envs/environment.h"

namespace troop {

// Reads the file in parts of 64 KiB; plug-ins may contain large data.
Result<std::string> PluginCode(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("plug-in {}: {}", path, strerror(errno));
  std::array<char, 1 << 16> part;
  std::uint32_t checksum = 0;
  std::uint64_t bytes = 0;
  while (file) {
    file.read(part.data(), std::streamsize(part.size()));
    const auto read = std::size_t(file.gcount());
    checksum = Crc32c(std::as_bytes(std::span(part).first(read)), checksum);
    bytes += read;
  }
  if (!file.eof()) return InvalidArgument("plug-in {}: cannot read the file", path);
  return fmt::format("a plug-in of {} bytes, checksum {:08x}", bytes, checksum);
}

// An empty code means that the environment cannot compute one, so nothing is compared.
Status CheckSameCode(std::string_view id, const std::string& here, const std::string& there) {
  if (here.empty() || there.empty() || here == there) return Status::Ok();
  return InvalidArgument(
      "environment {} is {} here, but {} in the run; copy it from the machine where the run "
      "started, or restart the run",
      id, here, there);
}

}  // namespace troop
