#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "datasets/images/image_resize.h"
#include "datasets/tokenizers/tokenizer.h"

namespace troop {

class ConfigVisitor;

// The data set of a supervised run ([data]).
struct DataConfig {
  std::string reviews;           // labeled texts: a folder of classes, an archive or a table
  std::string validation, test;  // separate sources; empty: those of `reviews`
  std::vector<std::string> text_columns;  // of tables: one or two; empty: found by name
  std::string label_column;               // of tables; empty: found by name
  std::string delimiter;                  // of .csv and .tsv; empty: by the file's name
  std::string unlabeled;                  // additional examples for masked_lm; empty: none
  std::string vocabulary;                 // WordPiece file, or a SentencePiece .model
  bool cased = false;
  std::int64_t max_length = 256;  // maximum tokens per example
  TruncationSide truncation_side = TruncationSide::kRight;
  double word_dropout = 0;        // classifier: fraction of tokens masked in training
  double validation_split = 0;    // fraction of the training examples kept for validation
  double test_split = 0;          // fraction of the training examples kept for the test
  std::string cache = ".tokens";  // folder of tokenized data in log.dir; empty: none
  // Images instead of texts: their folder, their form, and the random changes in training.
  std::string images;
  std::int64_t image_channels = 0;  // 1 or 3; 0: as the files have
  ResizeRule image_resize = ResizeRule::kNone;
  std::int64_t image_height = 0, image_width = 0;            // with a resize rule
  std::int64_t image_padding = 0;                            // pixels on each side, before the crop
  std::int64_t image_crop_height = 0, image_crop_width = 0;  // 0: the whole image
  double image_flip = 0;                                     // probability of a horizontal flip
  double image_color_noise = 0;                     // standard deviation of AlexNet's noise
  std::vector<double> image_mean, image_deviation;  // per channel; empty: 0 and 1
  std::int64_t image_threads = 1;                   // make the images ahead of the step
  std::int64_t image_cache_mb = 16 << 10;           // bound of decoded images in memory
  bool operator==(const DataConfig&) const = default;
};
// True if the examples of a resolved config are pairs of texts; nullopt: not known, because
// text_columns of a table are not resolved.
std::optional<bool> HasPairs(const DataConfig& config);
// Declares the keys.
void VisitKeys(DataConfig& config, ConfigVisitor& visitor);

}  // namespace troop
