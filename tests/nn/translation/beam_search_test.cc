// Beam search, against exhaustive search and greedy decoding on random tables.
#include "nn/translation/beam_search.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace troop {
namespace {

constexpr int kVocabulary = 4, kSources = 2, kLengthMax = 4;

// A model whose next-token probabilities are random functions of the whole prefix.
class RandomModel {
 public:
  explicit RandomModel(unsigned seed) : seed_(seed) {}

  // Log probabilities of the next token, and attention, after a prefix.
  std::pair<std::array<double, kVocabulary>, std::array<double, kSources>> After(
      const std::vector<std::int32_t>& prefix) const {
    std::size_t hash = seed_;
    for (const std::int32_t token : prefix) hash = hash * 31 + std::size_t(token) + 7;
    std::mt19937 random{unsigned(hash)};
    std::uniform_real_distribution<double> uniform(0.05, 1);
    std::pair<std::array<double, kVocabulary>, std::array<double, kSources>> next;
    double sum = 0;
    for (double& p : next.first) sum += p = uniform(random);
    for (double& p : next.first) p = double(float(std::log(p / sum)));
    next.second[0] = double(float(uniform(random)));
    next.second[1] = 1 - next.second[0];
    return next;
  }

  BeamModel Model() {
    return {kVocabulary, kSources, [this](const BeamStep& step) {
              std::vector<std::vector<std::int32_t>> next;
              for (std::size_t r = 0; r < step.tokens.size(); ++r) {
                std::vector<std::int32_t> prefix;
                if (!rows_.empty()) prefix = rows_[std::size_t(step.parents[r])];
                prefix.push_back(step.tokens[r]);
                const auto [log_p, attention] = After(prefix);
                for (std::size_t v = 0; v < kVocabulary; ++v)
                  step.log_probability[r * kVocabulary + v] = float(log_p[v]);
                for (std::size_t s = 0; s < kSources; ++s)
                  step.attention[r * kSources + s] = float(attention[s]);
                next.push_back(std::move(prefix));
              }
              rows_ = std::move(next);
            }};
  }

 private:
  const unsigned seed_;
  std::vector<std::vector<std::int32_t>> rows_;
};

// The best sequence of all that end, by eq. 14 written out.
struct Best {
  std::vector<std::int32_t> tokens;
  double score = -std::numeric_limits<double>::infinity();
};
void Exhaust(const RandomModel& model, const BeamOptions& o, std::vector<std::int32_t> prefix,
             double log_p, std::array<double, kSources> coverage, Best* best) {
  const auto [next, attention] = model.After(prefix);
  const auto length = double(prefix.size());  // of the translation with its end: begin counts
  for (std::size_t s = 0; s < kSources; ++s) coverage[s] += attention[s];
  double penalty = 0;
  for (const double c : coverage) penalty += std::log(std::min(c, 1.0));
  const double lp = std::pow(5 + length, o.length_penalty) / std::pow(6, o.length_penalty);
  const double score = (log_p + next[2]) / lp + o.coverage_penalty * penalty;
  if (score > best->score) *best = {{prefix.begin() + 1, prefix.end()}, score};
  if (prefix.size() == kLengthMax) return;
  for (int token = 0; token < kVocabulary; ++token) {
    if (token == 2) continue;
    std::vector<std::int32_t> longer = prefix;
    longer.push_back(token);
    Exhaust(model, o, longer, log_p + next[std::size_t(token)], coverage, best);
  }
}

TEST(BeamSearchTest, WideBeamFindsTheBestOfAllSequences) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const BeamOptions options{.beam = 1000,
                              .length_penalty = 0.25 * (seed % 5),
                              .coverage_penalty = 0.2 * (seed % 3),
                              .length_max = kLengthMax};
    RandomModel model(seed);
    Best best;
    Exhaust(model, options, {1}, 0, {}, &best);
    const Hypothesis found = BeamSearch(options, model.Model());
    EXPECT_EQ(found.tokens, best.tokens) << seed;
    EXPECT_NEAR(found.score, best.score, 1e-6) << seed;
    EXPECT_FALSE(found.cut);
  }
}

TEST(BeamSearchTest, BeamOfOneIsGreedy) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    RandomModel model(seed);
    std::vector<std::int32_t> greedy = {1};
    bool ended = false;
    while (!ended && greedy.size() <= kLengthMax) {
      const auto next = model.After(greedy).first;
      const auto token = std::int32_t(std::ranges::max_element(next) - next.begin());
      ended = token == 2;
      if (!ended) greedy.push_back(token);
    }
    greedy.erase(greedy.begin());
    const Hypothesis found = BeamSearch({.beam = 1, .length_max = kLengthMax}, model.Model());
    EXPECT_EQ(found.tokens, greedy) << seed;
    EXPECT_EQ(found.cut, !ended) << seed;
  }
}

// Probabilities that are not numbers must not be chosen, nor make an endless loop.
TEST(BeamSearchTest, DamagedProbabilitiesEndTheSearch) {
  const BeamModel model{kVocabulary, 1, [](const BeamStep& step) {
                          std::ranges::fill(step.log_probability, NAN);
                          std::ranges::fill(step.attention, 1.0f);
                        }};
  const Hypothesis found = BeamSearch({}, model);
  EXPECT_TRUE(found.cut);
  EXPECT_TRUE(found.tokens.empty());
}

// Wu et al. 2016, eq. 14, by hand: (5 + 7)² / 6² = 4, and log(0.5) of one source token.
TEST(BeamSearchTest, ScoreHasBothPenalties) {
  const BeamOptions options{.length_penalty = 2, .coverage_penalty = 3};
  const std::vector<float> coverage = {0.5f, 1.75f, 1};
  EXPECT_NEAR(BeamScore(options, -8, 7, coverage), -2 + 3 * std::log(0.5), 1e-12);
  const std::vector<float> none = {0};
  EXPECT_EQ(BeamScore({.length_penalty = 0, .coverage_penalty = 0}, -8, 7, none), -8);
}

}  // namespace
}  // namespace troop
