// `troop serve`: the flags, the loop that reloads checkpoints, and the drain.
#include "apps/serving/serve_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <thread>

#include "core/base/log.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/roles/node_runner.h"

namespace troop {
namespace {

// Prints the reason of a failed start.
int Fail(const Status& status) {
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

// Settings that contradict each other.
Status CheckServeOptions(const ServeOptions& options) {
  const auto& queue = options.server.queue;
  if (queue.queue_rows_max < queue.rows_max) {
    return InvalidArgument("--queue-rows is {}, must be at least --batch-rows ({})",
                           queue.queue_rows_max, queue.rows_max);
  }
  if (queue.wait_max >= options.server.deadline) {
    return InvalidArgument("--batch-wait-us is {}, must be less than --deadline-ms ({})",
                           queue.wait_max.count() / 1000,
                           options.server.deadline / Milliseconds(1));
  }
  // A request can arrive at the end of the grace, and has its whole deadline then.
  const Duration last = options.server.drain_grace + options.server.deadline;
  if (Seconds(options.drain_s) < last) {
    return InvalidArgument(
        "--drain-s is {}, must be at least {} (--drain-grace-s plus --deadline-ms): the drain "
        "would "
        "cut off requests",
        options.drain_s, ToSeconds(last));
  }
  return Status::Ok();
}

// Replaces the model when the run has written another checkpoint. A failure is logged once; the
// former weights remain in use.
class Reloader {
 public:
  Reloader(ModelSource* source, ModelServer* server, ServingMetrics* metrics)
      : source_(source), server_(server), metrics_(metrics) {}
  void Turn() {
    auto model = source_->Poll();
    Status status = model.status();
    if (status.ok() && !*model) return;
    const std::uint64_t updates = status.ok() ? (*model)->updates() : 0;
    if (status.ok()) status = server_->Publish(std::move(*model));
    metrics_->Reloaded(status.ok());
    if (status.ok()) {
      LogInfo("serving the weights of update {}", updates);
    } else if (status.message() != failure_) {
      LogWarning("the former weights remain in use: {}", status.message());
    }
    failure_ = status.message();
  }

 private:
  ModelSource* const source_;
  ModelServer* const server_;
  ServingMetrics* const metrics_;
  std::string failure_;  // the last one, which is not repeated in the log
};

}  // namespace

// The order of the objects is that of their use: the server ends first, then the models.
int Serve(const ServeOptions& options) {
  if (const Status status = CheckServeOptions(options); !status.ok()) return Fail(status);
  const SignalWatch signals(nullptr, false);
  ServingMetrics metrics;
  ModelSource source(options.source, &metrics);
  // 1. Load, and listen.
  const auto model = source.Load();
  if (!model.ok()) return Fail(model.status());
  const auto server = ModelServer::Make(options.server, *model, &metrics);
  if (!server.ok()) return Fail(server.status());
  fmt::print("serving http://{}{} (update {}); Ctrl-C drains and ends\n", (*server)->address(),
             (*model)->path(), (*model)->updates());
  std::fflush(stdout);
  // 2. Look for checkpoints until a signal; the server has its own threads.
  Reloader reloader(&source, server->get(), &metrics);
  const SystemClock clock;
  Time next = clock.Now();
  while (signals.count() == 0) {
    std::this_thread::sleep_for(Milliseconds(20));
    if (options.reload_s <= 0 || clock.Now() < next) continue;
    reloader.Turn();
    next = clock.Now() + Seconds(options.reload_s);
  }
  // 3. Drain.
  const std::size_t left = (*server)->Drain(Seconds(options.drain_s));
  if (left == 0) return kExitOk;
  fmt::print(stderr, "troop: {} connections were not finished within --drain-s ({} s)\n", left,
             options.drain_s);
  return kExitFailed;
}

// Times are flags in their usual units, and are converted once all flags are parsed.
void RegisterServe(CLI::App& app, ChosenCommand* chosen) {
  const auto options = std::make_shared<ServeOptions>();
  CLI::App* serve = app.add_subcommand("serve", "answer requests for a model over HTTP");
  ModelServer::Options& server = options->server;
  const auto number = [serve](const char* name, auto* value, double low, double high,
                              const char* help) {
    serve->add_option(name, *value, fmt::format("{} ({})", help, *value))
        ->check(CLI::Range(low, high));
  };
  // The checkpoint.
  serve
      ->add_option("checkpoint", options->source.path,
                   "run folder (newest checkpoint), checkpoint folder, or a folder of Hugging "
                   "Face files with the vocabulary")
      ->required();
  serve->add_flag("--best", options->source.best,
                  "the best checkpoint of the run (evaluator.keep_best)");
  number("--reload-s", &options->reload_s, 0, 3600,
         "seconds between looks for a new checkpoint; 0: never");
  // The address.
  serve->add_option("--listen", server.address,
                    "HOST:PORT to listen on (127.0.0.1:8000); port 0 selects a free one");
  serve->add_option("--token-file", server.token_file,
                    "file with the access token, on one line; required to serve other machines");
  // Batches and deadlines.
  number("--batch-rows", &options->source.rows_max, 1, 65536,
         "rows that are computed together, and that one request may have");
  const auto wait_us = std::make_shared<std::int64_t>(0);
  number("--batch-wait-us", wait_us.get(), 0, 10'000'000,
         "microseconds for which a request waits for others");
  number("--queue-rows", &server.queue.queue_rows_max, 1, 10'000'000,
         "rows that wait; beyond it requests get 503");
  const auto deadline_ms = std::make_shared<std::int64_t>(1000);
  number("--deadline-ms", deadline_ms.get(), 1, 600'000, "milliseconds until a request gets 504");
  number("--drain-s", &options->drain_s, 1, 3600, "seconds for the drain after SIGTERM");
  const auto grace_s = std::make_shared<double>(1);
  number("--drain-grace-s", grace_s.get(), 0, 3600,
         "seconds of the drain in which an idle connection can send one more request");
  // Limits.
  number("--connections", &server.connections_max, 1, 100'000, "open connections");
  number("--body-bytes", &server.body_bytes_max, 64, 1 << 30, "bytes of a request's body");
  number("--rate-limit", &server.requests_per_second, 0, 1e9,
         "requests per second of one client address; 0: no limit");
  number("--sessions", &options->source.sessions_max, 0, 10'000'000, "sessions with frame stacks");
  const auto idle_s = std::make_shared<double>(300);
  number("--session-idle-s", idle_s.get(), 1, 1e6, "seconds after which an unused session ends");
  serve->callback([=] {
    options->server.queue.rows_max = options->source.rows_max;
    options->server.queue.wait_max = std::chrono::microseconds(*wait_us);
    options->server.deadline = Milliseconds(*deadline_ms);
    options->server.drain_grace = Seconds(*grace_s);
    options->source.session_idle = Seconds(*idle_s);
    *chosen = [options] { return Serve(*options); };
  });
}

}  // namespace troop
