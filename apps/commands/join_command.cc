// `troop join`: registers at a remote coordinator, then supervises the local role processes.
#include "apps/commands/join_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/monitor/coordinator_client.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/launcher/health_file.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/roles/external_roles.h"
#include "fleet/roles/node_runner.h"
#include "net/transport/host_name.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// The folder of the role logs; creates it.
Result<std::string> LogFolder(const JoinOptions& options) {
  std::error_code error;
  if (!options.logs.empty()) {
    fs::create_directories(options.logs, error);
    if (!error) return fs::absolute(options.logs).string();
    return InvalidArgument("cannot create {}: {}", options.logs, error.message());
  }
  std::string folder = (fs::temp_directory_path(error) / "troop-join-XXXXXX").string();
  if (mkdtemp(folder.data()) != nullptr) return folder;  // 0700
  return InvalidArgument("cannot create {}: {}; name a folder with --logs", folder,
                         strerror(errno));
}

// Registers `count` roles at the coordinator. The reply holds the run's config.
Result<JoinReply> AskToJoin(const JoinOptions& options, Role role,
                            std::shared_ptr<const KeyRing> keys) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const JoinRequest request{
      .role = role, .count = options.count, .version = kTroopVersion, .host = host};
  TROOP_ASSIGN_OR_RETURN(
      const Message answer,
      CallWithRetry(options.coordinator, {.type = MessageType::kJoin, .body = EncodeBody(request)},
                    Seconds(options.wait_s), std::move(keys)));
  return DecodeBody<JoinReply>(answer.body);
}

// Errors: kInvalidArgument: `name` is not a role that can join.
Result<Role> RoleCalled(const std::string& name) {
  for (const Role role : {Role::kActor, Role::kReplay, Role::kParamServer, Role::kLearner,
                          Role::kEvaluator, Role::kInference}) {
    if (RoleName(role) == name) return role;
  }
  return InvalidArgument(
      "unknown role {:?}; roles: actor, replay, paramserver, learner, evaluator, inference", name);
}

// Supervises the local roles: restarts them while the run needs them, drains them at its end.
class Crew {
 public:
  Crew(const Config& config, Role role, const JoinOptions& options, const std::string& logs,
       Network* network, HealthFile health)
      : health_(std::move(health)),
        wanted_(options.count),
        drain_(Seconds(config.fleet.shutdown_grace_s)),
        network_(network),
        signals_(network, false),
        supervisor_({.executable = "/proc/self/exe",
                     .coordinator = options.coordinator,
                     .log_folder = logs,
                     .config = WithoutKeys(config),
                     .key_file = options.key,
                     .index_is_given = false,
                     .advertise_host = options.advertise_host,
                     .rejoin = options.rejoin},
                    Slots(role, options.count)) {}

  // Blocks until all roles have exited. Ok: the run is over, or a signal requested this command to
  // leave.
  Status Run() {
    const SystemClock clock;
    std::optional<Time> end;  // of the drain; set once it has begun
    for (;;) {
      const Time now = clock.Now();
      network_->Pump(now);
      for (const Supervisor::Exit& exit : supervisor_.Tick(now, [&](FleetRole) { return !end; })) {
        // The coordinator released this role; it will release the others too.
        if (exit.orderly && !end) end = now + drain_;
      }
      // A role failed for good: drain the others.
      if (!supervisor_.status().ok() && !end) {
        end = now + drain_;
        supervisor_.Signal(SIGTERM);
      }
      health_.Note(now, wanted_, supervisor_);
      if (signals_.count() > 0 && !left_) {
        left_ = true;
        end = now + drain_;
        supervisor_.Signal(SIGTERM);
      }
      if (end && supervisor_.alive() == 0) return supervisor_.status();
      // A second signal, or the end of fleet.shutdown_grace_s, kills at once.
      if (end && (now > *end || signals_.count() > 1)) supervisor_.Signal(SIGKILL);
      network_->Wait(now, now + Milliseconds(50));
    }
  }
  bool left() const { return left_; }
  int permanent_code() const { return supervisor_.permanent_code(); }

 private:
  // Local indices only name the slots of the supervisor; the coordinator assigns the real ones.
  static std::vector<FleetRole> Slots(Role role, std::int32_t count) {
    std::vector<FleetRole> slots;
    for (std::int32_t i = 0; i < count; ++i) slots.push_back({role, i});
    return slots;
  }
  // Removes key paths: those of the config are paths on the coordinator's machine.
  static Config WithoutKeys(Config config) {
    config.security.keys.clear();
    return config;
  }

