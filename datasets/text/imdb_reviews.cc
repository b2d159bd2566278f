// Recognizes the files of aclImdb, and checks that they are complete.

#include "datasets/text/imdb_reviews.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/log.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Position of a review: its set, class and number; and its rating.
struct Place {
  std::string_view folder;  // "train/pos"
  std::uint32_t number = 0, rating = 0;
};

// Folders of the data set (Maas et al. 2011). Their order is that of the reviews in a set.
constexpr std::string_view kFolders[] = {"train/pos", "train/neg", "test/pos", "test/neg",
                                         "train/unsup"};

// Parses "aclImdb/train/pos/12_9.txt"; nullopt: not a review.
std::optional<Place> PlaceOf(std::string_view name) {
  if (!name.ends_with(".txt")) return std::nullopt;
  const std::size_t slash = name.rfind('/');
  if (slash == name.npos) return std::nullopt;
  const std::string_view folder = name.substr(0, slash), file = name.substr(slash + 1);
  for (const std::string_view known : kFolders) {
    // Any prefix is allowed, but only whole folder names match.
    const bool same = folder == known;
    if (!same && !(folder.ends_with(known) && folder[folder.size() - known.size() - 1] == '/')) {
      continue;
    }
    Place place = {known};
    const char* const end = file.data() + file.size();
    const auto number = std::from_chars(file.data(), end, place.number);
    if (number.ec != std::errc() || *number.ptr != '_') return std::nullopt;
    // Other names after the number are accepted: only a regression needs the rating.
    std::from_chars(number.ptr + 1, end, place.rating);
    return place;
  }
  return std::nullopt;
}

// Checks the classes of a set: missing files at the end of one class are detected here only.
Status CheckClasses(std::string_view name, std::size_t positive, std::size_t all) {
  const std::size_t negative = all - positive;
  if (positive == negative) return Status::Ok();
  if (name == "train" && (positive == 0 || negative == 0)) {
    return DataLoss("{0}/{1} has no reviews and {0}/{2} has {3}; both classes are needed", name,
                    positive == 0 ? "pos" : "neg", positive == 0 ? "neg" : "pos", all);
  }
  LogWarning("reviews: {0}/pos has {1} and {0}/neg {2}; the published data set has 12500 each",
             name, positive, negative);
  return Status::Ok();
}

}  // namespace

bool ReviewCollector::IsReview(std::string_view name) { return PlaceOf(name).has_value(); }

Status ReviewCollector::Add(std::string_view name, std::string text) {
  const Place place = *PlaceOf(name);
  // Reported once per data set, not per review.
  if (!IsUtf8(text) && ++damaged_ == 1) {
    first_damaged_ = fmt::format("{}/{}_*.txt", place.folder, place.number);
  }
  Review review{std::move(text), place.rating};
  if (folders_[place.folder].emplace(place.number, std::move(review)).second) return {};
  return DataLoss("{} has two reviews with number {}", place.folder, place.number);
}

// The order depends on the numbers only, not on that of the source, so runs repeat.
Result<LabeledTexts> ReviewCollector::Finish(ProblemType problem) {
  LabeledTexts reviews;
  std::map<std::string_view, std::size_t> counts;
  if (problem != ProblemType::kRegression) reviews.names = {"negative", "positive"};
  for (const std::string_view folder : kFolders) {
    const auto found = folders_.find(folder);
    if (found == folders_.end()) continue;
    counts[folder] = found->second.size();
    const bool labeled = !folder.ends_with("unsup");
    std::vector<LabeledText>& set = !labeled                      ? reviews.unlabeled
                                    : folder.starts_with("train") ? reviews.train
                                                                  : reviews.test;
    // Numbers must be contiguous from 0: a gap is a missing file.
    std::uint32_t expected = 0;
    for (auto& [number, review] : found->second) {
      if (number != expected) {
        return DataLoss("{}/{}_*.txt is missing; expected numbers 0 to {}", folder, expected,
                        found->second.rbegin()->first);
      }
      ++expected;
      LabeledText example{.text = std::move(review.text), .labeled = labeled};
      if (labeled && problem == ProblemType::kRegression) {
        if (review.rating == 0) return DataLoss("{}/{}_*.txt has no rating", folder, number);
        example.labels = {std::to_string(review.rating)};
      } else if (labeled) {
        example.labels = {folder.ends_with("pos") ? "positive" : "negative"};
      }
      set.push_back(std::move(example));
    }
  }
  if (damaged_ > 0) {
    LogWarning(
        "reviews: {} {} not UTF-8 (first: {}); invalid bytes become U+FFFD; convert them, for "
        "example with iconv -f latin1 -t utf-8",
        damaged_, damaged_ == 1 ? "is" : "are", first_damaged_);
  }
  TROOP_RETURN_IF_ERROR(CheckClasses("train", counts["train/pos"], reviews.train.size()));
  TROOP_RETURN_IF_ERROR(CheckClasses("test", counts["test/pos"], reviews.test.size()));
  return reviews;
}

}  // namespace troop
