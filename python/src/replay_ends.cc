#include "python/src/replay_ends.h"

namespace troop {

BatchSlot BatchPool::Get() {
  std::unique_ptr<SampleBatch> batch;
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->free.empty()) {
      batch = std::move(shared_->free.back());
      shared_->free.pop_back();
    }
  }
  if (batch == nullptr) batch = std::make_unique<SampleBatch>();
  return BatchSlot(batch.release(), [shared = shared_](SampleBatch* used) {
    std::unique_ptr<SampleBatch> owned(used);
    const std::lock_guard lock(shared->mutex);
    if (shared->free.size() < shared->kept_max) shared->free.push_back(std::move(owned));
  });
}

Status CheckSampler(std::int64_t batch_size, double beta, int decode_threads) {
  constexpr std::int64_t kBatchMost = 1 << 16;
  constexpr int kThreadsMost = 256;
  if (batch_size < 1 || batch_size > kBatchMost) {
    return InvalidArgument("batch_size {}: 1 to {}", batch_size, kBatchMost);
  }
  if (!(beta >= 0 && beta <= 10)) return InvalidArgument("beta {}: 0 to 10", beta);
  if (decode_threads < 0 || decode_threads > kThreadsMost) {
    return InvalidArgument("decode_threads {}: 0 to {}", decode_threads, kThreadsMost);
  }
  return Status::Ok();
}

}  // namespace troop
