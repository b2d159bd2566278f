#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace troop {

// Label of a review; the values are stored in token caches.
enum class Sentiment : std::int8_t { kNone = -1, kNegative = 0, kPositive = 1 };

struct Review {
  std::string text;
  Sentiment sentiment = Sentiment::kNone;
};

// The Large Movie Review Dataset (Maas et al. 2011), or a part of it. Reviews are in order of the
// files' numbers, positive before negative: every reader gives a review the same index.
struct Reviews {
  std::vector<Review> train, test, unlabeled;
};

// Reads the reviews at `path`:
//   a folder      aclImdb, unpacked: train/pos/0_9.txt …
//   *.tar.xz      an archive of that folder
//   *.csv         columns `review` and `sentiment` (positive, negative, 1 or 0): all in `train`
// If a file SHA256SUMS in the same folder lists the file, its checksum is verified first. Blocks on
// the disk; an archive of 50,000 reviews takes about 2 s. Errors are one
// line with the file, the expected content and the download address: kNotFound; kDataLoss;
// kInvalidArgument for other content.
Result<Reviews> ReadReviews(const std::string& path);

// True if the name is that of an archive or a .csv; other files are not read.
bool IsReviewFile(std::string_view path);

// True if `path` has separate test reviews, judged by its name and folders alone. A .csv and a
// folder without test/ have none; then a validation_split of the training reviews is used.
bool HasTestReviews(const std::string& path);

// Parsers of bytes in memory, for tests and fuzzing; their errors give no download address.
enum class Compression : std::uint8_t { kNone, kXz };
Result<Reviews> ReadReviewArchive(std::string_view bytes, Compression compression);
Result<Reviews> ReadReviewCsv(std::string_view csv);

// Verifies the checksum in SHA256SUMS of the file's folder. Ok if there is none, or none for this
// file. Errors: kDataLoss.
Status CheckSha256Sums(const std::string& path, std::string_view bytes);

}  // namespace troop