  HealthFile health_;
  const std::int64_t wanted_;
  const Duration drain_;
  Network* const network_;
  const SignalWatch signals_;
  Supervisor supervisor_;
  bool left_ = false;
};

// Joins and runs until the end. `permanent_code`: exit code of a role that no restart helps, or 0.
Status JoinRun(const JoinOptions& options, int* permanent_code) {
  TROOP_ASSIGN_OR_RETURN(const Role role, RoleCalled(options.role));
  std::shared_ptr<const KeyRing> keys;
  if (!options.key.empty()) {
    TROOP_ASSIGN_OR_RETURN(keys, KeysFromFile(options.key, role));
  }
  TROOP_ASSIGN_OR_RETURN(HealthFile health, HealthFile::Make(options.health));
  // Key and health file are checked first, so that a mistake fails before the run is contacted.
  TROOP_ASSIGN_OR_RETURN(const JoinReply reply, AskToJoin(options, role, keys));
  TROOP_ASSIGN_OR_RETURN(const Config config,
                         ParseConfig(reply.config_toml, "the coordinator's config", {}));
  TROOP_ASSIGN_OR_RETURN(const std::string logs, LogFolder(options));
  InitLog({.role = "join", .file = logs + "/join.log", .level = LogLevelOf(config)});
  setenv("OMP_NUM_THREADS", "1", 0);  // as `troop train`
  setenv("OMP_WAIT_POLICY", "passive", 0);
  fmt::print("joined {} at {} with {} of role {} ({} were members already); logs: {}\n",
             config.name, options.coordinator, options.count, options.role, reply.present, logs);
  std::fflush(stdout);
  // Has no connections: signals interrupt its wait in Crew::Run.
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeZmqNetwork());
  // The role processes get absolute paths and a resolved address.
  JoinOptions absolute = options;
  absolute.coordinator = ReplaceIpv6OnlyHost(options.coordinator);
  if (!options.key.empty()) absolute.key = fs::absolute(options.key).string();
  if (absolute.advertise_host.empty()) {
    TROOP_ASSIGN_OR_RETURN(absolute.advertise_host, LocalAddressTo(options.coordinator));
  }
  Crew crew(config, role, absolute, logs, network.get(), std::move(health));
  const Status run = crew.Run();
  *permanent_code = crew.permanent_code();
  TROOP_RETURN_IF_ERROR(run);
  if (crew.left()) {
    fmt::print("left {}\n", config.name);
  } else {
    fmt::print("{} no longer needs roles of kind {}\n", config.name, options.role);
  }
  return Status::Ok();
}

}  // namespace

// Blocks until the run no longer needs this machine, or a signal makes it leave.
int Join(const JoinOptions& options) {
  int permanent_code = 0;
  const Status status = JoinRun(options, &permanent_code);
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  // The role's exit code: under Slurm, `troop train` then does not restart this node.
  return permanent_code != 0 ? permanent_code : ExitCodeFor(status);
}

void RegisterJoin(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<JoinOptions>();
  CLI::App* join =
      app.add_subcommand("join", "run roles on this machine for a run on another machine");
  join->add_option("coordinator", options->coordinator,
                   "address of the coordinator, tcp://HOST:PORT (fleet.listen of the run)")
      ->required();
  join->add_option("--role", options->role,
                   "role to run: actor, or an external role of the run (fleet.external_roles)");
  join->add_option("--advertise-host", options->advertise_host,
                   "address at which the fleet reaches this machine");
  join->add_option("--count", options->count, "number of processes (1)")
      ->check(CLI::Range(1, 10000));
  join->add_option("--key", options->key, "key file of the role to run (troop keygen)");
  join->add_option("--logs", options->logs, "log folder (default: a temporary one)");
  join->add_option("--wait", options->wait_s, "seconds to wait for the coordinator to appear (60)")
      ->check(CLI::Range(0.0, 86400.0));
  join->add_flag("--rejoin", options->rejoin,
                 "wait while the run is stopped, and rejoin when it is resumed");
  join->add_option("--health", options->health, "status file to write, for `troop health`");
  join->callback([options, chosen] { *chosen = [options] { return Join(*options); }; });
}

void RegisterHealth(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<HealthOptions>();
  CLI::App* health =
      app.add_subcommand("health", "report whether a `troop join` on this machine works");
  health->add_option("file", options->file, "status file that `troop join --health` writes")
      ->required();
  health->add_flag("--ready", options->ready,
                   "also require that all of its roles have joined the run");
  health->callback([options, chosen] { *chosen = [options] { return ShowHealth(*options); }; });
}

}  // namespace troop
