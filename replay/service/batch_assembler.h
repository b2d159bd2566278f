#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/tensor/trajectory.h"
#include "replay/codec/batch_decoder.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/sample_batch.h"
#include "replay/service/group_request.h"

namespace troop {

// Merges and decodes the replies of the shards to one group. Owner: the sampler, on one thread,
// which also decodes. Scratch is kept between batches.
class BatchAssembler {
 public:
  explicit BatchAssembler(const BatchDecoder::Options& options)
      : options_(options), decoder_(options) {}

  // Adds a dictionary for decoding. Returns the id of the dictionary that made room for it, which
  // was added first and must be requested again when needed; nullopt: none.
  std::optional<std::uint32_t> AddDictionary(std::shared_ptr<const FrameDictionary> dictionary);

  // Decodes batch number `batch` of the group. Probabilities are relative to the whole replay, and
  // keys name the shard that priorities must go to. REQUIRES: group.ready(). Errors: kDataLoss: a
  // damaged block or frame, or a probability of 0.
  Result<SampleBatch> Assemble(const GroupRequest& group, int batch, double beta);

 private:
  Status Parse(const GroupRequest& group, int batch);
  Status ParsePart(const GroupRequest::Part& part, int batch, double share);
  static Status Scale(double share, EncodedBatch* drawn);

  BatchDecoder::Options options_;
  BatchDecoder decoder_;
  std::deque<std::uint32_t> decodable_;  // the decoder's dictionaries, in the order they were added
  // Scratch: the blocks of one batch, and the shard of each. drawn_ may be longer.
  std::vector<EncodedBatch> drawn_;
  std::vector<std::size_t> drawn_shard_;
};

}  // namespace troop
