// The checks of `troop doctor` on a coordinator: name, answer, round trip, throughput, clock.
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "apps/doctor/doctor_command.h"
#include "apps/monitor/coordinator_client.h"
#include "core/base/time.h"
#include "core/base/version.h"
#include "core/storage/json.h"
#include "fleet/launcher/endpoints.h"
#include "net/control/join_request.h"
#include "net/control/status_reply.h"
#include "net/network.h"
#include "net/transport/endpoint.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

using Kind = Verdict::Kind;

constexpr Duration kPatience = Seconds(4);  // per request
constexpr int kRounds = 9;                  // small requests for the round trip
constexpr std::size_t kLoadBytes = std::size_t{2} << 20;
constexpr int kLoads = 3;  // requests with kLoadBytes for the throughput
// Limits of a good result: clock offset, round trip, throughput. Beyond them it is a note.
constexpr double kClockOff_s = 2, kSlowTrip_s = 0.05, kSlowMBps = 10;

// One connection to a coordinator, for repeated requests.
class Line {
 public:
  static Result<std::unique_ptr<Line>> Open(const DoctorOptions& options) {
    std::unique_ptr<Line> line(new Line);
    if (!options.key.empty()) {
      TROOP_ASSIGN_OR_RETURN(line->keys_, LoadKeys(options.key));
    }
    const Role role = line->keys_ == nullptr ? Role::kTool : line->keys_->role;
    TROOP_ASSIGN_OR_RETURN(line->network_, MakeZmqNetwork({.keys = line->keys_}));
    TROOP_ASSIGN_OR_RETURN(line->channel_, line->network_->Connect(options.coordinator,
                                                                   {.origin = GuestOrigin(role)}));
    return line;
  }
  // Sends the request that the key's role may send: status for a tool, join for others.
  // `load_bytes` of zeros travel with it.
  Result<Message> Ask(std::size_t load_bytes) {
    Message question{.type = MessageType::kStatus};
    if (keys_ != nullptr && keys_->role != Role::kTool) {
      char host[256] = {};
      gethostname(host, sizeof host - 1);
      question = {.type = MessageType::kJoin,
                  .body = EncodeBody(JoinRequest{
                      .role = keys_->role, .count = 1, .version = kTroopVersion, .host = host})};
    }
    if (load_bytes > 0) question.parts.push_back(MutableBuffer::Zeros(load_bytes).Freeze());
    TROOP_ASSIGN_OR_RETURN(const Ticket ticket, channel_->Send(question, clock_.Now() + kPatience));
    for (;;) {
      network_->Pump(clock_.Now());
      if (auto answer = channel_->Poll(ticket)) return std::move(*answer);
      network_->Wait(clock_.Now(), clock_.Now() + Milliseconds(100));
    }
  }
  // Durations of `count` requests in seconds, ascending; fewer if one is not answered.
  std::vector<double> Time(int count, std::size_t load_bytes) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const auto before = clock_.Now();
      const Code code = Ask(load_bytes).status().code();
      // A rejection is an answer too, and its time counts.
      if (code == Code::kDeadlineExceeded || code == Code::kUnavailable) break;
      seconds.push_back(ToSeconds(clock_.Now() - before));
    }
    std::ranges::sort(seconds);
    return seconds;
  }

 private:
  Line() = default;
  const SystemClock clock_{};
  std::shared_ptr<const KeyRing> keys_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Channel> channel_;
};

// Compares the coordinator's wall clock with the middle of the round trip here.
void ExamineClock(const Message& answer, double before_s, double after_s,
                  const ReportVerdict& report) {
  const Result<StatusReply> reply = DecodeBody<StatusReply>(answer.body);
  const Result<JsonValue> view = reply.ok() ? ParseJson(reply->json) : reply.status();
  const JsonValue* const there = view.ok() ? view->Find("time_s") : nullptr;
  if (there == nullptr || there->kind != JsonValue::Kind::kNumber) return;
  // A coordinator that rejects the request sends no clock: then nothing is reported.
  const double offset = there->number - (before_s + after_s) / 2;
  const bool off = std::abs(offset) > kClockOff_s;
  report({off ? Kind::kNote : Kind::kOk, "clock",
          fmt::format("{:+.3f} s between the coordinator's clock and this one{}", offset,
                      off ? "; harmless for training, but times in logs and metrics will differ: "
                            "start an NTP client"
                          : "")});
}

