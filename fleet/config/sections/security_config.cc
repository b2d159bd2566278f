// Declares the config keys of keys and listen rules.
#include "fleet/config/sections/security_config.h"

#include "core/config/config_visitor.h"

namespace troop {

void VisitKeys(SecurityConfig& c, ConfigVisitor& v) {
  v.Visit({"security.keys",
           "Folder with the keys of all roles (`troop keygen`). If set, all TCP traffic is "
           "encrypted, and only keys listed in its file `allowed` are admitted, each only for its "
           "role. Empty disables keys."},
          c.keys);
  v.Visit(
      {"security.insecure",
       "Allow listening on non-loopback addresses without keys or tokens; any client that reaches "
       "the ports can then read and control the run."},
      c.insecure);
}

}  // namespace troop
