#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "datasets/text/labeled_texts.h"

namespace troop {

// Collects the Large Movie Review Dataset (Maas et al. 2011), or a part of it, from its files in
// any order: aclImdb/train/pos/0_9.txt is the training review 0, positive, with a rating of 9 of 10
// stars. One owner.
class ReviewCollector {
 public:
  // True if the name is that of a review; any folders may precede train/ and test/.
  static bool IsReview(std::string_view name);
  bool empty() const { return folders_.empty(); }
  // REQUIRES: IsReview(name). Errors: kDataLoss if the number occurs twice in a folder.
  Status Add(std::string_view name, std::string text);
  // Returns the reviews in order of the files' numbers, positive before negative: every source
  // gives a review the same index. Labels are "negative" and "positive", those of a regression the
  // ratings. Errors: kDataLoss: a number or a class is missing.
  Result<LabeledTexts> Finish(ProblemType problem);

 private:
  struct Review {
    std::string text;
    std::uint32_t rating = 0;
  };
  // Reviews by folder ("train/pos") and number.
  std::map<std::string_view, std::map<std::uint32_t, Review>> folders_;
  std::size_t damaged_ = 0;  // not UTF-8
  std::string first_damaged_;
};

// Address of the data set, for messages.
inline constexpr std::string_view kReviewsAddress =
    "download aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/, unpack it and "
    "give its folder aclImdb";

}  // namespace troop
