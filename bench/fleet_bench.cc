// Actors without environments, to load a coordinator: each registers over its own socket and sends
// heartbeats with metrics like an actor (FleetMember).
//
// fleet_bench ENDPOINT CLIENTS
//
// One more actor, in its own process, is there to be killed. When all are members, prints their
// number and that actor's name and process as a line of JSON. Runs until its standard input ends;
// then prints the smallest number of answered heartbeats of an actor, and the age of the oldest
// last answer.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/version.h"
#include "core/metrics/metrics.h"
#include "fleet/launcher/supervisor.h"
#include "fleet/roles/node_runner.h"
#include "net/control/fleet_member.h"
#include "net/control/register_request.h"
#include "net/security/access_control.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr int kClientsOfAProcess = 250;
// Names of the new actors are numbers; the run's own actors have their indices.
constexpr int kFirstName = 1 << 20;

// Report of a process about its clients, written to a pipe at once.
struct News {
  std::int32_t registered = 0, failed = 0;
  std::int32_t index = -1;  // of its last client
  std::int64_t beats_min = 0;
  double silence_max_s = 0;
};

class Client {
 public:
  Client(Network* network, std::string coordinator, std::int32_t number)
      : network_(network), coordinator_(std::move(coordinator)), number_(number) {}

  // False if it is not a member and cannot become one.
  bool Step(Time now) {
    if (member_) {
      const Time before = member_->last_known();
      member_->Poll(now, metrics_);
      beats_ += member_->last_known() != before;
      return member_->lost().ok();
    }
    if (!registration_ && !Ask(now).ok()) return false;
    auto answer = registration_->Poll(ticket_);
    return !answer || Join(*answer).ok();
  }
  bool member() const { return beats_ > 0; }
  std::int32_t index() const { return member_ ? member_->options().index : -1; }
  std::int64_t beats() const { return beats_; }
  Time last_known() const { return member_->last_known(); }
  Time next() const { return member_ ? member_->next_heartbeat() : kForever; }

 private:
  Status Ask(Time now) {
    const Origin origin{
        .role = Role::kTool, .index = NewcomerIndex(Role::kActor, number_), .incarnation = 1};
    TROOP_ASSIGN_OR_RETURN(registration_, network_->Connect(coordinator_, {.origin = origin}));
    Message request{.type = MessageType::kRegister,
                    .body = EncodeBody(RegisterRequest{.role = Role::kActor,
                                                       .index = -1,
                                                       .version = kTroopVersion,
                                                       .process = number_,
                                                       .host = "bench"})};
    TROOP_ASSIGN_OR_RETURN(ticket_, registration_->Send(request, now + Seconds(60)));
    return Status::Ok();
  }

  Status Join(const Result<Message>& answer) {
    TROOP_RETURN_IF_ERROR(answer.status());
    TROOP_ASSIGN_OR_RETURN(const auto reply, DecodeBody<RegisterReply>(answer->body));
    registration_.reset();
    const Origin origin{
        .role = Role::kActor, .index = reply.index, .incarnation = reply.incarnation};
    TROOP_ASSIGN_OR_RETURN(auto channel, network_->Connect(coordinator_, {.origin = origin}));
    member_ = std::make_unique<FleetMember>(
        std::move(channel),
        FleetMember::Options{
            .role = Role::kActor, .index = reply.index, .incarnation = reply.incarnation});
    // Same metrics as ActorNode.
    for (const char* name : {"actor/steps", "actor/nonfinite_values", "actor/env_faults"}) {
      metrics_.Gauge(name, 0, MetricKind::kCounter);
    }
    metrics_.Gauge("actor/inflight_inserts", 1, MetricKind::kGaugeSum);
    metrics_.Gauge("actor/insert_blocked", 0);
    metrics_.Gauge("actor/weights_version", 1);
    metrics_.Count("actor/episodes");
    metrics_.Count("actor/episode_return_sum");
    return Status::Ok();
  }

