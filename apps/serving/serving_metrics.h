#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "apps/monitor/http_server.h"
#include "core/base/time.h"
#include "core/metrics/histogram.h"

namespace troop {

// Counters of a model server. Thread-safe: its functions hold one lock for a moment.
class ServingMetrics {
 public:
  // A request has been answered with this HTTP status. latency: since it was parsed.
  void Answered(int status, Duration latency);
  // A batch has been computed.
  void Computed(std::int64_t requests, std::int64_t rows);
  void SetQueue(std::int64_t rows);
  void SetSessions(std::size_t sessions);
  void SetUpdates(std::uint64_t updates);  // of the weights in use
  void Reloaded(bool success);

  std::uint64_t requests(int status) const;
  std::uint64_t batches() const;
  // The Prometheus text; `http` has the requests that no handler has seen.
  std::string Text(const HttpServer::Counters& http) const;

 private:
  mutable std::mutex mutex_;  // protects all members below
  std::map<int, std::uint64_t> requests_;
  Histogram latency_s_, batch_rows_;
  std::uint64_t batches_ = 0, batched_requests_ = 0, rows_ = 0, reloads_ = 0, reload_failures_ = 0;
  std::uint64_t updates_ = 0;
  std::int64_t queue_rows_ = 0;
  std::size_t sessions_ = 0;
};

}  // namespace troop
