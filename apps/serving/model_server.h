#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "apps/monitor/http_server.h"
#include "apps/serving/batch_worker.h"
#include "apps/serving/client_rate_limit.h"
#include "apps/serving/served_model.h"
#include "apps/serving/serving_metrics.h"

namespace troop {

// The HTTP endpoint of a model (docs/guide/serving.md):
//   POST /v1/act or /v1/predict   the model's requests, batched over connections
//   GET /v1/policy                the model's description
//   GET /health                   ready (200) or draining (503); needs no token
//   GET /metrics                  Prometheus text
// Two threads: that of the HTTP server, which parses, and that of the batch worker, which computes.
// Owner: any one thread.
class ModelServer {
 public:
  struct Options {
    std::string address = "127.0.0.1:8000";  // HOST:PORT; port 0: any free one
    std::string token_file;                  // required on addresses other than loopback
    ServingQueue::Options queue;
    Duration deadline = Seconds(1);     // of each request
    Duration drain_grace = Seconds(1);  // for one more request of an idle connection
    int connections_max = 256;
    std::size_t body_bytes_max = std::size_t{1} << 20;
    double requests_per_second = 0;  // of each client address; 0: no limit
  };
  // Starts serving `model`. metrics: borrowed. Errors: those of HttpServer::Make.
  static Result<std::unique_ptr<ModelServer>> Make(const Options& options,
                                                   std::shared_ptr<ServedModel> model,
                                                   ServingMetrics* metrics);
  // Replaces the model without dropping a request. Errors: kFailedPrecondition: it does not accept
  // the requests of the present one; nothing has changed.
  Status Publish(std::shared_ptr<ServedModel> model);
  // Stops accepting connections and answers all requests of the accepted ones. Returns the number
  // of connections that were not finished at `limit`.
  std::size_t Drain(Duration limit);
  const std::string& address() const { return server_->address(); }

 private:
  ModelServer(const Options& options, ServingMetrics* metrics);
  void Handle(const HttpRequest& request, const HttpReply& reply);
  Status Submit(const HttpRequest& request, const HttpReply& reply, Time now);
  HttpResponse Health() const;

  const Options options_;
  ServingMetrics* const metrics_;
  const SystemClock clock_;
  std::atomic<bool> draining_{false};
  ClientRateLimit rate_;  // used by the server's thread
  BatchWorker worker_;
  std::unique_ptr<HttpServer> server_;  // last member: its thread uses those above
};

}  // namespace troop
