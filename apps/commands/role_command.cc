// Implements `troop role`: connects to the coordinator, and runs the node of the role.
#include "apps/commands/role_command.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/base/log.h"
#include "core/base/malloc_tuning.h"
#include "core/base/phase_progress.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/error_line.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/health_file.h"
#include "fleet/launcher/resource_estimate.h"
#include "fleet/roles/node_runner.h"
#include "fleet/roles/role_node.h"
#include "fleet/run/run_directory.h"

namespace troop {
namespace {

int ReportError(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Opens the run folder. Errors: kNotFound: it is not on the machine of this external role.
Result<std::unique_ptr<Storage>> OpenRunOf(const RoleArguments& a, const Config& config) {
  const std::string path = RunPath(config);
  // Creating the folder here would hide that the machines do not share it.
  if (a.auto_index && !std::filesystem::exists(path)) {
    return NotFound(
        "the run folder {} is not on this machine, but the role {} needs files in it; make the "
        "folder of the run's machine available here, under the same path",
        path, a.role);
  }
  return MakeDiskStorage(path);
}

}  // namespace

// Steps: role and keys, network, node, event loop, then the exit code. The launcher restarts the
// role or ends the run by that code.
int RunRole(const RoleArguments& a) {
  Role role = Role::kNone;
  for (const Role r : {Role::kActor, Role::kReplay, Role::kLearner, Role::kParamServer,
                       Role::kEvaluator, Role::kInference}) {
    if (RoleName(r) == a.role) role = r;
  }
  if (role == Role::kNone) {
    return ReportError(
        InvalidArgument("unknown role {}; roles: actor, replay, learner, "
                        "paramserver, evaluator, inference",
                        a.role));
  }
  // Both allocate and free buffers as large as the parameters for each gradient.
  if (role == Role::kLearner || role == Role::kParamServer) RetainFreedPages();
  // The level and the final index are known only after joining, from the run's config.
  InitLog({.role = PeerName(role, a.index)});
  std::shared_ptr<const KeyRing> keys;
  if (!a.key.empty()) {
    const auto loaded = KeysFromFile(a.key, role);
    if (!loaded.ok()) {
      LogError("{}", loaded.status().message());
      return kExitUsage;
    }
    keys = *loaded;
  }
  Result<std::unique_ptr<Network>> network =
      MakeZmqNetwork({.dead_after = Seconds(a.heartbeat_timeout_s),
                      .heartbeat_every = Seconds(a.heartbeat_timeout_s / 3),
                      .clients_max = 1 << 15,  // every actor pulls from one server
                      .keys = keys,
                      .insecure = a.insecure});
  if (!network.ok()) return ReportError(network.status());
  // Replay's second thread: training a compression dictionary must not delay disk writes.
  const int threads = role == Role::kReplay ? 2 : 1;
  auto executor = std::make_unique<ThreadExecutor>(threads, [n = network->get()] { n->Wake(); });
  std::unique_ptr<Storage> storage;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  RoleNode node({.role = role,
                 .index = a.auto_index ? -1 : a.index,
                 .advertise_host = a.advertise_host,
                 .coordinator = a.coordinator,
                 .host = host,
                 .process = getpid(),
                 .attempt = std::uint64_t(1e6 * WallSeconds()),
                 .network = network->get(),
                 .executor = executor.get(),
                 .storage = [&storage, &a](const Config& config) -> Result<Storage*> {
                   TROOP_ASSIGN_OR_RETURN(storage, OpenRunOf(a, config));
                   return storage.get();
                 },
                 .joined =
                     [role](const Config& config, std::int32_t index) {
                       InitLog({.role = PeerName(role, index), .level = LogLevelOf(config)});
                       SetPhaseSink([](const std::string& line) { LogInfo("{}", line); });
                       SetProcessName(PeerName(role, index));
                     }});
  // Roles ignore SIGINT: the terminal sends it to the whole group, and the launcher drains them.
  const SignalWatch signals(network->get(), true);
  const SystemClock clock;
  const Status status = RunNode(&node, network->get(), clock, [&](Time) {
    if (signals.count() > 0) node.Drain();
  });
  executor.reset();  // its running jobs use objects of the node
  // The parent `troop join --rejoin` starts the role again when the run is resumed.
  if (status.ok() && a.rejoin && node.sent_away() && signals.count() == 0) {
    LogInfo("the run was stopped and can be resumed");
    return kExitInterrupted;
  }
  if (status.ok()) return kExitOk;
  // An external role cannot tell an ended run from an unreachable one, so it does not retry.
  if (a.auto_index && !a.rejoin && node.unanswered()) {
    LogError("{}: the run has ended, or cannot be reached from here", status.message());
    return kExitGaveUp;
  }
  LogError("{}", status.message());
  if (status.code() == Code::kCancelled) return kExitGaveUp;
  // Rejected: keys, versions or environments do not match, and a retry cannot change that.
  if (status.code() == Code::kFailedPrecondition && !node.playing()) return kExitUsage;
  // Config and file errors are permanent only before the role runs; but a parameter shard reads
  // its own files after joining.
  const int code = ExitCodeFor(status);
  const bool shard = role == Role::kParamServer;
  const bool permanent = code == kExitUsage || (code == kExitDamaged && !shard);
  return permanent && node.playing() ? kExitFailed : code;
}

void RegisterRole(CLI::App& app, ChosenCommand* chosen) {
  const auto arguments = std::make_shared<RoleArguments>();
  CLI::App* role = app.add_subcommand("role", "run a single role of a fleet");
  role->add_option("role", arguments->role,
                   "actor, replay, learner, paramserver, evaluator, inference")
      ->required();
  role->add_option("--index", arguments->index, "index of the role (0)");
  role->add_option("--heartbeat-timeout", arguments->heartbeat_timeout_s,
                   "value of the run's fleet.heartbeat_timeout_s, in seconds (1.5)")
      ->check(CLI::Range(0.1, 3600.0));
  role->add_option("--coordinator", arguments->coordinator, "coordinator endpoint")->required();
  role->add_flag("--auto-index", arguments->auto_index, "let the coordinator assign the index");
  role->add_flag("--rejoin", arguments->rejoin,
                 "exit with 130 if the run stops before its end, so that the role can rejoin");
  role->add_option("--advertise-host", arguments->advertise_host,
                   "address at which the fleet reaches this machine");
  role->add_option("--key", arguments->key, "key file of this role (troop keygen)");
  role->add_flag("--insecure", arguments->insecure, kInsecureHelp);
  role->callback([arguments, chosen] { *chosen = [arguments] { return RunRole(*arguments); }; });
}

}  // namespace troop
