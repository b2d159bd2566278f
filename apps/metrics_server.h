#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "apps/http_server.h"
#include "apps/prometheus.h"
#include "core/config.h"

namespace troop {

// Tells Prometheus how a run does (fleet.metrics): GET /metrics. The run leaves a state here about
// once a second and never waits: what is asked is made into text in the server's thread, once for
// each state, however often it is asked. Owner: the run's thread.
class MetricsServer {
 public:
  // Null: the config asks for none. Errors: as CheckHttpAddress and HttpServer::Make.
  static Result<std::unique_ptr<MetricsServer>> Make(const Config& config);
  // Takes a copy where the last one is a second old. `roles` is asked only then.
  void Tell(Time now, const RunView& view, const RunRates& rates,
            const std::function<std::vector<RoleView>()>& roles);
  const std::string& address() const { return server_->address(); }

 private:
  MetricsServer() = default;
  HttpResponse Answer();

  std::string name_, problem_;
  Time next_{};
  std::mutex mutex_;
  std::shared_ptr<const RunState> state_;
  // Of the server's thread alone.
  std::shared_ptr<const RunState> told_;
  std::shared_ptr<const std::string> text_;
  std::unique_ptr<HttpServer> server_;  // last: its thread uses what stands before
};

}  // namespace troop
