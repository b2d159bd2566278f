// Implements the decoding and validation of pushes.
#include "paramserver/protocol/messages.h"

#include <fmt/format.h>

#include <utility>

#include "net/wire/codec.h"

namespace troop {

// Input is untrusted: every part is validated against the elements that are left.
Result<ShardPush> ReadShardPush(Message message, std::int64_t elements, std::uint64_t epoch) {
  if (message.origin.role != Role::kLearner) {
    return InvalidArgument("a push from a {}, must come from a learner",
                           RoleName(message.origin.role));
  }
  TROOP_ASSIGN_OR_RETURN(ShardPushBody body, DecodeBody<ShardPushBody>(message.body));
  // Checked before the sizes, which depend on the map.
  if (body.epoch != epoch) {
    return FailedPrecondition("the push is for shard map {}, this is map {}; fetch it", body.epoch,
                              epoch);
  }
  if (body.parts.size() != message.parts.size()) {
    return DataLoss("a push describes {} parts, but has {}", body.parts.size(),
                    message.parts.size());
  }
  // The identity of the push, which a shard applies once.
  ShardPush push{.id = {message.origin.index, message.origin.incarnation, body.sequence},
                 .epoch = body.epoch,
                 .clock = body.clock,
                 .step = body.step,
                 .learning_rate = body.learning_rate,
                 .loss = body.loss,
                 .norm = body.norm};
  for (std::size_t i = 0; i < body.parts.size(); ++i) {
    CodedGradient& coded = body.parts[i];
    // The sum over the parts is bounded as well, since each reduces what is left.
    if (coded.elements < 0 || coded.elements > elements) {
      return DataLoss("part {} of a push has {} elements, must have at most {}", i, coded.elements,
                      elements);
    }
    elements -= coded.elements;
    coded.payload = std::move(message.parts[i]);
    const std::int64_t own = coded.elements;
    auto part = GradientPayload::Parse(std::move(coded), own);
    if (!part.ok()) return part.status().WithContext(fmt::format("part {} of a push", i));
    push.parts.push_back(std::move(*part));
  }
  return push;
}

}  // namespace troop
