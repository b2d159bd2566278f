// Implements beam search with length and coverage penalties.

#include "nn/translation/beam_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

namespace troop {
namespace {

// A live hypothesis.
struct Live {
  std::vector<std::int32_t> tokens;
  double log_probability = 0;
  std::vector<float> coverage;  // [sources]
};

// An extension of a live hypothesis by one token.
struct Candidate {
  double log_probability = 0;
  std::int32_t parent = 0, token = 0;
  // Better ones first.
  bool operator<(const Candidate& other) const {
    return std::tuple(-log_probability, parent, token) <
           std::tuple(-other.log_probability, other.parent, other.token);
  }
};

// The `count` best extensions. A token whose probability is not a number is left out.
std::vector<Candidate> BestCandidates(const std::vector<Live>& live, std::span<const float> log_p,
                                      std::size_t count) {
  // Candidates are numbered row after row.
  const std::size_t vocabulary = log_p.size() / live.size();
  std::vector<Candidate> candidates;
  candidates.reserve(log_p.size());
  for (std::size_t i = 0; i < log_p.size(); ++i) {
    const std::size_t parent = i / vocabulary;
    if (!std::isnan(log_p[i]))
      candidates.push_back({live[parent].log_probability + double(log_p[i]), std::int32_t(parent),
                            std::int32_t(i % vocabulary)});
  }
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + std::ptrdiff_t(count),
                    candidates.end());
  candidates.resize(count);
  return candidates;
}

// Keeps the better one: an ended hypothesis before a cut one, then the higher score.
void Keep(Hypothesis hypothesis, std::optional<Hypothesis>* best) {
  const auto rank = [](const Hypothesis& h) { return std::pair(!h.cut, h.score); };
  if (!best->has_value() || rank(hypothesis) > rank(**best)) *best = std::move(hypothesis);
}

}  // namespace

double BeamScore(const BeamOptions& options, double log_probability, std::int64_t length,
                 std::span<const float> coverage) {
  double covered = 0;
  if (options.coverage_penalty != 0) {
    for (const float sum : coverage) covered += std::log(std::min(double(sum), 1.0));
  }
  // A source token without attention has log 0, which no weight should make a NaN.
  const double penalty = options.coverage_penalty == 0 ? 0 : options.coverage_penalty * covered;
  return log_probability / std::pow((5 + double(length)) / 6, options.length_penalty) + penalty;
}

// Steps of one iteration: 1. the model; 2. the best candidates; 3. those that end leave the beam.
Hypothesis BeamSearch(const BeamOptions& options, const BeamModel& model) {
  // The first step has one hypothesis without tokens.
  std::vector<Live> live = {{{}, 0, std::vector<float>(std::size_t(model.sources), 0.0f)}};
  std::vector<std::int32_t> parents = {0}, tokens = {options.begin};
  std::optional<Hypothesis> best;
  auto places = std::size_t(options.beam);
  std::vector<float> log_p, attention;
  for (std::int64_t length = 1; length <= options.length_max && !live.empty(); ++length) {
    log_p.resize(live.size() * std::size_t(model.vocabulary));
    attention.resize(live.size() * std::size_t(model.sources));
    model.step({parents, tokens, log_p, attention});
    // Attention of this step belongs to the token that it predicts.
    for (std::size_t r = 0; r < live.size(); ++r) {
      for (std::size_t i = 0; i < live[r].coverage.size(); ++i)
        live[r].coverage[i] += attention[r * live[r].coverage.size() + i];
    }
    // A candidate that ends or is cut takes its place out of the beam.
    std::vector<Live> next;
    parents.clear();
    tokens.clear();
    for (const Candidate& one : BestCandidates(live, log_p, places)) {
      const Live& parent = live[std::size_t(one.parent)];
      const bool ends = one.token == options.end, cut = !ends && length == options.length_max;
      Live extended{parent.tokens, one.log_probability, parent.coverage};
      if (!ends) extended.tokens.push_back(one.token);
      if (ends || cut) {
        const double score =
            BeamScore(options, extended.log_probability, length, extended.coverage);
        Keep({std::move(extended.tokens), extended.log_probability, score, cut}, &best);
        --places;
        continue;
      }
      parents.push_back(one.parent);
      tokens.push_back(one.token);
      next.push_back(std::move(extended));
    }
    live = std::move(next);
  }
  return best.value_or(Hypothesis{.cut = true});
}

}  // namespace troop
