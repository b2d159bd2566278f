#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/json.h"
#include "core/status.h"
#include "core/time.h"

namespace troop {

// What its coordinator says of the run in this folder, as JSON (ViewJson); may block for a second.
using AskStatus = std::function<Result<std::string>(const std::string& root)>;
Result<std::string> AskCoordinator(const std::string& root);

// Asks coordinators in a thread of its own, for somebody who must not wait: those runs that
// somebody wanted of late, every other second. Threads: Latest may be called by any.
class StatusAsker {
 public:
  static constexpr std::size_t kRunsMax = 32;
  struct Answer {
    std::uint64_t number = 0;  // differs from one to the next
    JsonValue view;            // kNull: none came, and `error` says why
    std::string error;
  };

  explicit StatusAsker(AskStatus ask);
  ~StatusAsker();
  StatusAsker(const StatusAsker&) = delete;
  // The newest answer; null: none yet. Says that the run is wanted.
  std::shared_ptr<const Answer> Latest(const std::string& root);

 private:
  struct Run {
    std::shared_ptr<const Answer> answer;
    Time wanted{}, next{};
  };
  void Loop();

  const AskStatus ask_;
  const SystemClock clock_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<std::string, Run> runs_;
  std::uint64_t number_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace troop
