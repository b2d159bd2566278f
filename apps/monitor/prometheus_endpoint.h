#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "apps/monitor/http_server.h"
#include "apps/monitor/prometheus_format.h"
#include "fleet/config/config.h"

namespace troop {

// Serves the metrics of a run to Prometheus (fleet.metrics): GET /metrics. The run publishes a copy
// of its state about once a second and never waits; the server's thread formats each state once,
// however often it is requested. Owner: the run's thread.
class PrometheusEndpoint {
 public:
  // Starts the server; null if the config has none. Errors: those of CheckHttpAddress and
  // HttpServer::Make.
  static Result<std::unique_ptr<PrometheusEndpoint>> Make(const Config& config);
  // Publishes a copy of the state if the last one is a second old; calls `roles` only then.
  void Tell(Time now, const RunView& view, const RunThroughput& rates,
            const std::function<std::vector<RoleView>()>& roles);
  const std::string& address() const { return server_->address(); }

 private:
  PrometheusEndpoint() = default;
  HttpResponse Answer();

  std::string name_, problem_;
  Time next_{};
  std::mutex mutex_;  // protects state_
  std::shared_ptr<const PrometheusState> state_;
  // Used only by the server's thread: the last formatted state and its text.
  std::shared_ptr<const PrometheusState> formatted_;
  std::shared_ptr<const std::string> text_;
  std::unique_ptr<HttpServer> server_;  // last member: its thread uses those above
};

}  // namespace troop
