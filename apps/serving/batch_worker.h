#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "apps/serving/served_model.h"
#include "apps/serving/serving_metrics.h"
#include "apps/serving/serving_queue.h"

namespace troop {

// The thread that computes batches. While it computes one, the requests of the next one gather, so
// that batches grow with the load. Each batch uses the newest model, from its begin to its end.
// Owner: any thread; the destructor joins the worker.
class BatchWorker {
 public:
  // metrics: borrowed.
  BatchWorker(const ServingQueue::Options& options, ServingMetrics* metrics);
  ~BatchWorker();
  BatchWorker(const BatchWorker&) = delete;
  BatchWorker& operator=(const BatchWorker&) = delete;

  // Thread-safe. Adds a request, which is answered through its reply. Errors: kResourceExhausted:
  // the queue is full; the reply is not used.
  Status Add(ServingRequest request);
  // Thread-safe. Replaces the model of later batches. REQUIRES: it accepts requests of the former.
  void Publish(std::shared_ptr<ServedModel> model);
  // Thread-safe. The newest model; null before the first Publish.
  std::shared_ptr<ServedModel> model() const;
  // Ends the thread; requests that still wait get 503. May be called twice.
  void Stop();

 private:
  void Run();
  void Finish(const ServingRequest& request, HttpResponse response);
  void Compute(std::vector<ServingRequest> batch, ServedModel* model);

  ServingMetrics* const metrics_;
  const SystemClock clock_;
  mutable std::mutex mutex_;  // protects queue_, model_ and stop_
  std::condition_variable changed_;
  ServingQueue queue_;
  std::shared_ptr<ServedModel> model_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace troop
