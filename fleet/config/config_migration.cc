// Implements the migration of configs of version 1: the table of renamed keys, and a scanner that
// finds their places in a TOML text.
#include "fleet/config/config_migration.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "fleet/config/config_keys.h"

namespace troop {
namespace {

// Sorted by the old name, for binary search. `[]` stands for the index of a list entry.
constexpr RenamedKey kRenamed[] = {
    {"actor.copies", "actor.insert_copies"},
    {"actor.epsilon_from", "actor.epsilon_initial"},
    {"actor.epsilon_to", "actor.epsilon_final"},
    {"actor.push_items", "actor.insert_batch_size"},
    {"actor.push_window", "actor.max_inflight_inserts"},
    {"actor.refresh_steps", "actor.weight_sync_steps"},
    {"data.holdout", "data.validation_split"},
    {"data.tokens_max", "data.max_length"},
    {"data.unlabelled", "data.unlabeled"},
    {"evaluator.solved_return", "evaluator.stop_at_return"},
    {"fleet.backoff_first_s", "fleet.backoff_initial_s"},
    {"fleet.dead_after_s", "fleet.heartbeat_timeout_s"},
    {"fleet.drain_s", "fleet.shutdown_grace_s"},
    {"fleet.elsewhere", "fleet.external_roles"},
    {"fleet.hung_after_s", "fleet.stall_timeout_s"},
    {"fleet.join_wait_s", "fleet.join_timeout_s"},
    {"inference.batch_max", "inference.max_batch_size"},
    {"inference.refresh_s", "inference.weight_sync_s"},
    {"inference.wait_s", "inference.batch_timeout_s"},
    {"kubernetes.grace_s", "kubernetes.termination_grace_s"},
    {"learner.agree_timeout_s", "learner.allreduce_timeout_s"},
    {"learner.epochs", "run.epochs"},
    {"learner.max_updates", "run.max_updates"},
    {"learner.micro_batch", "learner.micro_batch_size"},
    {"learner.nccl", "learner.nccl_library"},
    {"learner.target_update_steps", "learner.target_update_every_updates"},
    {"learner.total_steps", "run.total_steps"},
    {"mesh.shares", "mesh.batch_shares"},
    {"model.embedding", "model.embedding_size"},
    {"model.family", "model.architecture"},
    {"model.heads", "model.num_attention_heads"},
    {"model.hidden", "model.hidden_size"},
    {"model.intermediate", "model.intermediate_size"},
    {"model.layers", "model.num_hidden_layers"},
    {"model.positions", "model.max_position_embeddings"},
    {"model.recompute", "model.gradient_checkpointing"},
    {"model.vocabulary", "model.vocab_size"},
    {"optimizer.final_fraction", "optimizer.final_lr_fraction"},
    {"optimizer.warmup", "optimizer.warmup_ratio"},
    {"paramserver.codec", "paramserver.compression"},
    {"paramserver.codec_keep", "paramserver.topk_ratio"},
    {"paramserver.codec_threshold", "paramserver.strom_threshold"},
    {"paramserver.damp_stale", "paramserver.staleness_discount"},
    {"paramserver.fetch_every", "paramserver.pull_every"},
    {"replay.ack", "replay.durability"},
    {"replay.codec", "replay.compression"},
    {"replay.ratio_error", "replay.samples_per_insert_tolerance_rate"},
    {"replay.spill", "replay.spill_to_disk"},
    {"replay.tables[].codec", "replay.tables[].compression"},
    {"replay.tables[].ratio_error", "replay.tables[].samples_per_insert_tolerance_rate"},
};

// The part of a key before its last dot.
std::string_view SectionOf(std::string_view key) { return key.substr(0, key.rfind('.')); }
std::string_view LeafOf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// A replacement of the bytes [begin, end) of a text.
struct Edit {
  std::size_t begin, end;
  std::string text;
};

// Finds the keys of a TOML text and collects the edits that rename them. It follows strings,
// comments, arrays and inline tables, but does not validate values: the parser does.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // Returns false at the first place that is not TOML; see line().
  bool Scan() {
    while (SkipBlank(), at_ < text_.size()) {
      if (text_[at_] == '[' ? !ScanHeader() : !ScanLine()) return false;
      // Only blanks and a comment may follow an entry or a header on its line.
      SkipSpaces();
      if (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r' && text_[at_] != '#') {
        return false;
      }
    }
    return true;
  }
  std::size_t line() const {
    return 1 + std::size_t(std::ranges::count(text_.substr(0, at_), '\n'));
  }
  const std::vector<RenamedKey>& renamed() const { return renamed_; }
  // Returns the text with all edits applied.
  std::string Apply();

 private:
  // Bounds the recursion, because the text comes from outside.
  static constexpr int kDepthMax = 100;
  // Place of `key = value`; moved: it belongs into another section now.
  struct Entry {
    std::size_t begin = 0, end = 0;
    bool moved = false;
  };

