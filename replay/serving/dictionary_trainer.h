#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/node.h"
#include "replay/codec/frame_codec.h"
#include "replay/table/table.h"

namespace troop {

// Collects a table's first frames and trains its dictionary on them in a job of the executor.
// Owner: the table's server. Takes at most 16 MiB besides the job's own memory, and nothing once
// the dictionary exists or training is given up: too few of the large frames fit, or five
// trainings on later and later frames have failed.
class DictionaryTrainer {
 public:
  // `executor`: null disables training, as does Codec::kNone.
  DictionaryTrainer(Codec codec, std::size_t frame_bytes, Executor* executor);
  ~DictionaryTrainer();

  // Offers frames of a successful insert.
  void Offer(const std::vector<EncodedChunk>& chunks);
  // Returns the bytes of a new dictionary once; else empty.
  Buffer Poll();
  // Disables training: a dictionary of an earlier process exists already.
  void Finish();
  bool busy() const { return job_ != 0; }

 private:
  struct Work;
  bool full() const;

  Executor* executor_;
  std::size_t frame_bytes_;
  std::size_t frames_wanted_;
  FrameCoder coder_;
  int failures_ = 0;
  std::size_t offered_ = 0;     // frames since the last training
  std::shared_ptr<Work> work_;  // null: finished
  Executor::Job job_ = 0;
};

}  // namespace troop
