// RequestQueue: parked requests in order of arrival.
#include "replay/service/request_queue.h"

namespace troop {
namespace {

// The incarnation is left out: a restarted caller has replaced its earlier requests.
bool IsOf(const RequestQueue::ParkedSample& parked, const Origin& caller) {
  return parked.origin.role == caller.role && parked.origin.index == caller.index;
}

}  // namespace

// Rows of one batch may come in several blocks; a batch is complete when its rows add up.
void RequestQueue::ParkedSample::AddBlock(Buffer block, std::uint32_t count) {
  blocks.push_back(std::move(block));
  rows.push_back(count);
  rows_open += count;
  if (rows_open < body.batch_size) return;
  rows_open = 0;
  ++batches;
}

RequestQueue::ParkedInsert RequestQueue::TakeInsert() {
  ParkedInsert parked = std::move(inserts_.front());
  inserts_.pop_front();
  return parked;
}

// From now on these requests are answered without a charge to the limiter.
void RequestQueue::Waive(const Origin& caller) {
  for (ParkedSample& parked : samples_) {
    if (IsOf(parked, caller)) parked.waived = true;
  }
}

// The actors have ended, so the limiter may never admit these requests: they end with kOutOfRange.
void RequestQueue::Drain(const Origin& caller) {
  for (ParkedSample& parked : samples_) {
    if (IsOf(parked, caller)) parked.body.drain = true;
  }
}

// Only samples: a parked insert holds experience that is valid without its caller.
void RequestQueue::Refuse(const std::pair<Role, std::int32_t>& caller, const Status& why) {
  std::erase_if(samples_, [&](ParkedSample& parked) {
    if (std::pair(parked.origin.role, parked.origin.index) != caller) return false;
    parked.reply.Fail(why);
    return true;
  });
}

}  // namespace troop