  bool At(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  void SkipSpaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  // Skips whitespace, line ends and comments.
  void SkipBlank() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[at_])) == 0) {
        return;
      } else {
        ++at_;
      }
    }
  }
  bool ScanHeader();
  bool ScanLine();
  std::optional<std::string> ScanKey(std::size_t* leaf_begin);
  std::optional<Entry> ScanEntry(const std::string& path, int depth);
  bool ScanValue(const std::string& path, int depth);
  bool ScanInlineTable(const std::string& path, int depth);
  bool ScanArray(const std::string& path, int depth);
  bool ScanString();
  void Remove(const std::vector<Entry>& entries);

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string section_;                      // path of the current header
  std::optional<std::size_t> first_header_;  // its place
  std::vector<Edit> edits_;                  // in the order of the text
  std::vector<std::string> moved_;           // lines of the new section [run]
  std::vector<RenamedKey> renamed_;
};

// [section] or [[list]].
bool Scanner::ScanHeader() {
  if (!first_header_) first_header_ = at_;
  const bool list = At("[[");
  at_ += list ? 2 : 1;
  std::size_t leaf = 0;
  std::optional<std::string> path = ScanKey(&leaf);
  if (!path || !At(list ? "]]" : "]")) return false;
  at_ += list ? 2 : 1;
  section_ = *path + (list ? "[]" : "");
  return true;
}

// A key of one or more parts, `learner.gamma` or `learner."gamma"`; leaf_begin: place of the last
// part. Skips spaces around it.
std::optional<std::string> Scanner::ScanKey(std::size_t* leaf_begin) {
  std::string path;
  while (true) {
    SkipSpaces();
    *leaf_begin = at_;
    // Paths are compared without quotes: learner."gamma" and learner.gamma are one key.
    if (At("\"") || At("'")) {
      if (!ScanString()) return std::nullopt;
      path += text_.substr(*leaf_begin + 1, at_ - *leaf_begin - 2);
    } else {
      while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                    text_[at_] == '_' || text_[at_] == '-')) {
        ++at_;
      }
      if (at_ == *leaf_begin) return std::nullopt;
      path += text_.substr(*leaf_begin, at_ - *leaf_begin);
    }
    SkipSpaces();
    if (!At(".")) return path;
    path += '.';
    ++at_;
  }
}

// key = value, on a line of its section. A moved one takes the comment after it along.
bool Scanner::ScanLine() {
  const std::optional<Entry> entry = ScanEntry(section_, 0);
  if (!entry || !entry->moved) return entry.has_value();
  at_ = std::min(text_.find('\n', at_), text_.size());
  moved_.back() += text_.substr(entry->end, at_ - entry->end);
  edits_.push_back({entry->begin, std::min(at_ + 1, text_.size()), ""});
  return true;
}

// key = value, in the table `path`; depth: that of the inline table around it, or 0.
std::optional<Scanner::Entry> Scanner::ScanEntry(const std::string& path, int depth) {
  Entry entry{.begin = at_};
  std::size_t leaf = 0;
  const std::optional<std::string> key = ScanKey(&leaf);
  if (!key || !At("=")) return std::nullopt;
  std::size_t key_end = at_++;
  // Spaces before the equal sign stay outside the edit, so that columns keep their alignment.
  while (text_[key_end - 1] == ' ' || text_[key_end - 1] == '\t') --key_end;
  SkipSpaces();
  const std::string full = path.empty() ? *key : fmt::format("{}.{}", path, *key);
  const std::size_t value = at_;
  if (!ScanValue(full, depth)) return std::nullopt;
  entry.end = at_;
  // A file that states its version must state the current one afterwards.
  if (full == "version" && text_.substr(value, at_ - value) == "1") {
    edits_.push_back({value, at_, fmt::format("{}", kConfigVersion)});
  }
  const auto it = std::ranges::lower_bound(kRenamed, full, {}, &RenamedKey::before);
  if (it == std::end(kRenamed) || it->before != full) return entry;
  renamed_.push_back(*it);
  // Three cases: a new name in its section, a dotted key, or a move to the section [run].
  if (SectionOf(it->before) == SectionOf(it->after)) {
    edits_.push_back({leaf, key_end, std::string(LeafOf(it->after))});
  } else if (path.empty()) {  // a dotted key outside any section
    edits_.push_back({entry.begin, key_end, std::string(it->after)});
  } else {
    entry.moved = true;
    moved_.push_back(
        fmt::format("{}{}", LeafOf(it->after), text_.substr(key_end, entry.end - key_end)));
  }
  return entry;
}

// Removes the moved entries of an inline table, each with the comma after it; those after the last
// other entry with the commas before them.
void Scanner::Remove(const std::vector<Entry>& entries) {
  std::size_t kept = entries.size();  // one past the last entry that stays
  while (kept > 0 && entries[kept - 1].moved) --kept;
  for (std::size_t i = 0; i < kept; ++i) {
    if (entries[i].moved) edits_.push_back({entries[i].begin, entries[i + 1].begin, ""});
  }
  if (kept == entries.size()) return;
  const std::size_t begin = kept == 0 ? entries[0].begin : entries[kept - 1].end;
  edits_.push_back({begin, entries.back().end, ""});
}

