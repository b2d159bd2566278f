#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/dashboard.h"
#include "apps/http_server.h"
#include "core/config.h"

namespace troop {

// A dashboard behind a server, in a thread of its own. Owner: any one thread.
class DashboardServer {
 public:
  struct Options {
    std::string address;     // HOST:PORT; port 0: any free one
    std::string token_file;  // empty: none, on this machine alone
    bool insecure = false;   // or anywhere
    HttpAddressKeys keys{.address = "--listen", .token = "--token-file"};  // for messages
  };
  // Errors: as HttpServer::Make.
  static Result<std::unique_ptr<DashboardServer>> Make(RunCatalog catalog, const Options& options);
  // Of a run that begins, as its config says; null: it wants none.
  static Result<std::unique_ptr<DashboardServer>> Make(const Config& config,
                                                       const std::string& run);
  // "dashboard: http://127.0.0.1:8800/", and what else a person must know.
  std::string Greeting() const;

 private:
  DashboardServer() = default;
  std::unique_ptr<Dashboard> dashboard_;
  std::unique_ptr<HttpServer> server_;  // uses dashboard_
  bool token_ = false;
};

// troop dashboard: until it gets a signal. Returns the exit code.
struct DashboardCommand {
  std::vector<std::string> runs;
  std::string address = "127.0.0.1:8800", token_file;
  bool insecure = false;
};
int ServeDashboard(const DashboardCommand& command);

}  // namespace troop
