// Implements the names of metrics of earlier versions.
#include "fleet/run/metric_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace troop {
namespace {

// One name of version 1 and its name since version 2.
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

// A name that is not in the table is current already.
std::string CurrentMetricName(std::string_view name) {
  // Further tables of a replay have their name after "replay/": "replay/second/repeated".
  const std::size_t slash = name.find('/'), leaf = name.rfind('/');
  std::string plain(name);
  if (leaf != slash) plain.erase(slash, leaf - slash);
  const auto* const it =
      std::ranges::lower_bound(kRenamed, std::string_view(plain), {}, &RenamedMetric::before);
  if (it == std::end(kRenamed) || it->before != plain) return std::string(name);
  const std::string_view after = it->after;
  if (leaf == slash) return std::string(after);
  return std::string(name.substr(0, leaf)) + std::string(after.substr(after.find('/')));
}

// Values are unchanged: only names differ between the versions.
Result<JsonValue> ParseMetricsLine(std::string_view line) {
  TROOP_ASSIGN_OR_RETURN(JsonValue value, ParseJson(line));
  std::map<std::string, JsonValue> members;
  for (auto& [name, member] : value.object) {
    members.emplace(CurrentMetricName(name), std::move(member));
  }
  value.object = std::move(members);
  return value;
}

// Works on the text, so that numbers keep their digits.
std::string CurrentMetricsLine(std::string_view line) {
  // A member is a quoted name before a colon; a value is not. Names contain no escapes.
  std::string out;
  while (!line.empty()) {
    const std::size_t begin = line.find('"');
    const std::size_t end = begin == line.npos ? line.npos : line.find('"', begin + 1);
    if (end == line.npos) break;
    const std::string_view name = line.substr(begin + 1, end - begin - 1);
    const bool member = line.substr(end).starts_with("\": ");
    out += line.substr(0, begin + 1);
    out += member ? CurrentMetricName(name) : std::string(name);
    out += '"';
    line.remove_prefix(end + 1);
  }
  return out + std::string(line);
}

}  // namespace troop
