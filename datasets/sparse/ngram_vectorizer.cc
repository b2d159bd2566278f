// Implements n-grams of words and characters, their vocabulary and their weighting.

#include "datasets/sparse/ngram_vectorizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "datasets/sparse/svmlight.h"
#include "datasets/tokenizers/unicode.h"

namespace troop {
namespace {

// Words or characters of a text, whose n-grams are substrings of `text`: unit i begins at
// begins[i] and ends before ends[i].
struct Units {
  std::string text;
  std::vector<std::size_t> begins, ends;
  void Add(std::size_t begin, std::size_t end) {
    begins.push_back(begin);
    ends.push_back(end);
  }
};

// Calls use(n-gram) for each n-gram, the shortest ones first. No memory is allocated, since most
// n-grams of a text are only hashed.
template <class Use>
void ForEachNgram(const Units& units, const NgramOptions& options, const Use& use) {
  const std::string_view text = units.text;
  const std::size_t count = units.begins.size();
  for (auto n = std::size_t(options.ngram_min); n <= std::size_t(options.ngram_max); ++n) {
    for (std::size_t i = 0; i + n <= count; ++i)
      use(text.substr(units.begins[i], units.ends[i + n - 1] - units.begins[i]));
  }
}

// True if no byte begins or continues a longer character.
bool IsAscii(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

// The text in lower case; most texts are ASCII, which needs no table.
std::string Lower(std::string_view text) {
  if (!IsAscii(text)) return ToUtf8(LowerCase(ToUtf32(text)));
  std::string lower(text);
  for (char& c : lower) c = char(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return lower;
}

// \w of Python: str.isalnum() or an underscore.
bool IsWordChar(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  return (CharFlagsOf(c) & (kCharLetter | kCharNumber)) != 0;
}

// str.isspace(), which Python's \s is too.
bool IsSpace(char32_t c) { return (CharFlagsOf(c) & kCharSpace) != 0; }

// Runs of at least `length_min` word characters, joined by single spaces.
Units WordsOf(std::string_view text, std::int64_t length_min) {
  Units units;
  units.text.reserve(text.size());
  std::size_t begin = 0;
  std::int64_t characters = 0;
  const auto end_word = [&](std::size_t end) {
    if (characters >= length_min && characters > 0) {
      if (!units.text.empty()) units.text += ' ';
      const std::size_t at = units.text.size();
      units.text += text.substr(begin, end - begin);
      units.Add(at, units.text.size());
    }
    characters = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const char32_t c = DecodeUtf8(text, &at);
    if (!IsWordChar(c)) {
      end_word(here);
      continue;
    }
    if (characters++ == 0) begin = here;
  }
  end_word(text.size());
  return units;
}

// All characters, where two or more spaces in a row become one.
Units CharactersOf(std::string_view text) {
  Units units;
  std::size_t spaces = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, &at);
    spaces = IsSpace(c) ? spaces + 1 : 0;
    if (spaces > 1) {  // replaces the first of them too
      units.text.resize(units.begins.back());
      units.ends.pop_back();
      units.begins.pop_back();
    }
    const std::size_t begin = units.text.size();
    AppendUtf8(spaces > 1 ? U' ' : c, &units.text);
    units.Add(begin, units.text.size());
  }
  return units;
}

// The characters of a word with a space at both ends. A word shorter than n gives itself once.
template <class Use>
void ForEachWordNgram(const Units& word, const NgramOptions& options, const Use& use) {
  const std::size_t count = word.begins.size();
  for (auto n = std::size_t(options.ngram_min); n <= std::size_t(options.ngram_max); ++n) {
    // Longer n-grams would repeat the word.
    if (count <= n) return use(std::string_view(word.text));
    for (std::size_t i = 0; i + n <= count; ++i)
      use(std::string_view(word.text).substr(word.begins[i],
                                             word.ends[i + n - 1] - word.begins[i]));
  }
}

// Splits at white space, as str.split().
template <class Use>
void ForEachPaddedWord(std::string_view text, const Use& use) {
  Units word;
  const auto add = [&word](char32_t c) {
    const std::size_t begin = word.text.size();
    AppendUtf8(c, &word.text);
    word.Add(begin, word.text.size());
  };
  const auto end_word = [&] {
    if (!word.text.empty()) {
      add(U' ');
      use(word);
    }
    word = Units();
  };
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = DecodeUtf8(text, &at);
    if (IsSpace(c)) {
      end_word();
      continue;
    }
    if (word.text.empty()) add(U' ');
    add(c);
  }
  end_word();
}

// Calls use(n-gram) for all n-grams of a text.
template <class Use>
void ForEachTerm(std::string_view raw, const NgramOptions& options, const Use& use) {
  const std::string text = options.lowercase ? Lower(raw) : std::string(raw);
  switch (options.analyzer) {
    case NgramAnalyzer::kWord:
      return ForEachNgram(WordsOf(text, options.word_length_min), options, use);
    case NgramAnalyzer::kChar:
      return ForEachNgram(CharactersOf(text), options, use);
    case NgramAnalyzer::kCharWb:
      return ForEachPaddedWord(text,
                               [&](const Units& word) { ForEachWordNgram(word, options, use); });
  }
}

// Column of a hashed n-gram: the absolute value of the signed hash, as in scikit-learn.
// Two n-grams of one column are not separated, which costs little accuracy.
std::int32_t HashedColumn(std::string_view term, std::int64_t width) {
  const auto hash = static_cast<std::int32_t>(MurmurHash3(term));
  return std::int32_t(std::abs(std::int64_t(hash)) % width);
}

// The errors that do not depend on texts.
Status CheckOptions(const NgramOptions& options) {
  if (options.ngram_min < 1 || options.ngram_max < options.ngram_min) {
    return InvalidArgument("ngram_range is [{}, {}], must be two numbers of 1 or more in order",
                           options.ngram_min, options.ngram_max);
  }
  if (options.n_features < 0 || options.n_features > kSparseWidthMax) {
    return InvalidArgument("n_features is {}, must be from 0 to {}", options.n_features,
                           kSparseWidthMax);
  }
  return Status::Ok();
}

}  // namespace

