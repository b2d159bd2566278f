// The flags of `troop dashboard`.
#include "apps/monitor/dashboard_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "apps/monitor/dashboard_server.h"

namespace troop {

void RegisterDashboard(CLI::App& app, ChosenCommand* chosen) {
  const auto command = std::make_shared<DashboardCommand>();
  CLI::App* dashboard = app.add_subcommand("dashboard", "serve a web page that shows runs live");
  dashboard->add_option("runs", command->runs, "run folders, or folders that contain runs")
      ->required();
  // The checks of address and token are those of ServeDashboard.
  dashboard->add_option("--listen", command->address,
                        "HOST:PORT to listen on (127.0.0.1:8800); port 0 selects a free one");
  dashboard->add_option(
      "--token-file", command->token_file,
      "file with the access token, on one line; required to serve other machines, "
      "unless --insecure is set");
  dashboard->add_flag("--insecure", command->insecure, "serve without authentication");
  dashboard->callback(
      [command, chosen] { *chosen = [command] { return ServeDashboard(*command); }; });
}

}  // namespace troop
