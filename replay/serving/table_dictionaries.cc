// TableDictionaries: a bounded list of dictionaries, and the check of frames against it.
#include "replay/serving/table_dictionaries.h"

#include <cstring>

namespace troop {

void TableDictionaries::Add(const FrameDictionary& dictionary) {
  known_.emplace_back(DictionaryId(dictionary), DictionaryBytes(dictionary));
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
  if (options_.codec == Codec::kNone) return Status::Ok();
  for (const EncodedChunk& chunk : call.chunks) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < chunk.frames; ++i) {
      std::uint32_t bytes;
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
  if (!trainer_.busy()) return nullptr;
  const Buffer bytes = trainer_.Poll();
  return bytes.empty() ? nullptr : MakeFrameDictionary(bytes);
}

}  // namespace troop
