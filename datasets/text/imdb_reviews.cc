// Reads the movie reviews from a folder, an archive or a CSV, and checks that they are complete.

#include "datasets/text/imdb_reviews.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/phase_progress.h"
#include "core/storage/list_folder.h"
#include "core/storage/read_file.h"
#include "core/storage/sha256.h"
#include "datasets/text/archive_reader.h"
#include "datasets/text/csv.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Limits that the published data set is far below; larger input is an error.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 30;     // size of an archive or a CSV
constexpr std::size_t kArchiveBytesMax = std::size_t{2} << 30;  // unpacked
// The longest published review has about 14 KB; this bounds the memory of a wrong file.
constexpr std::size_t kReviewBytesMax = std::size_t{1} << 24;
constexpr std::string_view kWhereToGet =
    "download aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/, unpack it and "
    "give its folder aclImdb";

// Position of a review: its set, class and number.
struct Place {
  std::string_view folder;  // "train/pos"
  std::uint32_t number = 0;
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
    const auto parsed = std::from_chars(file.data(), file.data() + file.size(), place.number);
    if (parsed.ec != std::errc() || *parsed.ptr != '_') return std::nullopt;
    return place;
  }
  return std::nullopt;
}

// Checks the classes of a set: missing files at the end of one class are detected here only.
Status CheckSentiments(std::string_view name, std::span<const Review> set) {
  const auto positive =
      std::size_t(std::ranges::count(set, Sentiment::kPositive, &Review::sentiment));
  const std::size_t negative = set.size() - positive;
  if (positive == negative) return Status::Ok();
  if (name == "train" && (positive == 0 || negative == 0)) {
    return DataLoss("{0}/{1} has no reviews and {0}/{2} has {3}; both classes are needed", name,
                    positive == 0 ? "pos" : "neg", positive == 0 ? "neg" : "pos", set.size());
  }
  LogWarning("reviews: {0}/pos has {1} and {0}/neg {2}; the published data set has 12500 each",
             name, positive, negative);
  return Status::Ok();
}

// Collects reviews in any order and sorts them by number.
class Collector {
 public:
  // Errors: kDataLoss if the number occurs twice in a folder.
  Status Add(const Place& place, std::string text) {
    // Reported once per data set, not per review.
    if (!IsUtf8(text) && ++damaged_ == 1) {
      first_damaged_ = fmt::format("{}/{}_*.txt", place.folder, place.number);
    }
    const bool added = folders_[place.folder].emplace(place.number, std::move(text)).second;
    if (added) return {};
    return DataLoss("{} has two reviews with number {}", place.folder, place.number);
  }

  // Builds the sets. The order depends on the numbers only, not on that of the source, so runs
  // repeat.
  Result<Reviews> Finish() {
    if (folders_.empty()) return InvalidArgument("it has no reviews (train/pos/0_9.txt …)");
    Reviews reviews;
    for (const std::string_view folder : kFolders) {
      const auto found = folders_.find(folder);
      if (found == folders_.end()) continue;
      const Sentiment sentiment = folder.ends_with("pos")   ? Sentiment::kPositive
                                  : folder.ends_with("neg") ? Sentiment::kNegative
                                                            : Sentiment::kNone;
      std::vector<Review>& set = sentiment == Sentiment::kNone ? reviews.unlabeled
                                 : folder.starts_with("train") ? reviews.train
                                                               : reviews.test;
      // Numbers must be contiguous from 0: a gap is a missing file.
      std::uint32_t expected = 0;
      for (auto& [number, text] : found->second) {
        if (number != expected) {
          return DataLoss("{}/{}_*.txt is missing; expected numbers 0 to {}", folder, expected,
                          found->second.rbegin()->first);
        }
        ++expected;
        set.push_back({std::move(text), sentiment});
      }
    }
    if (damaged_ > 0) {
      LogWarning(
          "reviews: {} {} not UTF-8 (first: {}); invalid bytes become U+FFFD; convert them, for "
          "example with iconv -f latin1 -t utf-8",
          damaged_, damaged_ == 1 ? "is" : "are", first_damaged_);
    }
    TROOP_RETURN_IF_ERROR(CheckSentiments("train", reviews.train));
    TROOP_RETURN_IF_ERROR(CheckSentiments("test", reviews.test));
    return reviews;
  }

