#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "net/message.h"
#include "net/network.h"
#include "replay/service/messages.h"
#include "replay/table/table.h"

namespace troop {

// The parked requests of one table: their replies are kept and answered later. Inserts are answered
// in order of arrival; of samples, the table's server answers the first that need not wait. Owner:
// the table's server, on one thread.
class RequestQueue {
 public:
  // An insert that waits for the rate limiter or for the disk.
  struct ParkedInsert {
    EncodedInsert call;
    Reply reply;
  };
  // A sample or feed request that waits for the rate limiter or for items.
  struct ParkedSample {
    SampleBody body;
    Origin origin;
    Reply reply;
    std::optional<TableDeltaBody> feed;  // set for a feed request
    bool waived = false;
    std::vector<Buffer> blocks;       // sampled so far; the table may run out of items
    std::vector<std::uint32_t> rows;  // rows of each block
    std::uint32_t batches = 0;        // complete batches among them
    std::uint32_t rows_open = 0;      // rows of the incomplete batch
    std::size_t bytes = 0;            // total size of the blocks

    bool begun() const { return batches > 0 || rows_open > 0; }
    // Appends a block of at most the missing rows of a batch.
    void AddBlock(Buffer block, std::uint32_t count);
  };

  void Park(ParkedInsert parked) { inserts_.push_back(std::move(parked)); }
  void Park(ParkedSample parked) { samples_.push_back(std::move(parked)); }
  std::size_t inserts() const { return inserts_.size(); }
  std::size_t samples() const { return samples_.size(); }

  // Removes the first insert. REQUIRES: inserts() > 0.
  ParkedInsert TakeInsert();
  // Calls answer(ParkedSample*) for each sample in order of arrival, until it returns true, and
  // removes that one. False: none was answered.
  template <class Answer>
  bool AnswerFirstSample(const Answer& answer) {
    for (auto it = samples_.begin(); it != samples_.end(); ++it) {
      if (!answer(&*it)) continue;
      samples_.erase(it);
      return true;
    }
    return false;
  }
  // Changes to all parked samples of one caller: they are answered without a charge; they end
  // instead of waiting; or they fail and are removed.
  void Waive(const Origin& caller);
  void Drain(const Origin& caller);
  void Refuse(const std::pair<Role, std::int32_t>& caller, const Status& why);

 private:
  std::deque<ParkedInsert> inserts_;
  std::deque<ParkedSample> samples_;
};

}  // namespace troop
