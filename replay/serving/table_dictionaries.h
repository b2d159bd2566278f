#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/node.h"
#include "core/base/status.h"
#include "replay/codec/frame_codec.h"
#include "replay/serving/dictionary_trainer.h"
#include "replay/table/table.h"

namespace troop {

// The codec dictionaries of one table that clients can fetch, and the training of a new one. Owner:
// the table's server, on one thread; training runs in a job of the executor.
//
// Invariant: at most the newest kCountMax dictionaries are kept, oldest first.
class TableDictionaries {
 public:
  static constexpr std::size_t kCountMax = 16;  // a decoder's 256 hold those of 16 shards
  struct Options {
    std::string table;  // name, for messages
    Codec codec = Codec::kNone;
    std::size_t frame_bytes = 0;   // of one observation
    Executor* executor = nullptr;  // null disables training
  };
  explicit TableDictionaries(Options options)
      : options_(std::move(options)),
        trainer_(options_.codec, options_.frame_bytes, options_.executor) {}

  // Adds a dictionary, and drops the oldest if there are too many.
  void Add(const FrameDictionary& dictionary);
  // Returns the bytes of a dictionary; nullptr: unknown.
  const Buffer* Find(std::uint32_t id) const;
  std::uint32_t newest() const { return known_.empty() ? 0 : known_.back().first; }  // 0: none
  std::vector<std::uint32_t> ids() const;                                            // oldest first
  // Distinguishes an unknown dictionary from damage: a writer resends frames that it encoded for an
  // earlier incarnation of the table without the dictionary. Errors: kNotFound.
  Status Check(const EncodedInsert& call) const;

  // Offers frames of a successful insert for training.
  void Offer(const std::vector<EncodedChunk>& chunks) { trainer_.Offer(chunks); }
  // Returns a newly trained dictionary once; else nullptr. The caller adds it.
  std::shared_ptr<const FrameDictionary> PollTrained();
  // Disables training: the table has a dictionary of another origin.
  void FinishTraining() { trainer_.Finish(); }

 private:
  Options options_;
  DictionaryTrainer trainer_;
  std::vector<std::pair<std::uint32_t, Buffer>> known_;  // oldest first
};

}  // namespace troop
