// The dashboard's request routing: static files, security checks, and the JSON API.
#include "apps/monitor/dashboard_api.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/storage/json.h"
#include "core/storage/list_folder.h"
#include "core/storage/read_file.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWatchesMax = 32;  // number of runs whose curves are cached
constexpr Duration kRunsEvery = Seconds(3);
constexpr std::size_t kPathBytesMax = 1024, kValueBytesMax = 2048;
constexpr char kApi[] = "/api/v1/";

// Responses of the API are JSON, errors included: {"error": "…"}.
HttpResponse JsonReply(std::string body) {
  return {.type = "application/json", .body = std::move(body), .shared = {}, .headers = {}};
}

HttpResponse ErrorReply(int status, std::string_view text) {
  HttpResponse reply = JsonReply(JsonObject().Add("error", text).str());
  reply.status = status;
  return reply;
}

// Failures of a run's files or coordinator are 503: a later request may succeed.
int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kFailedPrecondition:
      return 409;
    default:
      return 503;
  }
}

// The value as a response, or the error with its HTTP status.
HttpResponse ReplyOf(Result<std::string> json) {
  if (json.ok()) return JsonReply(std::move(*json));
  return ErrorReply(HttpStatusOf(json.status()), json.status().message());
}

// A non-negative integer of the query, `missing` if absent. Errors: kInvalidArgument.
Result<std::size_t> SizeOf(const HttpRequest& request, const std::string& key,
                           std::size_t missing) {
  const auto found = request.query.find(key);
  if (found == request.query.end()) return missing;
  std::uint32_t number = 0;
  const char* const end = found->second.data() + found->second.size();
  const auto [stop, error] = std::from_chars(found->second.data(), end, number);
  if (error == std::errc() && stop == end) return std::size_t{number};
  return InvalidArgument("{} is {}, must be a non-negative integer", key,
                         found->second.substr(0, 20));
}

// Empty parts between separators are kept; a trailing separator adds none.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

// True for a request whose path or query exceeds the limits.
bool TooLong(const HttpRequest& request) {
  const auto long_value = [](const auto& pair) {
    return pair.first.size() + pair.second.size() > kValueBytesMax;
  };
  // 16 parameters are more than any request of the page has.
  return request.path.size() > kPathBytesMax || request.query.size() > 16 ||
         std::ranges::any_of(request.query, long_value);
}

// Adds to the headers of HttpHead: only the page's own scripts, styles and images are allowed.
void AddSecurityHeaders(HttpResponse* reply) {
  reply->headers.emplace_back(
      "Content-Security-Policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src "
      "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
  reply->headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  reply->headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
}

}  // namespace

Dashboard::Dashboard(RunIndex catalog, Options options)
    : options_(std::move(options)),
      catalog_(std::move(catalog)),
      poller_(options_.ask),
      recorder_(options_.player) {}

// Order of the checks: size, Host (DNS rebinding), then API or static file.
HttpResponse Dashboard::Handle(Time now, const HttpRequest& request) {
  HttpResponse reply;
  if (TooLong(request)) {
    reply = ErrorReply(414, "the address is too long");
  } else if (options_.token.empty() && IsForeignHost(request.Header("host"), options_.listened)) {
    reply = ErrorReply(403,
                       "this host name is not allowed; use an address, http://localhost or the "
                       "host of --listen or fleet.dashboard, or set a token");
  } else if (request.path.starts_with("/api/")) {
    reply = Api(now, request);
  } else if (request.method != "GET" && request.method != "HEAD") {
    reply = ErrorReply(405, "GET only");
  } else {
    const std::string_view path =
        request.path == "/" ? std::string_view("/index.html") : std::string_view(request.path);
    const auto files = DashboardFiles();
    // Files are compiled in and found by exact name, so no path can leave their set.
    const auto file = std::ranges::find(files, path, &DashboardFile::path);
    if (file == files.end()) {
      reply = ErrorReply(404, "no such page");
    } else {
      reply = {.type = std::string(file->type),
               .body = std::string(file->bytes),
               .shared = {},
               .headers = {}};
    }
  }
  AddSecurityHeaders(&reply);
  return reply;
}

// Checks token, version and method, then dispatches by path: /api/v1/runs, /api/v1/runs/NAME/….
HttpResponse Dashboard::Api(Time now, const HttpRequest& request) {
  if (!options_.token.empty() && !HasBearerToken(request, options_.token)) {
    return ErrorReply(401, request.Header("authorization").empty()
                               ? "a token is required: the content of the dashboard's token file"
                               : "this is not the token in the dashboard's token file");
  }
  if (!request.path.starts_with(kApi)) {
    return ErrorReply(404, "unknown API version; use /api/v1/");
  }
  if (request.method == "POST") {
    // CSRF protection: a foreign page can make a browser POST, but not with a custom header.
    if (request.Header("x-troop") != "1") {
      return ErrorReply(403, "a POST must have the header X-Troop: 1");
    }
  } else if (request.method != "GET" && request.method != "HEAD") {
    return ErrorReply(405, "GET and POST only");
  }
  const std::vector<std::string> parts =
      Split(std::string_view(request.path).substr(sizeof kApi - 1), '/');
  // There is no timer: each API request advances the recorder.
  recorder_.Poll(now);
  if (parts.empty() || parts[0] != "runs") return ErrorReply(404, "no such thing");
  if (request.method == "POST" && (parts.size() != 3 || parts[2] != "episode")) {
    return ErrorReply(405, "GET only");
  }
  if (parts.size() == 1) return Runs(now);
  // A run that started after the last listing is found by a refresh.
  std::string path = catalog_.Find(parts[1]);
  if (path.empty()) {
    catalog_.Refresh();
    path = catalog_.Find(parts[1]);
  }
  if (path.empty()) return ErrorReply(404, "no run of this name");
  return OfRun(now, request, path, std::span(parts).subspan(2));
}

