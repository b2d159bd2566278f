#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "replay/table/table_parts.h"
#include "tests/replay/table_world.h"

namespace troop {

// The parts of a small table without the Table, so that a test can call one of them alone.
inline std::unique_ptr<TableParts> MakeParts(const TableOptions& options) {
  auto parts = TableParts::Make(options);
  TROOP_CHECK(parts.ok(), "{}", parts.status().ToString());
  return std::move(*parts);
}

inline void PutInto(TableParts* parts, EncodedChunk chunk, std::vector<Item> items) {
  const auto counts = parts->inserter.Insert({{std::move(chunk)}, std::move(items)});
  TROOP_CHECK(counts.ok(), "{}", counts.status().ToString());
}

}  // namespace troop
