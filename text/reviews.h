#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace troop {

enum class Sentiment : std::int8_t { kNone = -1, kNegative = 0, kPositive = 1 };

struct Review {
  std::string text;
  Sentiment sentiment = Sentiment::kNone;
};

// The Large Movie Review Dataset (Maas et al. 2011), or a part of it. The order is that of the
// files' numbers, positive before negative: a review's position is its index everywhere, whoever
// reads it.
struct Reviews {
  std::vector<Review> train, test, unlabelled;
};

// Reads what `path` names:
//   a folder      aclImdb, as it is unpacked: train/pos/0_9.txt …
//   *.tar.xz      that folder as an archive
//   *.csv         columns `review` and `sentiment` (positive, negative, 1 or 0): all is `train`
// Where a file SHA256SUMS beside it lists it, its checksum is compared first. Blocks on the disk;
// an archive of 50,000 reviews takes some 2 s and for a moment 0.2 GB. Errors are one line with the
// file, what was expected and where to get it: kNotFound; kDataLoss; kInvalidArgument where it is
// something else.
Result<Reviews> ReadReviews(const std::string& path);

// Whether its name is that of such an archive or .csv: what else is there is not read.
bool IsReviewFile(std::string_view path);

// Whether what `path` names has test reviews of its own, by its name and folders alone: a .csv and
// a folder without test/ have none, and reviews are held out of what is trained.
bool HasTestReviews(const std::string& path);

// The parts, for tests and fuzzing: bytes in memory, without advice in the errors.
Result<Reviews> ReadReviewArchive(std::string_view tar);
Result<Reviews> ReadReviewCsv(std::string_view csv);

// Compares with SHA256SUMS in the file's folder. Ok where there is none, or not this file in it.
// Errors: kDataLoss.
Status CheckSha256Sums(const std::string& path, std::string_view bytes);

}  // namespace troop
