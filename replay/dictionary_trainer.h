#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/node.h"
#include "replay/frame_codec.h"
#include "replay/table.h"

namespace troop {

// Gathers a table's first frames and trains its dictionary on them in a job of the executor.
// Owner: the table's server. Takes 16 MiB at most beside the job's own memory, and nothing once the
// dictionary is there, or can't be: frames are so large that too few fit, or five trainings on
// later and later frames failed.
class DictionaryTrainer {
 public:
  // `executor`: may be null, then nothing is trained; nor is it for Codec::kNone.
  DictionaryTrainer(Codec codec, std::size_t frame_bytes, Executor* executor);
  ~DictionaryTrainer();

  // Frames of an insert that the table took.
  void Offer(const std::vector<EncodedChunk>& chunks);
  // The bytes of a dictionary, once; else empty.
  Buffer Poll();
  // There is one already, from an earlier life of the table.
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
  std::shared_ptr<Work> work_;  // null: done
  Executor::Job job_ = 0;
};

}  // namespace troop
