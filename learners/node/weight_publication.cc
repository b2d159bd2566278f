// Implements the publication of weights.

#include "learners/node/weight_publication.h"

#include <string>
#include <utility>

namespace troop {

// True if a connection was made now; the address is known once the server has registered.
Result<bool> WeightPublication::Connect(const ChannelOptions& options) {
  const std::string weights = options_.member->Endpoint(Role::kParamServer, 0);
  if (publisher_ || weights.empty()) return false;
  TROOP_ASSIGN_OR_RETURN(auto channel, options_.network->Connect(weights, options));
  publisher_ = MakeWeightPublisher(std::move(channel));
  return true;
}

Status WeightPublication::Poll(Time now) {
  if (!publisher_) return Status::Ok();
  publisher_->Poll(now);
  return publisher_->error();
}

// Counts submitted updates, so that a publication is part of the job that completes it.
bool WeightPublication::TakeDue(std::uint64_t submitted) {
  if (submitted - due_since_ < options_.every_updates) return false;
  due_since_ = submitted;
  return true;
}

void WeightPublication::Publish(std::uint64_t version, Buffer value) {
  published_ = version;
  published_to_ = server();
  publisher_->Publish({version, std::move(value)});
  if (options_.history == nullptr) return;
  options_.history->Note({.what = HistoryEvent::kPublished, .version = version});
}

// Only an acknowledged version survives the death of this process.
bool WeightPublication::Has(std::uint64_t version) const {
  return publisher_ && publisher_->acked_version() >= version;
}

// A server that is not known yet is not a replaced one.
bool WeightPublication::ServerReplaced() const {
  return publisher_ && server() != 0 && server() != published_to_;
}

}  // namespace troop