// One pass over the texts for a vocabulary, and one for document frequencies.
Result<NgramVectorizer> NgramVectorizer::Fit(const NgramOptions& options,
                                             std::span<const std::string_view> texts) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  NgramVectorizer made(options);
  made.width_ = options.n_features;
  if (options.n_features == 0) TROOP_RETURN_IF_ERROR(made.LearnVocabulary(texts));
  if (options.use_idf) made.LearnFrequencies(texts);
  return made;
}

// Every check is one that Fit's results pass.
Result<NgramVectorizer> NgramVectorizer::Restore(const NgramOptions& options,
                                                 std::vector<std::string> terms,
                                                 std::vector<float> idf) {
  TROOP_RETURN_IF_ERROR(CheckOptions(options));
  const bool hashed = options.n_features > 0;
  if (terms.empty() != hashed || std::ssize(terms) > kSparseWidthMax) {
    return InvalidArgument(
        "there are {} terms, must be {}", terms.size(),
        hashed ? "none, since n-grams are hashed" : fmt::format("from 1 to {}", kSparseWidthMax));
  }
  const auto wrong = std::ranges::adjacent_find(terms, std::greater_equal<>());
  if (wrong != terms.end()) {
    return InvalidArgument("term {} is not greater than the one before it",
                           wrong - terms.begin() + 2);
  }
  NgramVectorizer made(options);
  made.width_ = hashed ? options.n_features : std::ssize(terms);
  if (std::ssize(idf) != (options.use_idf ? made.width_ : 0)) {
    return InvalidArgument("there are {} idf values for {} columns, use_idf is {}", idf.size(),
                           made.width_, options.use_idf);
  }
  if (!std::ranges::all_of(idf, [](float x) { return std::isfinite(x); }))
    return InvalidArgument("an idf value is not finite");
  made.terms_ = std::move(terms);
  made.idf_ = std::move(idf);
  made.IndexTerms();
  return made;
}

