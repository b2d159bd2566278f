// A program outside the repository that uses an installed Troop: headers by their folder, libraries
// by their target. It uses one function of the lowest library and one that needs a dependency at
// link time.
#include <cstdio>
#include <vector>

#include "core/base/version.h"
#include "fleet/config/config.h"

int main() {
  const std::vector<troop::ConfigKey> keys = troop::ConfigKeys();
  std::printf("consumer: troop %s has %zu config keys\n", troop::kTroopVersion, keys.size());
  return keys.empty() ? 1 : 0;
}
