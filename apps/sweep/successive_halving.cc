// Implements asynchronous successive halving.
#include "apps/sweep/successive_halving.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/config/config_visitor.h"

namespace troop {
namespace {

// The budgets of all rungs. Integers only: a rounded logarithm could lose the top rung.
std::vector<std::int64_t> ResourcesOf(const HalvingSettings& s) {
  std::vector<std::int64_t> resources;
  std::int64_t resource = s.min_resource;
  for (std::int64_t exponent = 0; resource <= s.max_resource; ++exponent) {
    if (exponent >= s.early_stopping_rate) resources.push_back(resource);
    // Compared by division, as the product could overflow.
    if (resource > s.max_resource / s.reduction_factor) break;
    resource *= s.reduction_factor;
  }
  return resources;
}

}  // namespace

// The limits keep all products within 64 bits. A reduction factor of 1 would never end.
Status CheckHalving(const HalvingSettings& s) {
  const auto many = std::int64_t(kConfigMany);
  if (s.min_resource < 1 || s.min_resource > many) {
    return InvalidArgument("--min-resource is {}, must be from 1 to {}", s.min_resource, many);
  }
  if (s.reduction_factor < 2 || s.reduction_factor > 1000) {
    return InvalidArgument("--reduction-factor is {}, must be from 2 to 1000", s.reduction_factor);
  }
  if (s.early_stopping_rate < 0) {
    return InvalidArgument("--early-stopping-rate is {}, must be at least 0",
                           s.early_stopping_rate);
  }
  if (ResourcesOf(s).size() < 2) {
    return InvalidArgument(
        "--asha {} has fewer than two rungs: {} times {} to the power of {} exceeds the budget of "
        "{}; lower --min-resource, --reduction-factor or --early-stopping-rate, or raise {}",
        EnumName(s.resource), s.min_resource, s.reduction_factor, s.early_stopping_rate + 1,
        s.max_resource,
        s.resource == HalvingResource::kSteps ? "run.total_steps" : "run.max_updates");
  }
  return Status::Ok();
}

SuccessiveHalving::SuccessiveHalving(const HalvingSettings& settings, std::size_t trials)
    : reduction_factor_(settings.reduction_factor),
      trials_(trials),
      resources_(ResourcesOf(settings)),
      rungs_(resources_.size()) {
  TROOP_CHECK(CheckHalving(settings).ok(), "{}", CheckHalving(settings).message());
}

// top_k of the paper with k = floor(n / eta), then the trials that were not promoted.
std::optional<std::size_t> SuccessiveHalving::PromotableIn(std::size_t rung) const {
  std::vector<Completed> ranked = rungs_[rung];
  // A failed trial ranks below every score. Equal scores: the order must not depend on the sort.
  const auto better = [](const Completed& a, const Completed& b) {
    constexpr double kWorst = -std::numeric_limits<double>::infinity();
    const bool failed_a = !a.score, failed_b = !b.score;
    if (failed_a != failed_b) return failed_b;
    const double score_a = a.score.value_or(kWorst), score_b = b.score.value_or(kWorst);
    return score_a != score_b ? score_a > score_b : a.trial < b.trial;
  };
  std::ranges::sort(ranked, better);
  const std::size_t top = ranked.size() / std::size_t(reduction_factor_);
  for (std::size_t i = 0; i < top; ++i) {
    if (!ranked[i].promoted && ranked[i].score) return ranked[i].trial;
  }
  return std::nullopt;
}

// Promotions come first, from the highest rung down. The top rung has none.
std::optional<SuccessiveHalving::Job> SuccessiveHalving::NextJob() const {
  for (std::size_t rung = rungs_.size() - 1; rung-- > 0;) {
    if (const auto trial = PromotableIn(rung)) return Job{*trial, rung + 1};
  }
  if (begun_ < trials_) return Job{begun_, 0};
  return std::nullopt;
}

// A promotion is final when it starts, also if better trials complete its rung later.
void SuccessiveHalving::Begin(const Job& job) {
  TROOP_CHECK(NextJob() == job, "trial {} does not start in rung {} now", job.trial, job.rung);
  if (job.rung == 0) {
    ++begun_;
  } else {
    std::ranges::find(rungs_[job.rung - 1], job.trial, &Completed::trial)->promoted = true;
  }
  open_.push_back(job);
}

void SuccessiveHalving::End(const Job& job, std::optional<double> score) {
  TROOP_CHECK(std::erase(open_, job) == 1, "trial {} is not trained in rung {}", job.trial,
              job.rung);
  // NaN has no order, so it must not reach the ranking.
  if (score && std::isnan(*score)) score.reset();
  rungs_[job.rung].push_back({.trial = job.trial, .score = score});
  resource_used_ += resources_[job.rung] - (job.rung > 0 ? resources_[job.rung - 1] : 0);
}

}  // namespace troop
