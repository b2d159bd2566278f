#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/monitor/episode_recorder.h"
#include "apps/monitor/http_message.h"
#include "apps/monitor/run_index.h"
#include "apps/monitor/run_view.h"
#include "apps/monitor/status_poller.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// A static file of the page, embedded in the program.
struct DashboardFile {
  std::string_view path, type, bytes;  // "/index.html", media type, content
};
// All files of the page.
std::span<const DashboardFile> DashboardFiles();

// The web dashboard: embedded static files, and a JSON API below /api/v1/
// (docs/guide/dashboard.md). Never changes a run; its only action is to record an episode. Owner:
// one thread. Blocks only on the disk.
class Dashboard {
 public:
  struct Options {
    // The token that requests below /api/ must carry (`Authorization: Bearer`). Empty: no token,
    // and requests with a foreign Host header are rejected.
    std::string token;
    std::string listened;                   // configured HOST:PORT; its host is not foreign
    AskStatus ask = AskCoordinator;         // query for the status of a run
    std::string player = "/proc/self/exe";  // program that records episodes
  };
  // catalog: the runs to show.
  Dashboard(RunIndex catalog, Options options);

  // Answers a request for a file or the API. Never fails: errors are responses.
  HttpResponse Handle(Time now, const HttpRequest& request);

 private:
  HttpResponse Api(Time now, const HttpRequest& request);
  HttpResponse Runs(Time now);
  HttpResponse OfRun(Time now, const HttpRequest& request, const std::string& path,
                     std::span<const std::string> rest);
  HttpResponse Episode(Time now, const HttpRequest& request, const std::string& path);
  HttpResponse Video(const HttpRequest& request, const std::string& path);
  RunDetails& WatchOf(const std::string& path);

  const Options options_;
  RunIndex catalog_;
  struct Watched {
    std::unique_ptr<RunDetails> watch;
    std::uint64_t used = 0;
  };
  std::map<std::string, Watched> watches_;  // by path; the least recently used one is evicted
  std::uint64_t uses_ = 0;
  StatusPoller poller_;
  EpisodeRecorder recorder_;
  std::string runs_json_;
  Time runs_until_{};
};

}  // namespace troop
