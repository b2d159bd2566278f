#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/status.h"
#include "core/base/time.h"
#include "core/storage/json.h"

namespace troop {

// Queries the coordinator of the run at `root` for its status, as JSON (ViewJson). Blocks for at
// most a second.
using AskStatus = std::function<Result<std::string>(const std::string& root)>;
Result<std::string> AskCoordinator(const std::string& root);

// Queries coordinators in a background thread, so that the caller never blocks: every two seconds
// for each run that was requested recently. Thread safety: any thread may call Latest.
class StatusPoller {
 public:
  static constexpr std::size_t kRunsMax = 32;
  struct Answer {
    std::uint64_t number = 0;  // unique per answer
    JsonValue view;            // kNull if the query failed, with the reason in `error`
    std::string error;
  };

  explicit StatusPoller(AskStatus ask);
  ~StatusPoller();
  StatusPoller(const StatusPoller&) = delete;
  // The newest answer; null: none yet. Keeps the run in the set of queried runs.
  std::shared_ptr<const Answer> Latest(const std::string& root);

 private:
  // `wanted`: last call of Latest. `next`: time of the next query.
  struct Run {
    std::shared_ptr<const Answer> answer;
    Time wanted{}, next{};
  };
  // Body of the background thread.
  void Loop();

  const AskStatus ask_;
  const SystemClock clock_;
  std::mutex mutex_;  // protects the members below, except thread_
  std::condition_variable changed_;
  std::map<std::string, Run> runs_;
  std::uint64_t number_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troop
