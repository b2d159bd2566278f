#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "datasets/text/labeled_texts.h"

namespace troop {

// Columns of a table: one text or a pair, and the label ("": not read).
struct TextColumns {
  std::vector<std::string> texts;
  std::string label;
};

// Known names of one text or a pair, in the order in which ChooseTextColumns prefers them.
std::span<const std::vector<std::string>> KnownTextColumns();

// Chooses the columns of a table that has the columns `names`: those of `format`, else by name:
//   texts   premise and hypothesis; sentence1 and sentence2; text_a and text_b; text and text_pair;
//           question1 and question2; text; review; sentence. The first that exist.
//   label   label, labels, sentiment, class, category, target, rating, score. Only one may exist.
// Errors: kInvalidArgument with the columns that exist, and the remedy.
Result<TextColumns> ChooseTextColumns(std::span<const std::string> names, const TextFormat& format);

// Names of the columns of a table: its header, or the keys of its first object. Errors: as
// ReadTextTable.
Result<std::vector<std::string>> ColumnsOfTable(std::string_view content, TextSourceKind kind,
                                                const TextFormat& format);

// Reads a table of examples. `path` is for log lines only.
//   .csv, .tsv   the first row names the columns; fields as CsvReader reads them; every row must
//                have as many. A label without text is missing, or (multi-label) no class.
//   .jsonl       an object per line; blank lines are skipped. A text is a string or null (empty).
//                A label is a string, number or boolean; multi-label: a list of them; null or
//                absent: missing.
// Labels lose spaces at both ends. A multi-label string is split at "|". Rows with an empty text
// or text that is not UTF-8 are kept, those without label too (labeled = false); all are counted
// in a log line with the first line numbers. Errors: kDataLoss and kInvalidArgument with the line.
Result<LabeledTexts> ReadTextTable(const std::string& path, std::string_view content,
                                   TextSourceKind kind, const TextFormat& format);

}  // namespace troop
