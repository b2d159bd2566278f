#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/sparse_rows.h"

namespace troop {

// How a file in the format of svmlight and libsvm is read.
struct SvmlightOptions {
  std::int64_t width = 0;   // number of columns; 0: the largest index of the file
  bool zero_based = false;  // indices count from 0; false: from 1, as in libsvm
};

// Examples of a file: rows in the file's order, and their labels as written.
struct SvmlightData {
  SparseRows rows;
  std::vector<std::vector<std::string>> labels;  // per row: one, or several (comma-separated)
  std::vector<std::int64_t> lines;               // line number of each row, from 1
};

// Limit of indices: the columns of a model are 32 bits wide, and its weights must fit in memory.
inline constexpr std::int64_t kSparseWidthMax = std::int64_t{1} << 28;

// Parses lines "LABEL INDEX:VALUE INDEX:VALUE … # comment". Blank lines and comments are skipped,
// and so is "qid:N" in front of the indices. A line without indices is a row of zeros. `path` is
// for messages. O(bytes). Errors: kInvalidArgument with path and line: an index that is not a
// number, is not greater than the one before it, or exceeds the width; a value that is not a finite
// number; no rows at all.
Result<SvmlightData> ParseSvmlight(std::string_view path, std::string_view content,
                                   const SvmlightOptions& options = {});
// Parses the file at `path`. Blocks on the disk. Errors: those of ParseSvmlight; kNotFound;
// kResourceExhausted: more than 2 GiB.
Result<SvmlightData> ReadSvmlight(const std::string& path, const SvmlightOptions& options = {});

}  // namespace troop
