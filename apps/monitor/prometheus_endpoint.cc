// The Prometheus endpoint of a run.
#include "apps/monitor/prometheus_endpoint.h"

#include <utility>

#include "core/base/version.h"
#include "fleet/run/task_info.h"

namespace troop {
namespace {

constexpr Duration kEvery = Seconds(1);  // between copies of the state

}  // namespace

// Null without fleet.metrics. The address is checked first, so that errors name the config keys.
Result<std::unique_ptr<PrometheusEndpoint>> PrometheusEndpoint::Make(const Config& config) {
  const auto& fleet = config.fleet;
  if (fleet.metrics.empty()) return std::unique_ptr<PrometheusEndpoint>();
  TROOP_RETURN_IF_ERROR(CheckHttpAddress(fleet.metrics, !fleet.metrics_token.empty(),
                                         config.security.insecure,
                                         {"fleet.metrics", "fleet.metrics_token"}));
  std::unique_ptr<PrometheusEndpoint> metrics(new PrometheusEndpoint);
  metrics->name_ = config.name;
  metrics->problem_ = TaskName(config);
  HttpServer::Options options{.address = fleet.metrics,
                              .token_file = fleet.metrics_token,
                              .insecure = config.security.insecure};
  options.routes["/metrics"] = [m = metrics.get()](const HttpRequest&) { return m->Answer(); };
  Result<std::unique_ptr<HttpServer>> server = HttpServer::Make(std::move(options));
  if (!server.ok()) return server.status().WithContext("fleet.metrics");
  metrics->server_ = std::move(*server);
  return metrics;
}

// The copy is made outside the lock; the lock only protects the exchange of the pointer.
void PrometheusEndpoint::Tell(Time now, const RunView& view, const RunThroughput& rates,
                              const std::function<std::vector<RoleView>()>& roles) {
  if (now < next_) return;
  next_ = now + kEvery;
  auto state = std::make_shared<const PrometheusState>(PrometheusState{.name = name_,
                                                                       .problem = problem_,
                                                                       .version = kTroopVersion,
                                                                       .view = view,
                                                                       .rates = rates,
                                                                       .roles = roles()});
  const std::lock_guard lock(mutex_);
  state_.swap(state);  // the old state is freed after the lock is released
}

// Runs in the server's thread. Formats a state once and reuses the text until the next state.
HttpResponse PrometheusEndpoint::Answer() {
  std::shared_ptr<const PrometheusState> state;
  {
    const std::lock_guard lock(mutex_);
    state = state_;
  }
  // The port is open before the first state: a scraper retries.
  if (!state) return {.status = 503, .body = "the run has not started yet; retry\n"};
  if (state != formatted_) {
    text_ = std::make_shared<const std::string>(PrometheusText(*state));
    formatted_ = std::move(state);
  }
  return {.type = kPrometheusType, .shared = text_};
}

}  // namespace troop
