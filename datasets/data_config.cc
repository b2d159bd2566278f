// Declares the config keys of the data set of a supervised run.
#include "datasets/data_config.h"

#include "core/config/config_visitor.h"
#include "datasets/text/labeled_texts.h"

namespace troop {
namespace {

// Keys of image classification. The order is that of the processing.
void VisitImageKeys(DataConfig& c, ConfigVisitor& v) {
  v.Visit({"data.images",
           "Image classifiers: folder of the labeled images: IDX files (MNIST's names), CIFAR-10 "
           "or CIFAR-100 in the binary version, or SET/CLASS/*.png, *.jpg with the sets train, "
           "validation and test, or CLASS/*.png."},
          c.images);
  v.Visit({"data.image_channels",
           "Channels to which images are converted: 1 (gray) or 3 (RGB); 0 means 3 if any file has "
           "colors, else 1.",
           Between(0, 3)},
          c.image_channels);
  v.Visit({.name = "data.image_resize",
           .doc = "How images get the size data.image_height x data.image_width: not at all, so "
                  "that all must have one size; stretched; or their largest centered part with the "
                  "same ratio of sides."},
          c.image_resize);
  v.Visit({"data.image_height", "Height of the resized images in pixels, with data.image_resize.",
           Between(0, 1 << 13)},
          c.image_height);
  v.Visit({"data.image_width", "Width of the resized images in pixels, with data.image_resize.",
           Between(0, 1 << 13)},
          c.image_width);
  // Changes in training.
  v.Visit({"data.image_padding",
           "Black pixels added on each side of a training image before its random crop.",
           Between(0, 1 << 10)},
          c.image_padding);
  v.Visit({"data.image_crop_height",
           "Height in pixels of the part that is cut from an image, at random in training and in "
           "the center in evaluation; 0 means its height.",
           Between(0, 1 << 13)},
          c.image_crop_height);
  v.Visit({"data.image_crop_width", "Width in pixels of that part; 0 means the width of the image.",
           Between(0, 1 << 13)},
          c.image_crop_width);
  v.Visit({"data.image_flip", "Probability with which a training image is mirrored horizontally.",
           Between(0, 1)},
          c.image_flip);
  v.Visit({"data.image_color_noise",
           "Standard deviation of the noise along the principal components of the training "
           "images' colors (Krizhevsky et al. 2012, sec. 4.1); RGB only, 0 means none.",
           Between(0, 10)},
          c.image_color_noise);
  v.Visit({"data.image_mean",
           "Mean per channel that is subtracted from pixels between 0 and 1; empty means 0."},
          c.image_mean);
  v.Visit({"data.image_deviation",
           "Standard deviation per channel by which pixels are divided; empty means 1."},
          c.image_deviation);
  v.Visit({"data.image_threads",
           "Threads of each learner that decode and change the images of the next updates while it "
           "computes; "
           "0 means that the learner does it itself. The images are the same for any number.",
           Between(0, 64)},
          c.image_threads);
  v.Visit({"data.image_cache_mb",
           "Memory of each process for decoded images, in MiB; PNG and JPEG files beyond it are "
           "decoded for each use, by the threads of data.image_threads.",
           Between(0, 1 << 24)},
          c.image_cache_mb);
}

}  // namespace

// Folders and archives have one text per file.
std::optional<bool> HasPairs(const DataConfig& config) {
  if (!config.text_columns.empty()) return config.text_columns.size() == 2;
  if (config.reviews.empty() || IsTextTable(config.reviews)) return std::nullopt;
  return false;
}

void VisitKeys(DataConfig& c, ConfigVisitor& v) {
  v.Visit({"data.reviews",
           "Supervised: source of the labeled examples: a folder SET/CLASS/*.txt or CLASS/*.txt "
           "(such as aclImdb), that folder as .tar.gz or .tar.xz, or a table (.csv, .tsv, .jsonl; "
           "also .gz or .xz)."},
          c.reviews);
  v.Visit({"data.validation",
           "Supervised: separate source of the validation examples; empty means those of "
           "data.reviews (data.validation_split)."},
          c.validation);
  v.Visit({"data.test",
           "Supervised: separate source of the test examples; empty means those of data.reviews "
           "(its set test, or data.test_split)."},
          c.test);
  v.Visit(
      {"data.unlabeled", "masked_lm: additional source of unlabeled examples; empty means none."},
      c.unlabeled);
  // Columns of tables.
  v.Visit({"data.text_columns",
           "Columns of a table that have the text, or the two texts of a pair; empty means known "
           "names: text, review, sentence; sentence1 and sentence2, premise and hypothesis. A "
           "classifier's run stores those that were found."},
          c.text_columns);
  v.Visit({"data.label_column",
           "Column of a table that has the label; empty means a known name: label, sentiment, "
           "class, rating."},
          c.label_column);
  v.Visit({"data.delimiter",
           "Character between the fields of a .csv or .tsv; empty means a comma or a tab, by the "
           "file's name. Folders and archives next to tables ignore the three keys of columns."},
          c.delimiter);
  v.Visit({"data.vocabulary",
           "Vocabulary file: a SentencePiece .model (ALBERT), tokenizer.json (Hugging Face's "
           "tokenizers), vocab.json with merges.txt next to it (byte-level BPE, RoBERTa), or under "
           "any other name BERT's vocab.txt, one token per line."},
          c.vocabulary);
  // Tokenization.
  v.Visit({"data.cased",
           "Keep case and accents; must match a vocab.txt or .model. A JSON file determines the "
           "case itself, and requires false."},
          c.cased);
  v.Visit(
      {"data.max_length",
       "Maximum sequence length in tokens, special tokens included; longer examples are truncated.",
       Between(3, 1 << 16)},
      c.max_length);
  v.Visit({.name = "data.truncation_side",
           .doc = "Side on which examples are truncated: the end (right), or the beginning (left), "
                  "which carries less of the sentiment (Sun et al. 2019, sec. 5.3)."},
          c.truncation_side);
  // Use of the examples.
  v.Visit({"data.word_dropout",
           "classifier: fraction of the tokens that training replaces with [MASK], chosen again in "
           "each epoch (Iyyer et al. 2015).",
           RightOpen(0, 1)},
          c.word_dropout);
  v.Visit(
      {"data.validation_split",
       "Fraction of the training examples that is kept for validation during training, stratified "
       "by class and selected with the run's seed; 0 validates on test examples.",
       RightOpen(0, 1)},
      c.validation_split);
  v.Visit({"data.test_split",
           "Fraction of the training examples that is kept for the test, selected like "
           "data.validation_split, before it; 0 means none.",
           RightOpen(0, 1)},
          c.test_split);
  v.Visit({"data.cache",
           "Folder in log.dir for tokenized examples and for features of linear models, reused by "
           "roles and later runs; empty disables it."},
          c.cache);
  VisitImageKeys(c, v);
}

}  // namespace troop
