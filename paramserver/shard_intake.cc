#include "paramserver/shard_intake.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/log.h"
#include "net/codec.h"

namespace troop {
namespace {

constexpr Duration kTryAgain = Milliseconds(10);

}  // namespace

std::size_t ShardStateBytesMax(std::size_t elements, std::size_t slots) {
  // A value and its optimizer's slots, and what is said of learners.
  constexpr std::size_t kBodyBytesMax = std::size_t{1} << 20;
  return (1 + slots) * (elements * sizeof(float) + 64) + kBodyBytesMax;
}

ShardIntake::ShardIntake(std::uint64_t move, std::int32_t shard,
                         std::vector<std::unique_ptr<Channel>> channels, std::size_t bytes_max)
    : move_(move), shard_(shard) {
  for (auto& channel : channels) {
    sources_.push_back({.channel = std::move(channel), .arriving = ArrivingState(bytes_max)});
  }
}

void ShardIntake::Ask(Source* source) {
  Message message{.type = MessageType::kShardFetch,
                  .body = EncodeBody(ShardFetchBody{move_, shard_, source->offset})};
  const auto ticket = source->channel->Send(message, kForever);
  if (ticket.ok()) source->ticket = *ticket;
}

// An owner that has not heard of the move yet is asked again.
void ShardIntake::Poll(Time now) {
  for (Source& source : sources_) {
    if (!source.state.empty()) continue;
    if (source.ticket != 0) {
      const auto answer = source.channel->Poll(source.ticket);
      if (!answer) continue;
      source.ticket = 0;
      const Status status = answer->ok() ? Take(&source, **answer) : answer->status();
      if (!status.ok()) {
        LogDebug("asks again for what moves to shard {}: {}", shard_, status.message());
        source.arriving.Clear();
        source.offset = 0;
        source.ask_after = now + kTryAgain;
      }
    }
    if (source.state.empty() && now >= source.ask_after) Ask(&source);
  }
}

Status ShardIntake::Take(Source* source, const Message& message) {
  TROOP_ASSIGN_OR_RETURN(const auto head, DecodeBody<ShardStateBody>(message.body));
  if (head.term != move_ || head.offset != source->offset || message.parts.size() != 1) {
    return DataLoss("a piece at {} of move {}; {} of {} was asked for", head.offset, head.term,
                    source->offset, move_);
  }
  TROOP_ASSIGN_OR_RETURN(auto whole, source->arriving.Add(head, message.parts[0]));
  source->offset += message.parts[0].size();
  if (!whole) return Status::Ok();
  source->state = std::move(*whole);
  course_ = std::max(course_, head.course);
  return Status::Ok();
}

bool ShardIntake::complete() const {
  return std::ranges::none_of(sources_, [](const Source& s) { return s.state.empty(); });
}

std::size_t ShardIntake::bytes() const {
  std::size_t bytes = 0;
  for (const Source& source : sources_) bytes += source.state.size();
  return bytes;
}

Result<std::unique_ptr<ParameterShard>> ShardIntake::Finish(const ParameterShard::Options& options,
                                                            const Buffer& stays,
                                                            std::uint64_t course) {
  TROOP_CHECK(complete(), "not all has come");
  std::vector<Buffer> states;
  if (!stays.empty()) {
    states.push_back(stays);
    course_ = std::max(course_, course);
  }
  for (const Source& source : sources_) states.push_back(source.state);
  return ParameterShard::Restore(options, states);
}

}  // namespace troop