// Inserted in column order, so that the ids are the columns.
void NgramVectorizer::IndexTerms() {
  for (const std::string& term : terms_) columns_.Insert(term);
}

// Counts the texts of each n-gram; columns are in the order of the terms' bytes.
Status NgramVectorizer::LearnVocabulary(std::span<const std::string_view> texts) {
  struct Seen {
    std::int64_t texts = 0, last = -1;
  };
  TermTable table;
  std::vector<Seen> seen;  // by the id of the term
  for (std::size_t i = 0; i < texts.size(); ++i) {
    ForEachTerm(texts[i], options_, [&](std::string_view term) {
      const auto id = std::size_t(table.Insert(term));
      if (id == seen.size()) seen.emplace_back();
      if (std::exchange(seen[id].last, std::int64_t(i)) != std::int64_t(i)) ++seen[id].texts;
    });
  }
  for (std::size_t id = 0; id < seen.size(); ++id) {
    if (seen[id].texts >= options_.min_df) terms_.emplace_back(table.term(std::int32_t(id)));
  }
  if (terms_.empty()) {
    return InvalidArgument("the {} texts have no n-gram that occurs in {} of them; lower min_df",
                           texts.size(), options_.min_df);
  }
  if (std::ssize(terms_) > kSparseWidthMax) {
    return InvalidArgument("the texts have {} n-grams, at most {} are supported; raise min_df",
                           terms_.size(), kSparseWidthMax);
  }
  std::ranges::sort(terms_);
  width_ = std::ssize(terms_);
  IndexTerms();
  return Status::Ok();
}

// The smoothed inverse document frequency, as if one more text had every n-gram.
void NgramVectorizer::LearnFrequencies(std::span<const std::string_view> texts) {
  std::vector<std::int64_t> frequency(std::size_t(width_), 0);
  std::vector<std::int32_t> columns;
  for (const std::string_view text : texts) {
    Columns(text, &columns);
    const auto rest = std::ranges::unique(columns);
    columns.erase(rest.begin(), rest.end());
    for (const std::int32_t column : columns) ++frequency[std::size_t(column)];
  }
  for (const std::int64_t texts_of : frequency)
    idf_.push_back(float(std::log(double(1 + texts.size()) / double(1 + texts_of)) + 1));
}

// The columns of all n-grams of a text, sorted, each as often as it occurs.
void NgramVectorizer::Columns(std::string_view text, std::vector<std::int32_t>* columns) const {
  columns->clear();
  ForEachTerm(text, options_, [&](std::string_view term) {
    if (options_.n_features > 0) return columns->push_back(HashedColumn(term, width_));
    if (const std::int32_t column = columns_.Find(term); column >= 0) columns->push_back(column);
  });
  std::ranges::sort(*columns);
}

// Steps: counts, weights in f64, norm.
void NgramVectorizer::Transform(std::string_view text, SparseRows* rows) const {
  std::vector<std::int32_t> columns;
  Columns(text, &columns);
  std::vector<double> values;
  double squares = 0;
  for (std::size_t i = 0, next = 0; i < columns.size(); i = next) {
    while (next < columns.size() && columns[next] == columns[i]) ++next;
    double value = options_.binary ? 1 : double(next - i);
    if (options_.sublinear_tf) value = 1 + std::log(value);
    if (options_.use_idf) value *= double(idf_[std::size_t(columns[i])]);
    squares += value * value;
    values.push_back(value);
    rows->columns.push_back(columns[i]);
  }
  // A row of zeros keeps its norm.
  const double scale = options_.norm == RowNorm::kL2 && squares > 0 ? 1 / std::sqrt(squares) : 1;
  for (const double value : values) rows->values.push_back(float(value * scale));
  rows->EndRow();
}

}  // namespace troop
