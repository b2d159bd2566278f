// `troop scale`: sends one scale request to the coordinator and prints the result.
#include "apps/commands/scale_command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "apps/monitor/coordinator_client.h"
#include "fleet/coordinator/role_slots.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/run_directory.h"
#include "net/control/scale_request.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Longer than the time after which a shard move is abandoned (ReshardController::Options).
constexpr Duration kPatience = Seconds(60);

// Parses "ROLE=COUNT". The coordinator checks the role and the limits.
Result<ScaleRequest> Parse(const std::string& what) {
  const std::size_t equals = what.find('=');
  ScaleRequest request{.role = what.substr(0, equals)};
  const char* const end = what.data() + what.size();
  const char* const begin = equals == std::string::npos ? end : what.data() + equals + 1;
  const auto [stop, error] = std::from_chars(begin, end, request.count);
  if (error != std::errc() || stop != end) {
    return InvalidArgument("\"{}\" is not ROLE=COUNT, such as actors=64", what);
  }
  return request;
}

// Errors: kNotFound, kInvalidArgument: not a live fleet; those of the coordinator.
Result<ScaleReply> Ask(const ScaleOptions& options) {
  TROOP_ASSIGN_OR_RETURN(const ScaleRequest request, Parse(options.what));
  const std::string root = fs::absolute(options.run).lexically_normal().string();
  if (!fs::exists(fs::path(root) / "config.toml")) {
    return NotFound("{}: not a run folder (no config.toml)", root);
  }
  // These checks give better messages than a coordinator that does not answer.
  if (fs::exists(fs::path(root) / "result.json")) {
    return InvalidArgument("{}: the run has ended", root);
  }
  TROOP_ASSIGN_OR_RETURN(const Config config, ReadRunConfig(root, {}));
  if (config.fleet.mode == FleetMode::kSerial) {
    return InvalidArgument("{}: a serial run (fleet.mode) cannot be scaled", root);
  }
  TROOP_ASSIGN_OR_RETURN(
      const Message answer,
      CallCoordinator(root, options.run, {.type = MessageType::kScale, .body = EncodeBody(request)},
                      kPatience));
  return DecodeBody<ScaleReply>(answer.body);
}

}  // namespace

// Blocks until the coordinator has changed the fleet or refused.
int Scale(const ScaleOptions& options) {
  const Result<ScaleReply> reply = Ask(options);
  if (!reply.ok()) {
    fmt::print(stderr, "troop: {}\n", reply.status().message());
    return ExitCodeFor(reply.status());
  }
  // Replay shards drain after the reply; other roles are done when it arrives.
  const Role role =
      ScaledRole(options.what.substr(0, options.what.find('='))).value_or(Role::kNone);
  if (role != Role::kNone) {
    // Their items stay available to the learner until newer ones have replaced them.
    const bool shards_leave = role == Role::kReplay && reply->after < reply->before;
    fmt::print("from {} to {} {} in {:.1f} s{}\n", reply->before, reply->after,
               role == Role::kActor    ? "actors"
               : role == Role::kReplay ? "replay shards"
                                       : "learners",
               reply->seconds,
               shards_leave ? "; removed shards exit once their items have been replaced" : "");
    return kExitOk;
  }
  fmt::print("from {} to {} parameter shards in {:.1f} s: {} of {} parameters moved ({:.0f} %)\n",
             reply->before, reply->after, reply->seconds, reply->parameters_moved,
             reply->parameters,
             100.0 * double(reply->parameters_moved) / double(reply->parameters));
  return kExitOk;
}

void RegisterScale(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<ScaleOptions>();
  CLI::App* scale = app.add_subcommand("scale",
                                       "change the number of actors, replay shards, learners or "
                                       "parameter shards of a running fleet");
  scale->add_option("run", options->run, "run folder")->required();
  scale
      ->add_option(
          "count", options->what,
          "new number of roles of one kind: actors=N, replay=N, learners=N or paramserver=N")
      ->required();
  scale->callback([options, chosen] { *chosen = [options] { return Scale(*options); }; });
}

}  // namespace troop
