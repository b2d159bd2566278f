// BatchAssembler: the blocks of several shards as one batch.
#include "replay/service/batch_assembler.h"

#include <cmath>
#include <utility>

namespace troop {

std::optional<std::uint32_t> BatchAssembler::AddDictionary(
    std::shared_ptr<const FrameDictionary> dictionary) {
  const std::uint32_t id = DictionaryId(*dictionary);
  std::optional<std::uint32_t> dropped;
  // A dictionary that is announced again becomes the newest, so that it is dropped last.
  std::erase(decodable_, id);
  // The decoder holds a fixed number of dictionaries and drops the same one.
  if (decodable_.size() == std::size_t(FrameCoder::kDictionariesMax)) {
    dropped = decodable_.front();
    decodable_.pop_front();
  }
  decodable_.push_back(id);
  decoder_.AddDictionary(std::move(dictionary));
  return dropped;
}

Result<SampleBatch> BatchAssembler::Assemble(const GroupRequest& group, int batch, double beta) {
  TROOP_RETURN_IF_ERROR(Parse(group, batch));
  SampleBatch made;
  TROOP_RETURN_IF_ERROR(decoder_.Decode({drawn_.data(), drawn_shard_.size()}, beta, &made));
  // A key is unique per shard only; its updates go back to the shard that drew the item.
  std::size_t row = 0;
  for (std::size_t i = 0; i < drawn_shard_.size(); ++i) {
    for (std::int64_t j = 0; j < drawn_[i].size(); ++j) {
      made.key[row++].shard = std::uint32_t(drawn_shard_[i]);
    }
  }
  return made;
}

// Parses the blocks of one batch and scales their probabilities to the whole replay.
// P(item) = P(shard) P(item | shard), with the shard's share of all priorities.
Status BatchAssembler::Parse(const GroupRequest& group, int batch) {
  const double sum = group.used_sum();
  drawn_shard_.clear();
  for (const GroupRequest::Part& part : group.parts()) {
    if (part.blocks.empty()) continue;
    TROOP_RETURN_IF_ERROR(ParsePart(part, batch, group.used(part.shard) / sum));
  }
  return Status::Ok();
}

Status BatchAssembler::ParsePart(const GroupRequest::Part& part, int batch, double share) {
  for (int i = part.first[std::size_t(batch)]; i < part.first[std::size_t(batch) + 1]; ++i) {
    const std::size_t at = drawn_shard_.size();
    drawn_shard_.push_back(part.shard);
    // Blocks of earlier batches are reused, with the memory of their columns.
    if (drawn_.size() <= at) drawn_.emplace_back();
    TROOP_RETURN_IF_ERROR(ParseEncodedBatch(part.blocks[std::size_t(i)], options_.trajectory,
                                            options_.view, options_.codec, &drawn_[at]));
    if (drawn_[at].size() != part.reply.rows[std::size_t(i)]) {
      return DataLoss("block has {} items, reply announced {}", drawn_[at].size(),
                      part.reply.rows[std::size_t(i)]);
    }
    TROOP_RETURN_IF_ERROR(Scale(share, &drawn_[at]));
  }
  return Status::Ok();
}

// Scales probabilities by the shard's share. Totals come from other processes, so the result is
// checked: no probability may become 0.
Status BatchAssembler::Scale(double share, EncodedBatch* drawn) {
  bool good = true;
  for (double& p : drawn->probability) {
    p *= share;
    good = good && std::isnormal(p);
  }
  // 0: the shard gave no minimum, hence there is none to scale.
  const bool told = drawn->probability_min > 0;
  drawn->probability_min *= share;
  if (good && (!told || std::isnormal(drawn->probability_min))) return Status::Ok();
  return DataLoss("items have probability 0: their shard has a share of {} of the replay", share);
}

}  // namespace troop
