// A background thread that polls the coordinators of the runs that a dashboard shows.
#include "apps/monitor/status_poller.h"

#include <algorithm>

#include "apps/monitor/coordinator_client.h"
#include "net/control/status_reply.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

constexpr Duration kAskEvery = Seconds(2);         // query period of a run
constexpr Duration kAskAfterFailure = Seconds(5);  // longer: a failing query blocks the thread
constexpr Duration kWantedFor = Seconds(10);  // time after the last request until polling stops

}  // namespace

Result<std::string> AskCoordinator(const std::string& root) {
  TROOP_ASSIGN_OR_RETURN(const Message answer,
                         CallCoordinator(root, root, {.type = MessageType::kStatus}, Seconds(1)));
  TROOP_ASSIGN_OR_RETURN(StatusReply reply, DecodeBody<StatusReply>(answer.body));
  return std::move(reply.json);
}

StatusPoller::StatusPoller(AskStatus ask) : ask_(std::move(ask)) {
  thread_ = std::thread([this] { Loop(); });
}

// Blocks until a query in progress has ended, at most about a second later.
StatusPoller::~StatusPoller() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// Never blocks on the network: returns the newest answer, null before the first one.
std::shared_ptr<const StatusPoller::Answer> StatusPoller::Latest(const std::string& root) {
  const std::lock_guard lock(mutex_);
  // Evict the run that was requested least recently.
  if (!runs_.contains(root) && runs_.size() >= kRunsMax) {
    runs_.erase(std::ranges::min_element(runs_, {}, [](const auto& r) { return r.second.wanted; }));
  }
  Run& run = runs_[root];
  // Wake the thread only if a query is due; a new run is due at once.
  run.wanted = clock_.Now();
  if (run.next <= run.wanted) changed_.notify_all();
  return run.answer;
}

// One query at a time: a slow coordinator delays the others, but never the callers of Latest.
void StatusPoller::Loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const Time now = clock_.Now();
    // Drop runs that are no longer requested, then query the run that is due first.
    std::erase_if(runs_, [now](const auto& r) { return now - r.second.wanted > kWantedFor; });
    const auto due =
        std::ranges::min_element(runs_, {}, [](const auto& r) { return r.second.next; });
    if (due == runs_.end() || due->second.next > now) {
      changed_.wait_for(lock, due == runs_.end() ? kWantedFor : due->second.next - now);
      continue;
    }
    // The query blocks, so it runs without the lock; the run may be evicted meanwhile.
    const std::string root = due->first;
    lock.unlock();
    // A failure becomes an answer too, so that the dashboard can show its reason.
    auto answer = std::make_shared<Answer>();
    const Result<std::string> text = ask_(root);
    Result<JsonValue> view = text.ok() ? ParseJson(*text) : text.status();
    if (view.ok()) {
      answer->view = std::move(*view);
    } else {
      answer->error = view.status().message();
    }
    lock.lock();
    answer->number = ++number_;
    const auto run = runs_.find(root);
    if (run == runs_.end()) continue;  // evicted meanwhile
    run->second.next = clock_.Now() + (view.ok() ? kAskEvery : kAskAfterFailure);
    run->second.answer = std::move(answer);
  }
}

}  // namespace troop