 private:
  // Reviews by folder and number; the keys view kFolders.
  std::map<std::string_view, std::map<std::uint32_t, std::string>> folders_;
  std::size_t damaged_ = 0;  // not UTF-8
  std::string first_damaged_;
};

Result<Reviews> ReadReviewFolder(const std::string& path) {
  std::vector<std::string> names;
  for (const std::string_view folder : kFolders) {
    const fs::path inside = fs::path(path) / folder;
    // A folder may be missing; one that cannot be read completely is an error.
    const Result<std::vector<fs::path>> entries = ListFolder(inside.string());
    if (!entries.ok() && entries.status().code() != Code::kNotFound) return entries.status();
    for (const fs::path& entry : entries.ok() ? *entries : std::vector<fs::path>()) {
      std::string name = entry.generic_string();
      if (PlaceOf(name)) names.push_back(std::move(name));
    }
  }
  Collector collector;
  PhaseProgress progress("reading", "reviews", std::ssize(names));
  std::int64_t done = 0;
  for (const std::string& name : names) {
    TROOP_ASSIGN_OR_RETURN(std::string text, ReadFile(name, kReviewBytesMax));
    TROOP_RETURN_IF_ERROR(collector.Add(*PlaceOf(name), std::move(text)));
    progress.Show(++done);
  }
  return collector.Finish();
}

Result<Reviews> ReadAny(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return ReadReviewFolder(path);
  const bool csv = path.ends_with(".csv");
  if (!IsReviewFile(path) && fs::exists(path, error)) {
    return InvalidArgument("neither a folder nor a .tar.xz or .csv file");
  }
  TROOP_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kFileBytesMax));
  TROOP_RETURN_IF_ERROR(CheckSha256Sums(path, bytes));
  if (csv) return ReadReviewCsv(bytes);
  Result<Reviews> reviews = ReadReviewArchive(bytes, Compression::kXz);
  const Status& status = reviews.status();
  if (status.code() == Code::kDataLoss || status.code() == Code::kResourceExhausted) {
    return Status(status.code(),
                  fmt::format("{}; expected a complete .tar.xz of train/pos/0_9.txt and so on, "
                              "got {} bytes",
                              status.message(), bytes.size()));
  }
  return reviews;
}

// Finds the checksum in a SHA256SUMS file ("73a3…  aclImdb_labeled.tar.xz"); nullopt: none.
std::optional<std::string> ExpectedSha256(const std::string& path) {
  const fs::path file = path;
  const Result<std::string> sums =
      ReadFile((file.parent_path() / "SHA256SUMS").string(), std::size_t{1} << 20);
  if (!sums.ok()) return std::nullopt;
  // Lines of sha256sum: 64 hex digits, a space, a mode character (' ' or '*'), the name.
  const std::string name = file.filename().string();
  for (std::string_view rest = *sums; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    constexpr std::size_t kDigits = 64;
    if (line.size() > kDigits + 2 && line.substr(kDigits + 2) == name) {
      return std::string(line.substr(0, kDigits));
    }
  }
  return std::nullopt;
}

}  // namespace

// Only the texts of reviews are read; other files are skipped.
Result<Reviews> ReadReviewArchive(std::string_view bytes, Compression compression) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  TROOP_ASSIGN_OR_RETURN(ArchiveReader reader,
                         ArchiveReader::Make(bytes, {.xz = compression == Compression::kXz,
                                                     .bytes_max = kArchiveBytesMax,
                                                     .file_bytes_max = kReviewBytesMax}));
  PhaseProgress progress("unpacking", "MiB", std::int64_t(bytes.size() / kMiB));
  Collector collector;
  for (;;) {
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) return collector.Finish();
    progress.Show(std::int64_t(reader.position() / kMiB));
    const std::optional<Place> place = PlaceOf(reader.name());
    if (!place) continue;
    TROOP_ASSIGN_OR_RETURN(std::string text, reader.Read());
    TROOP_RETURN_IF_ERROR(collector.Add(*place, std::move(text)));
  }
}