// The list of runs, cached for kRunsEvery.
HttpResponse Dashboard::Runs(Time now) {
  if (now >= runs_until_) {
    catalog_.Refresh();
    JsonArray runs;
    for (const std::string& name : catalog_.names()) runs.Add(catalog_.Summary(name));
    runs_json_ = JsonObject().Add("runs", runs).str();
    runs_until_ = now + kRunsEvery;
  }
  return JsonReply(runs_json_);
}

// The cached watch of a run; evicts the least recently used one if there are kWatchesMax.
RunDetails& Dashboard::WatchOf(const std::string& path) {
  if (!watches_.contains(path) && watches_.size() >= kWatchesMax) {
    watches_.erase(std::ranges::min_element(
        watches_, {}, [](const auto& watched) { return watched.second.used; }));
  }
  Watched& watched = watches_[path];
  if (watched.watch == nullptr) {
    watched.watch = std::make_unique<RunDetails>(path);
  }
  watched.used = ++uses_;
  return *watched.watch;
}

// The resources of one run: overview, config, curves, members, logs, episode.
HttpResponse Dashboard::OfRun(Time now, const HttpRequest& request, const std::string& path,
                              std::span<const std::string> rest) {
  const std::string what = rest.empty() ? "" : rest[0];
  // Only logs have a second level: the name of a log file.
  if (rest.size() > 2 || (rest.size() == 2 && what != "logs")) {
    return ErrorReply(404, "no such thing");
  }
  // Other resources read the run's files through a cached watch.
  if (what == "episode" || what == "episode.gif") return Episode(now, request, path);
  if (what == "video" || what == "video.gif") return Video(request, path);
  RunDetails& watch = WatchOf(path);
  watch.Refresh();
  // Only these two show the coordinator's status; the others do not cause requests to it.
  if (watch.asks() && (what.empty() || what == "members")) watch.SetStatus(poller_.Latest(path));
  if (what.empty()) return JsonReply(watch.OverviewJson());
  if (what == "config") return JsonReply(watch.ConfigJson());
  if (what == "curves") {
    const Result<std::size_t> points = SizeOf(request, "points", 400);
    if (!points.ok()) return ReplyOf(points.status());
    return ReplyOf(watch.CurvesJson(Split(request.Query("names"), ','), *points));
  }
  if (what == "members") {
    // Pages keep the response small for fleets of thousands of members.
    const Result<std::size_t> offset = SizeOf(request, "offset", 0);
    const Result<std::size_t> limit = SizeOf(request, "limit", 50);
    if (!offset.ok() || !limit.ok()) return ReplyOf(offset.ok() ? limit.status() : offset.status());
    const std::string sort = request.Query("sort");
    return ReplyOf(watch.MembersJson({.role = request.Query("role"),
                                      .text = request.Query("text"),
                                      .sort = sort.empty() ? "role" : sort,
                                      .descending = request.Query("order") == "desc",
                                      .offset = *offset,
                                      .limit = *limit}));
  }
  if (what == "logs" && rest.size() == 1) {
    return JsonReply(watch.LogsJson(request.Query("text")));
  }
  if (what == "logs") {
    const Result<std::size_t> bytes = SizeOf(request, "bytes", 16 << 10);
    return bytes.ok() ? ReplyOf(watch.LogJson(rest[1], *bytes)) : ReplyOf(bytes.status());
  }
  return ErrorReply(404, "no such thing");
}

// The newest evaluation video of the run: its name, and its bytes. The name has the number of
// updates; empty: there is none.
HttpResponse Dashboard::Video(const HttpRequest& request, const std::string& path) {
  std::string newest;
  // Names have a fixed width, so the last one by name is the newest. A missing folder is empty.
  const auto files = ListFolder(path + "/videos");
  for (const fs::path& file : files.ok() ? *files : std::vector<fs::path>()) {
    const std::string name = file.filename().string();
    if (name.ends_with(".gif")) newest = std::max(newest, name);
  }
  if (!request.path.ends_with(".gif")) return JsonReply(JsonObject().Add("name", newest).str());
  if (newest.empty()) return ErrorReply(404, "the run has no evaluation video");
  Result<std::string> gif = ReadFile(path + "/videos/" + newest, EpisodeRecorder::kGifBytesMax);
  if (!gif.ok()) return ErrorReply(HttpStatusOf(gif.status()), gif.status().message());
  return {.type = "image/gif", .body = std::move(*gif), .shared = {}, .headers = {}};
}

// POST starts a recording, GET returns its state, and episode.gif the result.
HttpResponse Dashboard::Episode(Time now, const HttpRequest& request, const std::string& path) {
  if (request.path.ends_with(".gif")) {
    const Result<Buffer> gif = recorder_.Gif(path);
    if (!gif.ok()) return ErrorReply(HttpStatusOf(gif.status()), gif.status().message());
    return {.type = "image/gif", .body = std::string(gif->text()), .shared = {}, .headers = {}};
  }
  if (request.method == "POST") {
    const Status started = recorder_.Start(now, path);
    if (!started.ok()) return ErrorReply(HttpStatusOf(started), started.message());
  }
  return JsonReply(recorder_.Json(path));
}

}  // namespace troop
