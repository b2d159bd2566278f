// TableDictionaries: a bounded list of dictionaries, and the check of frames against it.
#include "replay/serving/table_dictionaries.h"

#include <cstring>

namespace troop {

void TableDictionaries::Add(const FrameDictionary& dictionary) {
  known_.emplace_back(DictionaryId(dictionary), DictionaryBytes(dictionary));
  // A decoder has room for this number of dictionaries from each of 16 shards.
  if (known_.size() > kCountMax) known_.erase(known_.begin());
}

const Buffer* TableDictionaries::Find(std::uint32_t id) const {
  for (const auto& [known, bytes] : known_) {
    if (known == id) return &bytes;
  }
  return nullptr;
}

std::vector<std::uint32_t> TableDictionaries::ids() const {
  std::vector<std::uint32_t> ids;
  for (const auto& dictionary : known_) ids.push_back(dictionary.first);
  return ids;
}

Status TableDictionaries::Check(const EncodedInsert& call) const {
  // Frames without a codec refer to no dictionary.
  if (options_.codec == Codec::kNone) return Status::Ok();
  // A frame that cannot be decoded must not be stored, because a sampler would fail much later.
  for (const EncodedChunk& chunk : call.chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames; ++i) {
      std::uint32_t bytes;
      // The sizes are unaligned bytes from the network.
      std::memcpy(&bytes, chunk.frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      if (bytes > chunk.observation.size() - offset) break;  // Table::Insert reports it
      const std::uint32_t id = NeedsDictionary({chunk.observation.data() + offset, bytes});
      if (id != 0 && Find(id) == nullptr) {
        return NotFound("insert: table {} has no dictionary {}", options_.table, id);
      }
      offset += bytes;
    }
  }
  return Status::Ok();
}

std::shared_ptr<const FrameDictionary> TableDictionaries::PollTrained() {
  // Training is a job of the executor; until it ends there is nothing to collect.
  if (!trainer_.busy()) return nullptr;
  const Buffer bytes = trainer_.Poll();
  return bytes.empty() ? nullptr : MakeFrameDictionary(bytes);
}

}  // namespace troop
