// `troop replay`: a standalone replay server in this process.
#include "apps/commands/replay_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/commands/train_command.h"
#include "core/base/executor.h"
#include "core/base/log.h"
#include "core/storage/storage.h"
#include "envs/environment.h"
#include "fleet/config/role_configs.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/roles/node_runner.h"
#include "replay/service/options_from_config.h"

namespace troop {
namespace {

// A node that only answers requests: it has no coordinator and no lease.
class ReplayNode final : public Node {
 public:
  explicit ReplayNode(ReplayServer* server) : server_(server) {}
  StepStatus Step(Time now) override {
    // Drained means that all tables are on disk, or that they are not persistent.
    const Time next = server_->Tick(now);
    return draining_ && server_->drained() ? StepStatus::Done() : StepStatus::Idle(next);
  }
  void Drain() override {
    if (!draining_) server_->Drain();
    draining_ = true;
  }

 private:
  ReplayServer* const server_;
  bool draining_ = false;
};

// Tables of the config, checked against the memory limit.
Result<ReplayServer::Options> OptionsFor(const Config& config) {
  ReplayServer::Options options;
  // Without own tables the server has the one that a run of this config would use.
  if (config.replay.tables.empty()) {
    TROOP_ASSIGN_OR_RETURN(const EnvSpec spec, FindEnvSpec(config.env.id, EnvOptionsOf(config)));
    TROOP_ASSIGN_OR_RETURN(options, ReplayOptionsFor(ReplaySetupOf(config),
                                                     TrajectoryFor(ReplaySetupOf(config), spec)));
  }
  for (const ReplayTableConfig& table : config.replay.tables) {
    TROOP_ASSIGN_OR_RETURN(auto made, ReplayTableFor(table, config.seed, config.replay.shards));
    options.tables.push_back(std::move(made));
  }
  TROOP_RETURN_IF_ERROR(CheckReplayMemory(config, double(PredictReplayBytes(options))));
  // Item keys contain the incarnation, so keys of an earlier process never match. Seconds increase.
  options.incarnation = std::uint64_t(WallSeconds());
  return options;
}

// Items, inserts and samples of each table, for the start and stop lines.
std::string Sizes(const ReplayServer& server) {
  Metrics metrics;
  server.Report(&metrics);
  std::string text;
  for (const auto& [name, value] : metrics.snapshot()) {
    if (name.ends_with("/items") || name.ends_with("/inserts") || name.ends_with("/samples")) {
      text += fmt::format("{}{} {:.0f}", text.empty() ? "" : ", ", name, value.value);
    }
  }
  return text;
}

// Steps: network with keys, tables, storage if they are persistent, then the event loop.
Status Serve(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const auto keys, KeysFor(config, Role::kReplay));
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Network> network,
                         MakeZmqNetwork({.keys = keys, .insecure = config.security.insecure}));
  std::unique_ptr<Storage> storage;  // outlives its users
  ThreadExecutor executor(2,         // dictionary training must not delay disk writes
                          [n = network.get()] { n->Wake(); });
  TROOP_ASSIGN_OR_RETURN(ReplayServer::Options options, OptionsFor(config));
  options.executor = &executor;
  options.journal = {.folder = "tables", .spill = config.replay.spill_to_disk};
  options.ack_on_disk = config.replay.durability == Durability::kDisk;
  if (config.replay.persist) {
    TROOP_ASSIGN_OR_RETURN(storage, MakeDiskStorage(config.replay.dir));
    options.storage = storage.get();
  }
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<ReplayServer> server, MakeReplayServer(options));
  TROOP_ASSIGN_OR_RETURN(const std::unique_ptr<Listener> listener,
                         network->Listen(config.replay.listen, server.get()));
  // A calling script waits for this line: the port is open then.
  std::string names;
  for (const ReplayTableOptions& table : options.tables) {
    names += (names.empty() ? "" : ", ") + table.table.name;
  }
  fmt::print("replay: serving {} at {}; {}\n", names, listener->endpoint(), Sizes(*server));
  std::fflush(stdout);
  ReplayNode node(server.get());
  // A signal drains the server: it accepts no more requests and writes its tables to disk.
  const SignalWatch signals(network.get(), false);
  const SystemClock clock;
  const Status status = RunNode(&node, network.get(), clock, [&](Time) {
    if (signals.count() > 0) node.Drain();
  });
  fmt::print("replay: stopped; {}\n", Sizes(*server));
  return status;
}

// Command line of `troop replay`.
struct ReplayArguments {
  std::string config;  // config file
  std::vector<std::string> overrides;
  bool insecure = false;
};

// A standalone server needs the config's tables, but no run folder.
int RunReplay(const ReplayArguments& a) {
  Result<Config> config = LoadConfigFile(a.config, a.overrides);
  if (!config.ok()) {
    PrintError(config.status());
    return kExitUsage;
  }
  ApplySecurity(a.insecure, &*config);
  return ServeReplay(*config);
}

}  // namespace

// Blocks until a signal; a drained server is a success.
int ServeReplay(const Config& config) {
  InitLog({.role = "replay", .level = LogLevelOf(config)});
  const Status status = Serve(config);
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

void RegisterReplay(CLI::App& app, ChosenCommand* chosen) {
  const auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* replay =
      app.add_subcommand("replay", "serve a standalone replay until SIGTERM or Ctrl-C");
  replay->add_option("config", arguments->config, "TOML file, such as configs/replay_server.toml")
      ->required();
  replay->add_option("overrides", arguments->overrides, kOverridesHelp);
  replay->add_flag("--insecure", arguments->insecure, kInsecureHelp);
  replay->callback(
      [arguments, chosen] { *chosen = [arguments] { return RunReplay(*arguments); }; });
}

}  // namespace troop
