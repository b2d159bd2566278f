#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/encoded_insert.h"
#include "replay/codec/frame_codec.h"
#include "replay/storage/insert_window.h"
#include "replay/table/table_options.h"

namespace troop {

// Checks everything in an insert call that does not depend on the content of the table, whose bytes
// come from a peer. Changes nothing. Owner: one thread (a table).
class InsertChecker {
 public:
  explicit InsertChecker(const TableOptions& options);

  // Checks that each column has the size of its chunk's frames. Returns views of the chunks, valid
  // until the next call. O(frames) with a codec, else O(chunks). Errors: kInvalidArgument.
  Result<std::span<const InsertWindow::ChunkView>> View(std::span<const EncodedChunk> chunks);
  // Checks the values of each frame, and decodes its observation to detect damage. Errors:
  // kInvalidArgument.
  Status CheckFrames(const InsertWindow::ChunkView& chunk);
  // Checks all properties of an item that do not depend on frames. Errors: kInvalidArgument.
  Status CheckItem(const Item& item) const;

  // Dictionaries for decoding frames.
  void AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);
  bool Knows(std::uint32_t dictionary) const { return coder_.Knows(dictionary); }

 private:
  ViewSpec spec_;
  RecordLayout layout_;
  FrameCoder coder_;
  // Scratch.
  std::vector<std::byte> decoded_;  // [frame_bytes]
  std::vector<InsertWindow::ChunkView> view_;
};

}  // namespace troop
