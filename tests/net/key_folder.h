#pragma once

// A folder of keys for tests: one of each role.
#include <memory>
#include <string>

#include "core/base/check.h"
#include "net/security/keys.h"
#include "tests/core/temp_folder.h"

namespace troop {

class KeyFolder {
 public:
  KeyFolder() {
    const Status made = MakeKeys(path(), KeysOfAllRoles(), false);
    TROOP_CHECK(made.ok(), "{}", made.message());
  }
  std::string path() const { return folder_.path() + "/keys"; }
  std::string file(const std::string& name) const { return path() + "/" + name + ".key"; }
  std::string allowed() const { return path() + "/allowed"; }
  std::shared_ptr<const KeyRing> Load(const std::string& name) const {
    auto ring = LoadKeys(file(name));
    TROOP_CHECK(ring.ok(), "{}", ring.status().message());
    return *ring;
  }

 private:
  TempFolder folder_;
};

}  // namespace troop
