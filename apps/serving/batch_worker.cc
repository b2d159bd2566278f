// Implements the thread that computes batches of requests.
#include "apps/serving/batch_worker.h"

#include <signal.h>

#include <chrono>
#include <utility>

#include "core/base/check.h"

namespace troop {

// The thread blocks all signals, so that they are delivered to other threads.
BatchWorker::BatchWorker(const ServingQueue::Options& options, ServingMetrics* metrics)
    : metrics_(metrics), queue_(options) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BatchWorker::~BatchWorker() { Stop(); }

Status BatchWorker::Add(ServingRequest request) {
  {
    const std::lock_guard lock(mutex_);
    TROOP_RETURN_IF_ERROR(queue_.Add(std::move(request)));
    metrics_->SetQueue(queue_.rows());
  }
  // Outside the lock, so that the worker does not wake up only to wait for it.
  changed_.notify_one();
  return Status::Ok();
}

void BatchWorker::Publish(std::shared_ptr<ServedModel> model) {
  metrics_->SetUpdates(model->updates());
  const std::lock_guard lock(mutex_);
  model_.swap(model);  // a batch that computes with the former model keeps it alive
}

std::shared_ptr<ServedModel> BatchWorker::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

void BatchWorker::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// Sleeps until a batch or a deadline is due. The lock is not held while a batch is computed.
void BatchWorker::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // Overdue requests leave first: they must not take a place in a batch.
    const Time now = clock_.Now();
    const std::vector<ServingRequest> expired = queue_.TakeExpired(now);
    std::vector<ServingRequest> batch = queue_.TakeBatch(now);
    if (expired.empty() && batch.empty()) {
      if (const Time due = queue_.Due(); due == kForever) {
        changed_.wait(lock);
      } else {
        changed_.wait_for(lock, due - now);
      }
      continue;
    }
    const std::shared_ptr<ServedModel> model = model_;
    metrics_->SetQueue(queue_.rows());
    lock.unlock();
    for (const ServingRequest& request : expired) {
      Finish(request, ServingFailure(DeadlineExceeded(
                          "the request's deadline has passed in the queue; retry later")));
    }
    if (!batch.empty()) Compute(std::move(batch), model.get());
    lock.lock();
  }
  // Requests after a drain that reached its limit.
  for (const ServingRequest& request : queue_.TakeExpired(kForever))
    Finish(request, ServingFailure(ResourceExhausted("the server ends; retry later")));
}

// The only place that answers queued requests, so that each is counted once.
void BatchWorker::Finish(const ServingRequest& request, HttpResponse response) {
  metrics_->Answered(response.status, clock_.Now() - request.arrived);
  request.reply.Send(std::move(response));
}

// Runs without the lock.
void BatchWorker::Compute(std::vector<ServingRequest> batch, ServedModel* model) {
  TROOP_CHECK(model != nullptr, "requests before a model");
  std::int64_t rows = 0;
  for (const ServingRequest& request : batch) rows += request.rows;
  std::vector<HttpResponse> responses = model->Answer(batch, clock_.Now());
  TROOP_CHECK(responses.size() == batch.size(), "{} responses to {} requests", responses.size(),
              batch.size());
  metrics_->Computed(std::int64_t(batch.size()), rows);
  for (std::size_t i = 0; i < batch.size(); ++i) Finish(batch[i], std::move(responses[i]));
}

}  // namespace troop
