#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/episode_recorder.h"
#include "apps/http_message.h"
#include "apps/run_catalog.h"
#include "apps/run_watch.h"
#include "apps/status_asker.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// A file of the page, part of the program.
struct DashboardFile {
  std::string_view path, type, bytes;
};
std::span<const DashboardFile> DashboardFiles();

// The web dashboard: a page of files that are part of the program, and what it shows, as JSON below
// /api/v1/ (docs/guide/dashboard.md lists it). Reads runs and changes none; the one thing it starts
// is the recording of an episode. Owner: one thread; nothing waits longer than a disk.
class Dashboard {
 public:
  struct Options {
    // Empty: the page is for this machine, and a browser that was led here by a foreign name sees
    // nothing. Else what the header `Authorization: Bearer` of all of /api/ must have.
    std::string token;
    std::string listened;  // HOST:PORT of the config; its name is not foreign
    AskStatus ask = AskCoordinator;
    std::string player = "/proc/self/exe";  // records episodes
  };
  Dashboard(RunCatalog catalog, Options options);

  HttpResponse Handle(Time now, const HttpRequest& request);

 private:
  HttpResponse Api(Time now, const HttpRequest& request);
  HttpResponse Runs(Time now);
  HttpResponse OfRun(Time now, const HttpRequest& request, const std::string& path,
                     std::span<const std::string> rest);
  HttpResponse Episode(Time now, const HttpRequest& request, const std::string& path);
  RunWatch& WatchOf(const std::string& path);

  const Options options_;
  RunCatalog catalog_;
  struct Watched {
    std::unique_ptr<RunWatch> watch;
    std::uint64_t used = 0;
  };
  std::map<std::string, Watched> watches_;  // by path; those that were asked for last
  std::uint64_t uses_ = 0;
  StatusAsker asker_;
  EpisodeRecorder recorder_;
  std::string runs_json_;
  Time runs_until_{};
};

}  // namespace troop
