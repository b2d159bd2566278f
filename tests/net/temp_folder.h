#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "core/check.h"

namespace troop {

// A private folder that goes with the object. Its path is short enough for ipc.
class TempFolder {
 public:
  TempFolder() { TROOP_CHECK(mkdtemp(path_.data()) != nullptr, "no temporary folder"); }
  TempFolder(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/troop-net-XXXXXX";
};

}  // namespace troop
