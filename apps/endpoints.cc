#include "apps/endpoints.h"

#include <stdlib.h>
#include <string.h>

#include <filesystem>

#include "net/control.h"

namespace troop {

Result<std::unique_ptr<Endpoints>> Endpoints::Make(const Config& config) {
  std::unique_ptr<Endpoints> endpoints(new Endpoints);
  endpoints->ipc_ = config.fleet.transport == "ipc";
  if (!endpoints->ipc_) return endpoints;
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "troop-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {  // creates it 0700
    return Unavailable(
        "no folder for sockets can be made at {}: {}; set TMPDIR, or use "
        "fleet.transport=tcp",
        folder, strerror(errno));
  }
  endpoints->folder_ = folder;
  return endpoints;
}

Endpoints::~Endpoints() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string Endpoints::For(Role role, std::int32_t index) const {
  return ipc_ ? fmt::format("ipc://{}/{}.sock", folder_, PeerName(role, index))
              : "tcp://127.0.0.1:0";
}

}  // namespace troop