// Scans past one value. A bare one ends at a delimiter; only its extent matters here.
bool Scanner::ScanValue(const std::string& path, int depth) {
  if (depth > kDepthMax || at_ >= text_.size()) return false;
  if (At("{")) return ScanInlineTable(path, depth + 1);
  if (At("[")) return ScanArray(path, depth + 1);
  if (At("\"") || At("'")) return ScanString();
  const std::size_t begin = at_;
  at_ = std::min(text_.find_first_of(",]}#\r\n", at_), text_.size());
  while (at_ > begin && (text_[at_ - 1] == ' ' || text_[at_ - 1] == '\t')) --at_;
  return at_ > begin;
}

// An entry that moves to [run] leaves no comma in the table, hence Remove at the end.
bool Scanner::ScanInlineTable(const std::string& path, int depth) {
  ++at_;
  std::vector<Entry> entries;
  while (SkipBlank(), !At("}")) {
    const std::optional<Entry> entry = ScanEntry(path, depth);
    if (!entry) return false;
    entries.push_back(*entry);
    SkipBlank();
    if (!At(",") && !At("}")) return false;
    if (At(",")) ++at_;
  }
  ++at_;
  Remove(entries);
  return true;
}

bool Scanner::ScanArray(const std::string& path, int depth) {
  ++at_;
  while (SkipBlank(), !At("]")) {
    if (!ScanValue(path + "[]", depth)) return false;
    SkipBlank();
    if (!At(",") && !At("]")) return false;
    if (At(",")) ++at_;
  }
  ++at_;
  return true;
}

// A basic or literal string, of one line or several.
bool Scanner::ScanString() {
  const char quote = text_[at_];
  const std::string triple(3, quote);
  const bool lines = At(triple);
  at_ += lines ? 3 : 1;
  while (at_ < text_.size()) {
    if (lines ? At(triple) : text_[at_] == quote) {
      at_ += lines ? 3 : 1;
      while (lines && At(std::string_view(&quote, 1))) ++at_;  // quotes at the end of the content
      return true;
    }
    if (!lines && text_[at_] == '\n') return false;
    // A backslash escapes the next byte in a basic string only, not in a literal one.
    at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
  }
  at_ = text_.size();
  return false;
}

// Copies the text with all edits, and inserts the new section at `place`.
std::string Scanner::Apply() {
  std::ranges::sort(edits_, {}, &Edit::begin);
  std::string run;
  if (!moved_.empty()) run = "[run]\n";
  for (const std::string& line : moved_) run += line + "\n";
  std::size_t place = first_header_.value_or(text_.size());
  // The section goes before the comment of the first header, but not before that of the file.
  while (!run.empty() && first_header_ && place > 0) {
    const std::size_t line = place < 2 ? 0 : text_.rfind('\n', place - 2) + 1;
    if (line == 0 || text_[line] != '#') break;
    place = line;
  }
  // A blank line separates the new section from its neighbor.
  if (!run.empty() && first_header_) run += "\n";
  if (!run.empty() && !first_header_) run = "\n" + run;
  std::string out;
  std::size_t from = 0;
  // Copies the text up to `to`, and the new section where this passes `place`.
  const auto copy = [&](std::size_t to) {
    if (from <= place && place < to) {
      out += text_.substr(from, place - from);
      out += std::exchange(run, "");
      from = place;
    }
    out += text_.substr(from, to - from);
  };
  // Edits are disjoint and sorted by place, so that one pass applies them all.
  for (const Edit& edit : edits_) {
    copy(edit.begin);
    out += edit.text;
    from = edit.end;
  }
  copy(text_.size());
  // The last line of the text may lack its line end.
  if (!run.empty() && !out.empty() && out.back() != '\n') out += '\n';
  return out + run;
}

}  // namespace

std::span<const RenamedKey> RenamedKeys() { return kRenamed; }

std::string_view CurrentKeyName(std::string_view key) {
  // Problems name an entry by its index, the table does not.
  std::string plain;  // without indices
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool index =
        i > 0 && std::isdigit(static_cast<unsigned char>(key[i])) != 0 && (plain.back() == '[');
    if (!index) plain += key[i];
  }
  const auto it = std::ranges::lower_bound(kRenamed, plain, {}, &RenamedKey::before);
  return it != std::end(kRenamed) && it->before == plain ? it->after : std::string_view();
}

std::string RenamedKeyHint(std::string_view key) {
  const std::string_view name = CurrentKeyName(key);
  if (name.empty()) return {};
  return fmt::format(
      "renamed in config version {}; use {} (`troop config migrate` rewrites a file)",
      kConfigVersion, name);
}

Result<MigratedConfig> MigrateConfig(std::string_view toml_text, std::string_view file_name) {
  Scanner scanner(toml_text);
  if (!scanner.Scan()) {
    return InvalidArgument("{}:{}: not TOML; nothing was changed", file_name, scanner.line());
  }
  return MigratedConfig{scanner.Apply(), scanner.renamed()};
}

}  // namespace troop
