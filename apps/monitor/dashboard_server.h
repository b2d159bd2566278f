#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/monitor/dashboard_api.h"
#include "apps/monitor/http_server.h"
#include "fleet/config/config.h"

namespace troop {

// A dashboard and its HTTP server, which has its own thread. Owner: any one thread.
class DashboardServer {
 public:
  struct Options {
    std::string address;     // HOST:PORT; port 0: any free one
    std::string token_file;  // empty: none, for this machine only
    bool insecure = false;   // no token needed on any address
    HttpAddressKeys keys{.address = "--listen", .token = "--token-file"};  // for error messages
  };
  // Serves the runs of `catalog`. Errors: those of HttpServer::Make.
  static Result<std::unique_ptr<DashboardServer>> Make(RunIndex catalog, const Options& options);
  // Serves a starting run at fleet.dashboard; null if that is empty.
  static Result<std::unique_ptr<DashboardServer>> Make(const Config& config,
                                                       const std::string& run);
  // "dashboard: http://127.0.0.1:8800/", with a note about the token if one is required.
  std::string Greeting() const;

 private:
  DashboardServer() = default;
  std::unique_ptr<Dashboard> dashboard_;
  std::unique_ptr<HttpServer> server_;  // uses dashboard_
  bool token_ = false;
};

// Options of `troop dashboard`.
struct DashboardCommand {
  std::vector<std::string> runs;
  std::string address = "127.0.0.1:8800", token_file;
  bool insecure = false;
};
// Serves until SIGINT or SIGTERM. Returns the exit code.
int ServeDashboard(const DashboardCommand& command);

}  // namespace troop
