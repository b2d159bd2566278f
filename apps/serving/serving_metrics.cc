// Implements the counters of a model server and their Prometheus text.
#include "apps/serving/serving_metrics.h"

#include "apps/monitor/prometheus_writer.h"

namespace troop {

// The counters by status appear with their first request.
void ServingMetrics::Answered(int status, Duration latency) {
  const std::lock_guard lock(mutex_);
  ++requests_[status];
  latency_s_.Add(ToSeconds(latency));
}

// Rows per batch, as a histogram, show whether requests share batches.
void ServingMetrics::Computed(std::int64_t requests, std::int64_t rows) {
  const std::lock_guard lock(mutex_);
  ++batches_;
  batched_requests_ += std::uint64_t(requests);
  rows_ += std::uint64_t(rows);
  batch_rows_.Add(double(rows));
}

// Gauges: the last value counts.
void ServingMetrics::SetQueue(std::int64_t rows) {
  const std::lock_guard lock(mutex_);
  queue_rows_ = rows;
}

void ServingMetrics::SetSessions(std::size_t sessions) {
  const std::lock_guard lock(mutex_);
  sessions_ = sessions;
}

void ServingMetrics::SetUpdates(std::uint64_t updates) {
  const std::lock_guard lock(mutex_);
  updates_ = updates;
}

// Failures are counted apart, for alerts.
void ServingMetrics::Reloaded(bool success) {
  const std::lock_guard lock(mutex_);
  ++(success ? reloads_ : reload_failures_);
}

// Zero before the first request with this status.
std::uint64_t ServingMetrics::requests(int status) const {
  const std::lock_guard lock(mutex_);
  const auto it = requests_.find(status);
  return it == requests_.end() ? 0 : it->second;
}

std::uint64_t ServingMetrics::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

// A request whose deadline passed while it was computed is counted once, by the HTTP server.
std::string ServingMetrics::Text(const HttpServer::Counters& http) const {
  const std::lock_guard lock(mutex_);
  PrometheusWriter out;
  out.Begin("troop_serve_requests_total", "counter", "Requests for the model, by HTTP status.");
  for (const auto& [status, count] : requests_)
    out.Sample({{"code", std::to_string(status)}}, double(count));
  out.Counter("troop_serve_overdue_total", "Requests answered with 504 while they were computed.",
              double(http.overdue));
  out.Counter("troop_serve_refused_total",
              "Requests answered with an error before their body was read.", double(http.refused));
  out.Counter("troop_serve_cut_off_total", "Connections closed without a complete response.",
              double(http.cut_off));
  out.Begin("troop_serve_latency_seconds", "histogram",
            "Time between the arrival of a request and its answer.");
  out.HistogramSamples({}, latency_s_);
  out.Begin("troop_serve_batch_rows", "histogram", "Rows that were computed together.");
  out.HistogramSamples({}, batch_rows_);
  out.Counter("troop_serve_batches_total", "Batches computed.", double(batches_));
  out.Counter("troop_serve_batched_requests_total", "Requests in these batches.",
              double(batched_requests_));
  out.Counter("troop_serve_rows_total", "Observations or texts computed.", double(rows_));
  out.Gauge("troop_serve_queue_rows", "Rows that wait for a batch.", double(queue_rows_));
  out.Gauge("troop_serve_sessions", "Sessions with a frame stack.", double(sessions_));
  out.Gauge("troop_serve_updates", "Updates of the weights in use.", double(updates_));
  out.Counter("troop_serve_reloads_total", "Checkpoints loaded after the first.", double(reloads_));
  out.Counter("troop_serve_reload_failures_total", "Checkpoints that could not be loaded.",
              double(reload_failures_));
  return out.Take();
}

}  // namespace troop
