// Finds the process and the coordinator of a run, and sends requests to the coordinator.
#include "apps/monitor/coordinator_client.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/run/run_directory.h"
#include "fleet/run/run_status.h"
#include "net/network.h"
#include "net/security/access_control.h"
#include "net/transport/host_name.h"

namespace troop {

// A random identity, as several tools may call one coordinator at the same time.
Origin GuestOrigin(Role role) {
  // Not the process id: the first process of every container has id 1.
  const auto name = std::int32_t(std::random_device()() & 0xFFFFFF);
  return {.role = Role::kTool,
          .index = NewcomerIndex(role, name),
          .incarnation = std::uint64_t(1e6 * WallSeconds())};
}

// Has its own network, so that a tool needs no event loop.
Result<Message> Ask(const std::string& endpoint, Message question, Duration patience,
                    std::shared_ptr<const KeyRing> keys) {
  const Role role = keys == nullptr ? Role::kTool : keys->role;
  TROOP_ASSIGN_OR_RETURN(const auto network, MakeZmqNetwork({.keys = std::move(keys)}));
  TROOP_ASSIGN_OR_RETURN(const auto channel, network->Connect(ReplaceIpv6OnlyHost(endpoint),
                                                              {.origin = GuestOrigin(role)}));
  const SystemClock clock;
  TROOP_ASSIGN_OR_RETURN(const Ticket ticket, channel->Send(question, clock.Now() + patience));
  for (;;) {
    network->Pump(clock.Now());
    if (auto answer = channel->Poll(ticket)) return std::move(*answer);
    network->Wait(clock.Now(), clock.Now() + Milliseconds(100));
  }
}

// Retries only while nothing answers; a rejection is returned at once.
Result<Message> CallWithRetry(const std::string& endpoint, const Message& question,
                              Duration patience, std::shared_ptr<const KeyRing> keys) {
  const SystemClock clock;
  const Time end = clock.Now() + patience;
  // Each attempt takes at most 5 s, so that a changed DNS entry is used.
  for (bool reported = false;;) {
    const Duration left = std::max(end - clock.Now(), Duration(Milliseconds(1)));
    const Status found = CheckHostResolves(endpoint);
    Result<Message> answer =
        found.ok() ? Ask(endpoint, question, std::min(left, Duration(Seconds(5))), keys) : found;
    const Code code = answer.status().code();
    if (code != Code::kUnavailable && code != Code::kDeadlineExceeded) return answer;
    if (clock.Now() >= end) {
      return Unavailable("{}: {}; gave up after {:g} s (--wait)", endpoint,
                         found.ok() ? "no answer" : found.message(), ToSeconds(patience));
    }
    if (!std::exchange(reported, true)) {
      fmt::print(stderr, "troop: {}: {}; trying again for {:g} s (--wait)\n", endpoint,
                 found.ok() ? "no answer yet" : found.message(), ToSeconds(patience));
    }
    // An unresolved name fails at once, so that a pause is needed; a request waits by itself.
    if (!found.ok()) usleep(200'000);
  }
}

// The lock file contains "process PID"; /proc shows whether that process is suspended.
RunOwner FindOwner(const std::string& root) {
  RunOwner holder;
  const std::string path = root + "/lock";
  // A shared lock that would block shows that another process holds the exclusive one.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return holder;
  holder.alive = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  if (!holder.alive) return holder;
  std::string word, stat;
  std::ifstream(path) >> word >> holder.process;  // "process 1234"
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", holder.process)), stat);
  const std::size_t name_end = stat.rfind(") ");  // the state follows the program name
  holder.stopped = name_end != std::string::npos && stat.substr(name_end + 2, 1) == "T";
  return holder;
}

// A full disk is guessed from the free space: a killed process leaves no reason.
std::string EndWithoutResult(std::uint64_t bytes_free) {
  // Less than a run needs for its last files.
  constexpr std::uint64_t kBytesNeeded = std::uint64_t{1} << 20;
  if (bytes_free >= kBytesNeeded) return "it was killed";
  return fmt::format(
      "it was killed, or could not write its result because the disk is full ({} KiB free); "
      "free disk space first",
      bytes_free >> 10);
}

// In order: no process, suspended process, process that does not answer.
Status ExplainNoResponse(const std::string& root, const RunOwner& holder,
                         const std::string& given) {
  if (!holder.alive) {
    const auto storage = MakeDiskStorage(root);
    std::error_code error;
    const std::uintmax_t bytes_free = std::filesystem::space(root, error).available;
    return Unavailable(
        "{} has no result and no running process: {}; {}", root, EndWithoutResult(bytes_free),
        storage.ok() ? ResumeHint(storage->get(), given) : storage.status().message());
  }
  if (holder.stopped) {
    return Unavailable(
        "{}: its process {} is stopped (SIGSTOP or Ctrl-Z); continue it with `kill -CONT {}`", root,
        holder.process, holder.process);
  }
  return Unavailable("{}: its process {} is alive but does not answer; see {}/logs/launcher.log",
                     root, holder.process, root);
}

// The holder is read before and after: the run may end while the request is open.
Result<Message> CallCoordinator(const std::string& root, const std::string& given, Message question,
                                Duration patience) {
  const RunOwner holder = FindOwner(root);
  TROOP_ASSIGN_OR_RETURN(const auto storage, MakeDiskStorage(root));
  const auto run = storage->Read("run.json", 1 << 20);
  // The run was killed, or has not written its coordinator's address yet.
  if (!run.ok() || !holder.alive || holder.stopped) return ExplainNoResponse(root, holder, given);
  TROOP_ASSIGN_OR_RETURN(const JsonValue info, ParseJson(run->text()));
  TROOP_ASSIGN_OR_RETURN(const std::string endpoint, info.String("coordinator"));
  TROOP_ASSIGN_OR_RETURN(const Config config, ReadRunConfig(root, {}));
  TROOP_ASSIGN_OR_RETURN(auto keys, KeysFor(config, Role::kTool));
  Result<Message> answer = Ask(endpoint, std::move(question), patience, std::move(keys));
  const Code code = answer.status().code();
  if (code != Code::kUnavailable && code != Code::kDeadlineExceeded) return answer;
  return ExplainNoResponse(root, FindOwner(root), given);
}

}  // namespace troop