  Network* const network_;
  const std::string coordinator_;
  const std::int32_t number_;
  std::unique_ptr<Channel> registration_;
  Ticket ticket_ = 0;
  std::unique_ptr<FleetMember> member_;
  Metrics metrics_;
  std::int64_t beats_ = 0;
};

void Tell(int pipe, const News& news) {
  if (write(pipe, &news, sizeof news) != sizeof news) _exit(1);
}

// Runs the clients of one process until SIGTERM.
[[noreturn]] void Play(const std::string& coordinator, int first, int count, int pipe,
                       double heartbeat_timeout_s) {
  auto network = MakeZmqNetwork({.dead_after = Seconds(heartbeat_timeout_s),
                                 .heartbeat_every = Seconds(heartbeat_timeout_s / 3)});
  TROOP_CHECK(network.ok(), "{}", network.status().ToString());
  const SignalWatch signals(network->get(), true);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<Client>(network->get(), coordinator, first + i));
  }
  const SystemClock clock;
  News news;
  while (signals.count() == 0) {
    const Time now = clock.Now();
    (*network)->Pump(now);
    Time next = now + Milliseconds(100);
    for (const auto& client : clients) {
      if (!client->Step(now)) ++news.failed;
      next = std::min(next, client->next());
    }
    const auto members = std::int32_t(std::ranges::count_if(clients, &Client::member));
    if (news.failed > 0 || (members == count && news.registered < count)) {
      news.registered = members;
      news.index = clients.back()->index();
      Tell(pipe, news);
    }
    if (news.failed > 0) _exit(1);
    const Time after = clock.Now();
    if (next > after) (*network)->Wait(after, next);
  }
  news.beats_min = std::numeric_limits<std::int64_t>::max();
  for (const auto& client : clients) {
    news.beats_min = std::min(news.beats_min, client->beats());
    news.silence_max_s =
        std::max(news.silence_max_s, ToSeconds(clock.Now() - client->last_known()));
  }
  Tell(pipe, news);
  _exit(0);
}

int Main(const std::string& coordinator, int clients) {
  struct Process {
    pid_t id;
    int pipe;
  };
  std::vector<int> counts(std::size_t(clients / kClientsOfAProcess), kClientsOfAProcess);
  if (clients % kClientsOfAProcess > 0) counts.push_back(clients % kClientsOfAProcess);
  counts.push_back(1);  // the actor to be killed
  std::vector<Process> processes;
  int first = kFirstName;
  const double heartbeat_timeout_s =
      ActorsDeadAfter({}, clients);  // same value as a launcher passes
  for (const int count : counts) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    const pid_t id = fork();
    if (id == 0) Play(coordinator, first, count, ends[1], heartbeat_timeout_s);
    if (id < 0) return 1;
    close(ends[1]);
    processes.push_back({id, ends[0]});
    first += count;
  }
  News last;
  std::int64_t registered = 0;
  for (const Process& process : processes) {
    if (read(process.pipe, &last, sizeof last) != sizeof last || last.failed > 0) {
      std::fprintf(stderr, "fleet_bench: not all clients were admitted\n");
      for (const Process& p : processes) kill(p.id, SIGKILL);
      return 1;
    }
    registered += last.registered;
  }
  fmt::print("{{\"registered\": {}, \"victim\": \"actor-{}\", \"victim_process\": {}}}\n",
             registered, last.index, processes.back().id);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  processes.pop_back();
  News all{.beats_min = std::numeric_limits<std::int64_t>::max()};
  for (const Process& process : processes) kill(process.id, SIGTERM);
  for (const Process& process : processes) {
    News news;
    if (read(process.pipe, &news, sizeof news) != sizeof news) return 1;
    all.beats_min = std::min(all.beats_min, news.beats_min);
    all.silence_max_s = std::max(all.silence_max_s, news.silence_max_s);
  }
  fmt::print("{{\"beats_min\": {}, \"silence_max_s\": {:.3f}}}\n", all.beats_min,
             all.silence_max_s);
  return 0;
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: fleet_bench ENDPOINT CLIENTS\n");
    return 2;
  }
  return troop::Main(argv[1], std::atoi(argv[2]));
}
