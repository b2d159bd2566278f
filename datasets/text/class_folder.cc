// Implements the reader of folders of classes: sets and classes follow from the files' paths.

#include "datasets/text/class_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "core/base/log.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

constexpr std::array<std::string_view, 3> kSets = {"train", "validation", "test"};
// Classes of examples without label, as in aclImdb and in scikit-learn's folders.
constexpr std::array<std::string_view, 2> kUnlabeled = {"unsup", "unlabeled"};

// A path cut at its slashes: "data/train/spam/1.txt" is folder "data/", set "train", class "spam".
struct Parts {
  std::string_view folder, set, label;
};

// Name of the last folder, which is removed from *path with its slash.
std::string_view TakeLast(std::string_view* path) {
  const std::size_t slash = path->rfind('/');
  const std::string_view name = slash == path->npos ? *path : path->substr(slash + 1);
  *path = path->substr(0, slash == path->npos ? 0 : slash);
  return name;
}

// Reads the path from its end: file, class, set.
Parts PartsOf(std::string_view name) {
  TakeLast(&name);  // the file
  Parts parts{.label = TakeLast(&name)};
  // A folder that is not a set belongs to the common folder.
  const std::string_view whole = name;
  parts.set = TakeLast(&name);
  const bool known = std::ranges::find(kSets, parts.set) != kSets.end();
  parts.folder = known ? name : whole;
  if (!known) parts.set = {};
  return parts;
}

// Folders of classes alone are training examples.
std::vector<LabeledText>* SetOf(std::string_view set, LabeledTexts* texts) {
  if (set == "test") return &texts->test;
  return set == "validation" ? &texts->validation : &texts->train;
}

}  // namespace

// Keeps all texts: only the last file decides whether this is aclImdb.
Status ClassFolderCollector::Add(std::string name, std::string text) {
  if (!name.ends_with(".txt")) return Status::Ok();
  while (name.starts_with("./")) name.erase(0, 2);
  if (ReviewCollector::IsReview(name)) return reviews_.Add(name, std::move(text));
  files_.emplace_back(std::move(name), std::move(text));
  return Status::Ok();
}

// Reviews make the folder aclImdb, of which files elsewhere, such as README.txt, are not examples.
Result<LabeledTexts> ClassFolderCollector::Finish(ProblemType problem) {
  if (!reviews_.empty()) {
    // Another class or set next to those of aclImdb would be lost.
    for (const auto& [name, text] : files_) {
      const Parts parts = PartsOf(name);
      const bool of_reviews =
          parts.label == "pos" || parts.label == "neg" || parts.label == "unsup";
      if (parts.set.empty() || parts.label.empty() || (of_reviews && parts.set != "validation"))
        continue;
      return InvalidArgument(
          "{:?} is in another class or set than the reviews of aclImdb (train/pos/0_9.txt), as "
          "which the other files are named; rename those, or move it elsewhere",
          name);
    }
    return reviews_.Finish(problem);
  }
  if (problem == ProblemType::kRegression) {
    return InvalidArgument(
        "a regression needs numbers, but a folder has classes only; use a table (.csv, .jsonl)");
  }
  std::ranges::sort(files_);
  // One set folder decides for all: others are then not classes.
  const bool sets = std::ranges::any_of(
      files_, [](const auto& file) { return !PartsOf(file.first).set.empty(); });
  LabeledTexts texts;
  std::int64_t skipped = 0, damaged = 0, empty = 0;
  const std::string* first = nullptr;
  for (auto& [name, text] : files_) {
    const Parts parts = PartsOf(name);
    // A file next to the folders of classes, such as README.txt.
    if (parts.label.empty() || sets != !parts.set.empty()) {
      ++skipped;
      continue;
    }
    if (std::ranges::find(kSets, parts.label) != kSets.end()) {
      return InvalidArgument("{:?} is not in a folder of a class; expected {}/CLASS/*.txt", name,
                             parts.label);
    }
    if (first == nullptr) first = &name;
    if (parts.folder != PartsOf(*first).folder) {
      return InvalidArgument(
          "{:?} and {:?} are in folders of different depth; expected SET/CLASS/*.txt or "
          "CLASS/*.txt, with the sets train, validation and test",
          *first, name);
    }
    damaged += !IsUtf8(text);
    empty += text.find_first_not_of(" \t\r\n") == text.npos;
    LabeledText example{.text = std::move(text)};
    example.labeled = std::ranges::find(kUnlabeled, parts.label) == kUnlabeled.end();
    if (example.labeled) example.labels = {std::string(parts.label)};
    std::vector<LabeledText>* const to =
        example.labeled ? SetOf(parts.set, &texts) : &texts.unlabeled;
    to->push_back(std::move(example));
  }
  if (texts.size() == 0) {
    return InvalidArgument(
        "it has no examples; expected SET/CLASS/*.txt or CLASS/*.txt, with the sets train, "
        "validation and test");
  }
  const auto warn = [](std::int64_t count, const char* what) {
    if (count > 0) LogWarning("texts: {} {} {}", count, count == 1 ? "file" : "files", what);
  };
  warn(damaged,
       "not UTF-8: invalid bytes become U+FFFD; convert them, for example with iconv -f latin1 -t "
       "utf-8");
  warn(empty, "with an empty text, which are kept");
  warn(skipped, "outside the folders of classes, which are skipped");
  return texts;
}

}  // namespace troop
