// Implements prediction of a file of texts, window by window.

#include "apps/deploy/predict_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>

#include "apps/deploy/text_answer_json.h"
#include "apps/deploy/text_file_reader.h"
#include "core/base/phase_progress.h"
#include "core/base/time.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "datasets/tokenizers/unicode.h"
#include "learners/supervised/bulk_predictor.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// A window ends at the first of these limits: enough texts for batches of similar lengths.
constexpr std::size_t kTextsOfWindow = 4096;
constexpr std::size_t kBytesOfWindow = std::size_t{32} << 20;

// A cell of RFC 4180.
std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

// Writes answers as rows of one format.
class AnswerWriter {
 public:
  AnswerWriter(const TextPredictor& predictor, bool csv, AppendFile* file)
      : predictor_(predictor), csv_(csv), file_(file) {}
  // Appends a row, and before the first one the header of a table.
  Status Write(const TextRow& row, const TextAnswer& answer) {
    std::string out;
    if (csv_ && !begun_) out = Header(row);
    begun_ = true;
    out += csv_ ? CsvRow(row, answer) : JsonRow(row, answer);
    return file_->Append(out);
  }

 private:
  // A masked LM has no problem type, and is written as JSON only.
  bool regression() const { return predictor_.problem() == ProblemType::kRegression; }
  bool many() const { return predictor_.problem() == ProblemType::kMultiLabel; }

  // The first row decides about pairs; all rows of a file are alike.
  std::string Header(const TextRow& row) const {
    std::vector<std::string> cells = {"text"};
    if (row.pair) cells.push_back("pair");
    cells.push_back(regression() ? "value" : many() ? "labels" : "label");
    for (const std::string& name : predictor_.class_names())
      cells.push_back(CsvCell("probability_" + name));
    return fmt::format("{},tokens,cut\n", fmt::join(cells, ","));
  }
  // Probabilities have six digits, which is more than the precision of f32 products over a text.
  std::string CsvRow(const TextRow& row, const TextAnswer& answer) const {
    std::vector<std::string> cells = {CsvCell(row.text)};
    if (row.pair) cells.push_back(CsvCell(*row.pair));
    // Empty cells keep the number of columns.
    if (answer.empty) {
      cells.resize(cells.size() + 1 + predictor_.class_names().size());
    } else if (regression()) {
      cells.push_back(fmt::format("{}", float(*answer.value)));
    } else {
      cells.push_back(CsvCell(many() ? fmt::format("{}", fmt::join(answer.labels(), "|"))
                                     : answer.best().name));
      for (const Likely& one : answer.classes)
        cells.push_back(fmt::format("{:.6g}", one.probability));
    }
    return fmt::format("{},{},{}\n", fmt::join(cells, ","), answer.tokens, answer.cut);
  }
  // The object of `troop predict --json`, so that both outputs have one reader.
  std::string JsonRow(const TextRow& row, const TextAnswer& answer) const {
    JsonObject json;
    json.Add("text", row.text);
    if (row.pair) json.Add("pair", *row.pair);
    AddTextAnswer(answer, predictor_, &json);
    return json.str() + "\n";
  }

  const TextPredictor& predictor_;
  const bool csv_;
  AppendFile* const file_;
  bool begun_ = false;
};

// Reads the next window; empty at the end. A text that exceeds the limit by itself is a window of
// one.
Status ReadWindow(TextFileReader* reader, std::vector<TextRow>* rows) {
  rows->clear();
  for (std::size_t bytes = 0; rows->size() < kTextsOfWindow && bytes < kBytesOfWindow;) {
    TextRow row;
    TROOP_ASSIGN_OR_RETURN(const bool there, reader->Next(&row));
    if (!there) break;
    bytes += row.text.size() + (row.pair ? row.pair->size() : 0);
    rows->push_back(std::move(row));
  }
  return Status::Ok();
}

// Folder and name of the output. Errors: see PredictFile.
Result<fs::path> CheckOutput(const TextPredictor& predictor, const PredictFileOptions& options) {
  std::error_code error;
  const fs::path output = fs::absolute(options.output, error);
  // The format follows from the name alone.
  const std::string kind = output.extension().string();
  if (kind != ".csv" && kind != ".jsonl") {
    return InvalidArgument("--output: {} ends in \"{}\", must end in .csv or .jsonl",
                           options.output, kind);
  }
  if (predictor.masked() && kind == ".csv") {
    return InvalidArgument("--output: {}: the tokens of a masked LM have no columns; use .jsonl",
                           options.output);
  }
  if (fs::equivalent(options.input, output, error)) {
    return InvalidArgument("--output: {} is the input; give another file", options.output);
  }
  return output;
}

}  // namespace

// Written under another name first, so that an output is always complete.
Result<PredictFileSummary> PredictFile(const TextPredictor& predictor,
                                       const PredictFileOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const fs::path output, CheckOutput(predictor, options));
  TROOP_ASSIGN_OR_RETURN(
      const auto reader,
      TextFileReader::Open(options.input, {.columns = options.text_columns,
                                           .delimiter = options.delimiter,
                                           .usual_columns = predictor.text_columns(),
                                           .usual_delimiter = predictor.delimiter()}));
  TROOP_ASSIGN_OR_RETURN(const auto folder, MakeDiskStorage(output.parent_path().string()));
  // The rest of an interrupted command is removed first.
  const std::string name = output.filename().string(), part = name + ".part";
  if (folder->Exists(part)) TROOP_RETURN_IF_ERROR(folder->Remove(part));
  TROOP_ASSIGN_OR_RETURN(const auto file, folder->OpenAppend(part));
  AnswerWriter writer(predictor, output.extension() == ".csv", file.get());
  // The kernels of each thread run on that thread, so one per core uses all of them.
  const int cores = int(std::max(1U, std::thread::hardware_concurrency()));
  BulkPredictor bulk(&predictor, options.threads > 0 ? options.threads : cores);
  PhaseProgress progress("predicting", "bytes", std::int64_t(reader->bytes()));
  const SystemClock clock;
  const Time begin = clock.Now();
  PredictFileSummary summary;
  std::vector<TextRow> rows;
  for (;;) {
    TROOP_RETURN_IF_ERROR(ReadWindow(reader.get(), &rows));
    if (rows.empty()) break;
    // Views into the window, which outlives the call.
    std::vector<TextInput> inputs;
    for (const TextRow& row : rows) {
      TROOP_RETURN_IF_ERROR(predictor.CheckForm(row.pair.has_value()).WithContext(options.input));
      inputs.push_back({row.text, row.pair});
      summary.damaged += !IsUtf8(row.text) || (row.pair && !IsUtf8(*row.pair));
    }
    TROOP_ASSIGN_OR_RETURN(const std::vector<TextAnswer> answers, bulk.Predict(inputs));
    // Written in the order of the file, whatever the order of the batches was.
    for (std::size_t i = 0; i < rows.size(); ++i) {
      TROOP_RETURN_IF_ERROR(writer.Write(rows[i], answers[i]));
      summary.tokens += answers[i].tokens;
      summary.empty += answers[i].empty;
      summary.truncated += answers[i].cut > 0;
    }
    summary.texts += std::int64_t(rows.size());
    progress.Show(std::int64_t(reader->bytes() - reader->bytes_left()));
  }
  // Durable before the rename, so that a crash leaves either the old output or the new one.
  TROOP_RETURN_IF_ERROR(file->Sync());
  TROOP_RETURN_IF_ERROR(folder->Rename(part, name));
  summary.seconds = ToSeconds(clock.Now() - begin);
  return summary;
}

}  // namespace troop
