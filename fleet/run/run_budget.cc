// Budgets of resumed runs: when a larger one applies, and when a run has spent its own.
#include "fleet/run/run_budget.h"

#include <fmt/format.h>

#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"
#include "fleet/run/task_info.h"

namespace troop {
namespace {

// Compares limits on updates; 0 means unlimited.
bool IsLooser(std::int64_t asked, std::int64_t was) {
  return was > 0 && (asked == 0 || asked > was);
}

// Everything that ends a run.
bool HasSameBudget(const Config& a, const Config& b) {
  return a.run.total_steps == b.run.total_steps && a.run.max_updates == b.run.max_updates &&
         a.run.epochs == b.run.epochs && a.evaluator.stop_at_return == b.evaluator.stop_at_return;
}

}  // namespace

// Returns the requested limits that exceed those of the run, as overrides; empty if none does.
std::vector<std::string> LargerBudget(const Config& asked, const Config& was) {
  const BudgetConfig &a = asked.run, &b = was.run;
  std::vector<std::string> overrides;
  if (IsSupervised(asked)) {
    // config.toml in the folder has max_updates resolved from the epochs, so a requested 0 (derive
    // from epochs) is not a larger budget.
    if (a.epochs <= b.epochs && a.max_updates <= b.max_updates) return overrides;
    return {fmt::format("run.epochs={}", TomlNumber(a.epochs)),
            fmt::format("run.max_updates={}", a.max_updates)};
  }
  // Those of an offline run follow from its updates.
  if (!IsOffline(asked) && a.total_steps > b.total_steps) {
    overrides.push_back("run.total_steps=" + TomlNumber(a.total_steps));
  }
  if (IsLooser(a.max_updates, b.max_updates)) {
    overrides.push_back(fmt::format("run.max_updates={}", a.max_updates));
  }
  return overrides;
}

// Compares the totals of result.json with the budget after resolving epochs into updates.
Result<bool> IsSpent(const std::string& path, const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const RunStatus standing, GetRunStatus(path));
  if (standing != RunStatus::kFinished) return false;
  TROOP_ASSIGN_OR_RETURN(const Config was, ReadRunConfig(path, {}));
  if (HasSameBudget(config, was)) return true;
  Config asked = config;
  TROOP_RETURN_IF_ERROR(ResolveSupervised(&asked));
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(path));
  TROOP_ASSIGN_OR_RETURN(const Buffer text, storage->Read("result.json", std::size_t{1} << 20));
  TROOP_ASSIGN_OR_RETURN(const JsonValue result, ParseJson(text.text()));
  const auto number = [&result](const char* key) {
    const JsonValue* const value = result.Find(key);
    return value == nullptr ? 0 : value->number;
  };
  const double updates_max = double(asked.run.max_updates);
  return number("steps") >= asked.run.total_steps ||
         (updates_max > 0 && number("updates") >= updates_max);
}

std::string SpentNotice(const Config& config) {
  const char* const key = IsSupervised(config) ? "run.epochs"
                          : IsOffline(config)  ? "run.max_updates"
                                               : "run.total_steps";
  return fmt::format("{} is finished and was not changed; raise {} to continue it", RunPath(config),
                     key);
}

}  // namespace troop