// Median round trip of small requests, then throughput of large ones.
void ExamineSpeed(Line* line, const ReportVerdict& report) {
  const std::vector<double> trips = line->Time(kRounds, 0);
  if (trips.empty()) {
    return report({Kind::kFail, "round trip",
                   "the coordinator answered once, then no more; check the network"});
  }
  const double trip = trips[trips.size() / 2];
  report({trip > kSlowTrip_s ? Kind::kNote : Kind::kOk, "round trip",
          fmt::format("{:.2f} ms ({:.2f} to {:.2f} in {})", 1e3 * trip, 1e3 * trips.front(),
                      1e3 * trips.back(), trips.size())});
  // The median upload, without the round trip of its reply.
  const std::vector<double> loads = line->Time(kLoads, kLoadBytes);
  if (loads.empty()) {
    return report(
        {Kind::kFail, "link",
         fmt::format("{} MiB did not arrive within {} s, but small messages do; check the "
                     "MTU and traffic shaping",
                     kLoadBytes >> 20, ToSeconds(kPatience))});
  }
  const double seconds = std::max(loads[loads.size() / 2] - trip, 1e-6);
  const double mbps = double(kLoadBytes) / seconds / 1e6;
  report({mbps < kSlowMBps ? Kind::kNote : Kind::kOk, "link",
          fmt::format("{:.0f} MB/s to the coordinator", mbps)});
}

}  // namespace

// Steps: parse the endpoint, resolve the name, send one request, then measure clock and speed. Each
// failure ends the checks, as the later ones depend on it.
void ExamineCoordinator(const DoctorOptions& options, const ReportVerdict& report) {
  const Result<Endpoint> endpoint = ParseEndpoint(options.coordinator);
  if (!endpoint.ok() || endpoint->transport != Endpoint::kTcp) {
    return report({Kind::kFail, "coordinator",
                   fmt::format("\"{}\" is not tcp://HOST:PORT", options.coordinator)});
  }
  const std::string host = endpoint->address.substr(0, endpoint->address.rfind(':'));
  // getaddrinfo takes IPv6 addresses without brackets.
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  const std::string name = brackets ? host.substr(1, host.size() - 2) : host;
  const addrinfo hints{.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    return report({Kind::kFail, "names",
                   fmt::format("{}: {}; use an address, or fix /etc/hosts or the name server", name,
                               gai_strerror(error))});
  }
  // Only the fact that the name resolves is needed; the network resolves it again.
  freeaddrinfo(found);
  report({Kind::kOk, "names", name + " resolves"});
  Result<std::unique_ptr<Line>> line = Line::Open(options);
  if (!line.ok()) return report({Kind::kFail, "coordinator", line.status().message()});
  // The middle of the two readings is compared with the coordinator's clock.
  const double before = WallSeconds();
  const Result<Message> answer = (*line)->Ask(0);
  const double after = WallSeconds();
  const Code code = answer.status().code();
  if (code == Code::kDeadlineExceeded || code == Code::kUnavailable) {
    return report(
        {Kind::kFail, "coordinator",
         fmt::format("no answer at {} within {} s; start the run (fleet.listen), check the "
                     "address, or open the port in the firewall",
                     options.coordinator, ToSeconds(kPatience))});
  }
  if (!answer.ok()) {
    return report({Kind::kFail, "coordinator", answer.status().message()});
  }
  report({Kind::kOk, "coordinator", "the coordinator answers"});
  ExamineClock(*answer, before, after, report);
  ExamineSpeed(line->get(), report);
}

}  // namespace troop
