// Implements the names of metrics of earlier versions.
#include "fleet/run/metric_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troop {
namespace {

struct RenamedMetric {
  std::string_view before, after;
};

// Sorted by the old name. No old name has a new meaning.
constexpr RenamedMetric kRenamed[] = {
    {"actor/bad_numbers", "actor/nonfinite_values"},
    {"actor/bad_weights", "actor/nonfinite_weights"},
    {"actor/blocked", "actor/insert_blocked"},
    {"actor/length_sum", "actor/episode_len_sum"},
    {"actor/return_sum", "actor/episode_return_sum"},
    {"actor/suspect_numbers", "actor/suspect_values"},
    {"actor/unacked_pushes", "actor/inflight_inserts"},
    {"evaluator/bad_numbers", "evaluator/nonfinite_values"},
    {"evaluator/bad_weights", "evaluator/nonfinite_weights"},
    {"evaluator/return_mean", "evaluator/episode_return_mean"},
    {"inference/bad_weights", "inference/nonfinite_weights"},
    {"inference/refused", "inference/rejected_requests"},
    {"inference/waiting", "inference/waiting_requests"},
    {"learner/agree_s", "learner/allreduce_wait_s"},
    {"learner/busy_share", "learner/busy_fraction"},
    {"learner/gradient_norm", "learner/grad_norm"},
    {"learner/q", "learner/q_mean"},
    {"learner/td_error", "learner/td_error_mean"},
    {"learner/travel_s", "learner/allreduce_s"},
    {"paramserver/leases_ended", "paramserver/leases_expired"},
    {"paramserver/old_publishes", "paramserver/publishes_rejected_old"},
    {"paramserver/pushes_late", "paramserver/pushes_rejected_late"},
    {"paramserver/pushes_outliers", "paramserver/pushes_rejected_outlier"},
    {"paramserver/pushes_repeated", "paramserver/pushes_duplicate"},
    {"paramserver/pushes_too_old", "paramserver/pushes_rejected_stale"},
    {"paramserver/refused", "paramserver/rejected_requests"},
    {"replay/parked_inserts", "replay/waiting_inserts"},
    {"replay/parked_samples", "replay/waiting_samples"},
    {"replay/refused_priorities", "replay/rejected_priorities"},
    {"replay/refused_requests", "replay/rejected_requests"},
    {"replay/rejected", "replay/rejected_items"},
    {"replay/repeated", "replay/duplicate_items"},
    {"run/train_length", "run/episode_len_mean"},
    {"run/train_return", "run/episode_return_mean"},
    {"train_length", "episode_len_mean"},
    {"train_return", "episode_return_mean"},
};

}  // namespace

std::string_view CurrentMetricName(std::string_view name) {
  const auto* const it = std::ranges::lower_bound(kRenamed, name, {}, &RenamedMetric::before);
  return it != std::end(kRenamed) && it->before == name ? it->after : name;
}

std::string CurrentMetricsLine(std::string line) {
  for (const RenamedMetric& metric : kRenamed) {
    // The quotes and the colon tell a member from a value.
    const std::string member = "\"" + std::string(metric.before) + "\": ";
    const std::size_t at = line.find(member);
    if (at != std::string::npos) line.replace(at + 1, metric.before.size(), metric.after);
  }
  return line;
}

Result<JsonValue> ParseMetricsLine(std::string_view line) {
  TROOP_ASSIGN_OR_RETURN(JsonValue value, ParseJson(line));
  // The name is extracted first, because the members are sorted by it.
  for (const RenamedMetric& metric : kRenamed) {
    auto member = value.object.extract(std::string(metric.before));
    if (member.empty()) continue;
    member.key() = metric.after;
    value.object.insert(std::move(member));
  }
  return value;
}

}  // namespace troop
