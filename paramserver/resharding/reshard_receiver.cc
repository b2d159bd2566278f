// Implements the receiver of a shard in a resharding. Each source sends its snapshot in pieces, one
// request per piece.
#include "paramserver/resharding/reshard_receiver.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "net/wire/codec.h"

namespace troop {
namespace {

// Delay before a failed request is repeated.
constexpr Duration kTryAgain = Milliseconds(10);

}  // namespace

std::size_t ShardStateBytesMax(std::size_t elements, std::size_t slots) {
  // The value and the optimizer slots, each padded to 64 bytes, and the member lists.
  constexpr std::size_t kBodyBytesMax = std::size_t{1} << 20;
  return (1 + slots) * (elements * sizeof(float) + 64) + kBodyBytesMax;
}

ReshardReceiver::ReshardReceiver(std::uint64_t move, std::int32_t shard,
                                 std::vector<std::unique_ptr<Channel>> channels,
                                 std::size_t bytes_max)
    : move_(move), shard_(shard) {
  for (auto& channel : channels) {
    sources_.push_back({.channel = std::move(channel), .assembler = StateAssembler(bytes_max)});
  }
}

// A failed send is repeated by the next Poll.
void ReshardReceiver::RequestPiece(Source* source) {
  Message message{.type = MessageType::kShardFetch,
                  .body = EncodeBody(ShardFetchBody{move_, shard_, source->offset})};
  const auto ticket = source->channel->Send(message, kForever);
  if (ticket.ok()) source->ticket = *ticket;
}

// A failed transfer restarts from the first piece; an owner without the resharding's description
// fails it with kUnavailable.
void ReshardReceiver::Poll(Time now) {
  for (Source& source : sources_) {
    if (!source.state.empty()) continue;
    if (source.ticket != 0) {
      const auto answer = source.channel->Poll(source.ticket);
      if (!answer) continue;
      source.ticket = 0;
      const Status status = answer->ok() ? TakePiece(&source, **answer) : answer->status();
      if (!status.ok()) {
        LogDebug("repeating the request for the ranges that move to shard {}: {}", shard_,
                 status.message());
        source.assembler.Clear();
        source.offset = 0;
        source.retry_after = now + kTryAgain;
      }
    }
    if (source.state.empty() && now >= source.retry_after) RequestPiece(&source);
  }
}

// Adds a piece after checking that it is the requested one.
Status ReshardReceiver::TakePiece(Source* source, const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const auto head, DecodeBody<ShardStateBody>(message.body));
  if (head.term != move_ || head.offset != source->offset || message.parts.size() != 1) {
    return DataLoss("got the piece at {} of resharding {}, requested was the piece at {} of {}",
                    head.offset, head.term, source->offset, move_);
  }
  TROOP_ASSIGN_OR_RETURN(auto whole, source->assembler.Add(head, message.parts[0]));
  source->offset += message.parts[0].size();
  if (!whole) return Status::Ok();
  source->state = std::move(*whole);
  lineage_ = std::max(lineage_, head.lineage);
  return Status::Ok();
}

bool ReshardReceiver::complete() const {
  return std::ranges::none_of(sources_, [](const Source& s) { return s.state.empty(); });
}

std::size_t ReshardReceiver::bytes() const {
  std::size_t bytes = 0;
  for (const Source& source : sources_) bytes += source.state.size();
  return bytes;
}

// The newest lineage of all sources is used for the joined shard.
Result<std::unique_ptr<ParameterShard>> ReshardReceiver::Finish(
    const ParameterShard::Options& options, const Buffer& kept, std::uint64_t lineage) {
  TROOP_CHECK(complete(), "some ranges have not arrived");
  std::vector<Buffer> states;
  if (!kept.empty()) {
    states.push_back(kept);
    lineage_ = std::max(lineage_, lineage);
  }
  for (const Source& source : sources_) states.push_back(source.state);
  return ParameterShard::Restore(options, states);
}

}  // namespace troop
