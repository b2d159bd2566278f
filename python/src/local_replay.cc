// In-process replay: encodes on insert, decodes on sample, one lock around the table.

#include "python/src/local_replay.h"

#include <mutex>

#include "replay/codec/batch_decoder.h"

namespace troop {
namespace {

// Encodes each observation separately, so that any frame can be decoded alone.
EncodedChunk EncodeChunk(const Chunk& chunk, FrameCoder* coder) {
  EncodedChunk encoded{chunk.stream,     chunk.first_frame, chunk.frames, chunk.action,
                       chunk.reward,     chunk.discount,    chunk.final,  {},
                       chunk.observation};
  // Without a codec all frames have the same size, so no sizes are stored.
  if (coder->codec() == Codec::kNone) return encoded;
  // Encoded sizes and frames, as the table stores them.
  std::vector<std::uint32_t> bytes(chunk.frames);
  // Memory for the largest encoding; only the used part is copied.
  std::vector<std::byte> out(chunk.frames * coder->encoded_bytes_max());
  std::size_t end = 0;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const std::byte* frame = chunk.observation.data() + i * coder->frame_bytes();
    bytes[i] = std::uint32_t(coder->Encode(frame, out.data() + end));
    end += bytes[i];
  }
  encoded.frame_bytes = Buffer::Copy(std::as_bytes(std::span<const std::uint32_t>(bytes)));
  encoded.observation = Buffer::Copy(std::span<const std::byte>(out).first(end));
  return encoded;
}

}  // namespace

// The table and its lock; writers and samplers share ownership.
struct LocalReplay::Shared {
  explicit Shared(Table t) : table(std::move(t)) {}
  std::mutex mutex;
  Table table;
};

// Writer. Each has its own coder, because encoding happens outside the lock.
class LocalReplay::Sink final : public ExperienceSink {
 public:
  explicit Sink(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)),
        coder_(shared_->table.options().codec,
               shared_->table.options().trajectory.observation.bytes()) {}

  Status Push(std::vector<Chunk>* chunks, std::vector<Item>* items, Time) override {
    // Encodes outside the lock.
    EncodedInsert call;
    for (const Chunk& chunk : *chunks) call.chunks.push_back(EncodeChunk(chunk, &coder_));
    call.items = std::move(*items);
    const std::lock_guard lock(shared_->mutex);
    return shared_->table.Insert(call).status();
  }
  // An insert is complete when Push returns.
  Status Flush(Time) override { return Status::Ok(); }

 private:
  const std::shared_ptr<Shared> shared_;
  FrameCoder coder_;
};

// Sampler. It never waits for items, so deadlines are not used.
class LocalReplay::Source final : public BatchSource {
 public:
  Source(std::shared_ptr<Shared> shared, const SamplerOptions& options)
      : shared_(std::move(shared)),
        options_(options),
        decoder_({.trajectory = shared_->table.options().trajectory,
                  .view = shared_->table.options().view,
                  .codec = shared_->table.options().codec,
                  .threads = options.decode_threads}) {}

  // The lock is held until the frames are decoded, because the table owns them.
  Result<BatchSlot> Sample(Time) override {
    BatchSlot batch = pool_.Get();
    const std::lock_guard lock(shared_->mutex);
    const Table& table = shared_->table;
    // The caller may be the only thread, so waiting for an insert could last forever.
    if (!table.can_draw() || table.size() < table.options().min_items) {
      return FailedPrecondition("table {} has {} items; sampling needs at least {} (min_items)",
                                table.options().name, table.size(), table.options().min_items);
    }
    shared_->table.Draw(options_.batch_size, &drawn_);
    TROOP_RETURN_IF_ERROR(decoder_.Decode(drawn_, options_.beta, batch.get()));
    batch->SetCodes(keys_);
    return batch;
  }

  Status Update(std::span<const std::uint64_t> key, std::span<const float> priority) override {
    if (key.size() != priority.size()) {
      return InvalidArgument("{} keys and {} priorities; give one priority per key", key.size(),
                             priority.size());
    }
    const std::lock_guard lock(shared_->mutex);
    // With one shard the keys equal the table's own (KeyCode).
    shared_->table.Update(key, priority);
    return Status::Ok();
  }

 private:
  const std::shared_ptr<Shared> shared_;
  const SamplerOptions options_;
  const KeyCode keys_ = *KeyCode::Make(1, 0);
  BatchPool pool_{4};
  BatchDecoder decoder_;
  EncodedBatch drawn_;
};

Result<std::unique_ptr<LocalReplay>> LocalReplay::Make(const Table::Options& options) {
  TROOP_ASSIGN_OR_RETURN(Table table, Table::Make(options));
  return std::unique_ptr<LocalReplay>(new LocalReplay(std::make_shared<Shared>(std::move(table))));
}

std::unique_ptr<ExperienceSink> LocalReplay::MakeSink() { return std::make_unique<Sink>(shared_); }

Result<std::unique_ptr<BatchSource>> LocalReplay::MakeSource(const SamplerOptions& options) {
  TROOP_RETURN_IF_ERROR(CheckSampler(options.batch_size, options.beta, options.decode_threads));
  return std::unique_ptr<BatchSource>(std::make_unique<Source>(shared_, options));
}

LocalReplay::Counts LocalReplay::counts() const {
  const std::lock_guard lock(shared_->mutex);
  const Table& table = shared_->table;
  const TableUsage usage = table.usage();
  return {table.size(), usage.frames, usage.evicted, usage.bytes};
}

const Table::Options& LocalReplay::options() const { return shared_->table.options(); }

}  // namespace troop