// Reads a CSV with the columns review and sentiment, in any order and among others.
Result<Reviews> ReadReviewCsv(std::string_view csv) {
  CsvReader reader(csv);
  std::vector<std::string> fields;
  TROOP_ASSIGN_OR_RETURN(const bool header, reader.Next(&fields));
  // Index of a column; equal to the number of columns if it is missing.
  const auto column = [&fields](std::string_view name) {
    return std::size_t(std::find(fields.begin(), fields.end(), name) - fields.begin());
  };
  const std::size_t review = column("review"), sentiment = column("sentiment");
  const std::size_t columns = fields.size();
  if (!header || review == columns || sentiment == columns) {
    return InvalidArgument("its first line must name the columns review and sentiment");
  }
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  PhaseProgress progress("parsing", "MiB", std::int64_t(csv.size() / kMiB));
  Reviews reviews;
  // All rows become training reviews: a CSV has no split.
  for (;;) {
    progress.Show(std::int64_t((csv.size() - reader.bytes_left()) / kMiB));
    TROOP_ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) break;
    if (fields.size() != columns) {
      return DataLoss("line {}: {} fields, expected {}", reader.line(), fields.size(), columns);
    }
    if (!IsUtf8(fields[review])) {
      return InvalidArgument(
          "line {}: the review is not UTF-8; convert the file, for example with "
          "iconv -f latin1 -t utf-8",
          reader.line());
    }
    const std::string& said = fields[sentiment];
    const bool positive = said == "positive" || said == "1";
    if (!positive && said != "negative" && said != "0") {
      return InvalidArgument("line {}: sentiment {:?} must be positive, negative, 1 or 0",
                             reader.line(), said.substr(0, 40));
    }
    reviews.train.push_back(
        {std::move(fields[review]), positive ? Sentiment::kPositive : Sentiment::kNegative});
  }
  if (reviews.train.empty()) return InvalidArgument("it has no reviews");
  return reviews;
}

// A file without a SHA256SUMS next to it passes: the checksum is optional.
Status CheckSha256Sums(const std::string& path, std::string_view bytes) {
  const std::optional<std::string> expected = ExpectedSha256(path);
  if (!expected) return {};
  const std::string found = Sha256Hex(bytes);
  if (found == *expected) return {};
  return DataLoss("it is damaged: {} bytes with SHA-256 {}, expected {} (SHA256SUMS)", bytes.size(),
                  found, *expected);
}

bool IsReviewFile(std::string_view path) {
  return path.ends_with(".tar.xz") || path.ends_with(".csv");
}

// Answers without reading the reviews: archives have a test set, a CSV has
// none.
bool HasTestReviews(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return fs::is_directory(fs::path(path) / "test", error);
  return !path.ends_with(".csv");
}

// Adds the path, the expected checksum and the place of download to errors.
Result<Reviews> ReadReviews(const std::string& path) {
  Result<Reviews> reviews = ReadAny(path);
  if (reviews.ok()) return reviews;
  const Status status = reviews.status();
  std::string message = status.message();
  if (status.code() == Code::kNotFound) {
    if (const auto sum = ExpectedSha256(path)) message += " (expected SHA-256 " + *sum + ")";
  }
  if (message.find(path) == message.npos) message = path + ": " + message;
  // A user's own .csv is not the published data set: a download address would not help.
  const bool own =
      path.ends_with(".csv") && status.code() != Code::kNotFound && !ExpectedSha256(path);
  return Status(status.code(),
                own ? "reviews: " + message : fmt::format("reviews: {}; {}", message, kWhereToGet));
}

}  // namespace troop
