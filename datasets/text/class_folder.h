#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "datasets/text/imdb_reviews.h"
#include "datasets/text/labeled_texts.h"

namespace troop {

// Collects the .txt files of a folder in which each class has its own folder (SET/CLASS/x.txt
// or CLASS/x.txt), or of aclImdb. One owner.
class ClassFolderCollector {
 public:
  // Adds a file by its path in the folder or archive. Errors: those of ReviewCollector.
  Status Add(std::string name, std::string text);
  // Returns the examples in order of their names. The first labels are the names of the folders.
  // Errors: those of ReviewCollector; kInvalidArgument: no examples, or folders of several depths;
  // problem: a regression has no classes.
  Result<LabeledTexts> Finish(ProblemType problem);

 private:
  ReviewCollector reviews_;
  std::vector<std::pair<std::string, std::string>> files_;  // name and text, of other files
};

}  // namespace troop
