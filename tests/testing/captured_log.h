#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include "core/base/log.h"
#include "tests/core/temp_folder.h"

namespace troop {

// Redirects the log of this process to a file for its lifetime.
class CapturedLog {
 public:
  CapturedLog() { InitLog({.role = "test", .file = file_}); }
  ~CapturedLog() { InitLog({}); }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

 private:
  const TempFolder temp_;
  const std::string file_ = temp_.path() + "/log";
};

}  // namespace troop
