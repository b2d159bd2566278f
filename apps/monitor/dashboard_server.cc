// `troop dashboard`, and the dashboard that a launcher serves for its run (fleet.dashboard).
#include "apps/monitor/dashboard_server.h"

#include <cstdio>
#include <thread>

#include "fleet/launcher/exit_code.h"
#include "fleet/roles/node_runner.h"

namespace troop {

// Steps: token, address check, dashboard, HTTP server with one route for all paths.
Result<std::unique_ptr<DashboardServer>> DashboardServer::Make(RunIndex catalog,
                                                               const Options& options) {
  std::unique_ptr<DashboardServer> made(new DashboardServer());
  Dashboard::Options shown{.token = {}, .listened = options.address};
  if (!options.token_file.empty()) {
    TROOP_ASSIGN_OR_RETURN(shown.token, ReadToken(options.token_file));
  }
  // Without a token the address must be local, unless `insecure` is set.
  TROOP_RETURN_IF_ERROR(
      CheckHttpAddress(options.address, !shown.token.empty(), options.insecure, options.keys));
  made->token_ = !shown.token.empty();
  made->dashboard_ = std::make_unique<Dashboard>(std::move(catalog), std::move(shown));
  HttpServer::Options server{
      .address = options.address,
      .token_file = options.token_file,
      .insecure = options.insecure,
      // The page itself is public; the dashboard checks the token before
      // it returns any data.
      .guard = [](const HttpRequest&,
                  const std::string&) { return std::unique_ptr<HttpResponse>(); },
      .posts = true};
  server.routes["/"] = [dashboard = made->dashboard_.get()](const HttpRequest& request) {
    return dashboard->Handle(SystemClock().Now(), request);
  };
  TROOP_ASSIGN_OR_RETURN(made->server_, HttpServer::Make(std::move(server)));
  return made;
}

// The dashboard of a single run; null without fleet.dashboard.
Result<std::unique_ptr<DashboardServer>> DashboardServer::Make(const Config& config,
                                                               const std::string& run) {
  if (config.fleet.dashboard.empty()) return std::unique_ptr<DashboardServer>();
  return Make(RunIndex::OfRun(run),
              {.address = config.fleet.dashboard,
               .token_file = config.fleet.dashboard_token,
               .insecure = config.security.insecure,
               .keys = {.address = "fleet.dashboard", .token = "fleet.dashboard_token"}});
}

// The token is passed in the fragment of the URL, which a browser does not send.
std::string DashboardServer::Greeting() const {
  return fmt::format("dashboard: http://{}/{}", server_->address(),
                     token_ ? "  (append #token= and the token)" : "");
}

int ServeDashboard(const DashboardCommand& command) {
  Result<RunIndex> catalog = RunIndex::Make(command.runs);
  Result<std::unique_ptr<DashboardServer>> server =
      catalog.ok() ? DashboardServer::Make(std::move(*catalog), {.address = command.address,
                                                                 .token_file = command.token_file,
                                                                 .insecure = command.insecure})
                   : catalog.status();
  if (!server.ok()) {
    fmt::print(stderr, "troop: {}\n", server.status().message());
    return ExitCodeFor(server.status());
  }
  // The server has its own thread; this one only waits for a signal.
  const SignalWatch signals(nullptr, false);
  fmt::print("{}\nCtrl-C stops the dashboard; runs continue.\n", (*server)->Greeting());
  std::fflush(stdout);
  while (signals.count() == 0) std::this_thread::sleep_for(Milliseconds(50));
  return kExitOk;
}

}  // namespace troop
