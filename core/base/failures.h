#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace troop {

// Combines failures into one status: the code of the first and one line for each. Drops duplicates.
class Failures {
 public:
  void Add(const Status& status) {
    if (status.ok() || Names(status.message())) return;
    first_ =
        first_.ok() ? status : Status(first_.code(), first_.message() + "\n" + status.message());
  }
  // True if a message contains this text.
  bool Names(std::string_view text) const {
    return first_.message().find(text) != std::string::npos;
  }
  const Status& status() const { return first_; }

 private:
  Status first_;
};

}  // namespace troop
