#include "replay/wire.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "net/codec.h"

namespace troop {
namespace {

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t ColumnBytes(const TrajectorySpec& spec, std::size_t frames) {
  return frames * (spec.action.bytes() + sizeof(float) + sizeof(float) + 1);
}

// Copies bytes one run after the other.
class Packer {
 public:
  explicit Packer(std::size_t size) : buffer_(size) {}
  void Add(const void* data, std::size_t size) {
    if (size > 0) std::memcpy(buffer_.data() + used_, data, size);
    used_ += size;
  }
  Buffer Take() && {
    TROOP_CHECK(used_ == buffer_.size(), "packed {} of {} bytes", used_, buffer_.size());
    return std::move(buffer_).Freeze();
  }

 private:
  MutableBuffer buffer_;
  std::size_t used_ = 0;
};

// Cuts runs off a part whose size was checked.
class Cutter {
 public:
  explicit Cutter(const Buffer& part) : part_(part) {}
  Buffer Take(std::size_t size) {
    used_ += size;
    return part_.Slice(used_ - size, size);
  }

 private:
  const Buffer& part_;
  std::size_t used_ = 0;
};

template <class T, class Predicate>
bool All(const Buffer& column, Predicate predicate) {
  bool ok = true;
  for (std::size_t at = 0; at < column.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, column.data() + at, sizeof value);
    ok &= predicate(value);
  }
  return ok;
}

Status CheckValues(const Chunk& chunk) {
  const char* wrong = nullptr;
  if (!All<float>(chunk.reward, [](float r) { return std::abs(r) <= 3.402823466e38f; })) {
    wrong = "a reward is not finite";
  } else if (!All<float>(chunk.discount, [](float d) { return d >= 0 && d <= 1; })) {
    wrong = "a discount lies outside [0, 1]";
  } else if (!All<std::uint8_t>(chunk.final, [](std::uint8_t f) { return f <= 1; })) {
    wrong = "an end-of-episode mark is neither 0 nor 1";
  }
  if (wrong == nullptr) return Status::Ok();
  return InvalidArgument("insert: stream {:#x}, frames [{}, +{}): {}", chunk.stream,
                         chunk.first_frame, chunk.frames, wrong);
}

// Sizes of all parts against what the body promises.
Status CheckParts(const Message& message, const InsertBody& body, const TrajectorySpec& spec) {
  if (message.parts.size() != body.chunks.size() + 1) {
    return InvalidArgument("insert: {} parts for {} chunks; one more than chunks is right",
                           message.parts.size(), body.chunks.size());
  }
  std::size_t columns = std::size_t(body.items) * sizeof(WireItem);
  for (std::size_t c = 0; c < body.chunks.size(); ++c) {
    const ChunkHeader& header = body.chunks[c];
    const std::size_t expected = header.frames * spec.observation.bytes();
    if (header.frames == 0 || message.parts[c + 1].size() != expected) {
      return InvalidArgument("insert: chunk {} has {} observation bytes; {} frames of {} are {}", c,
                             message.parts[c + 1].size(), header.frames,
                             spec.observation.ToString(), expected);
    }
    if (header.first_frame > ~std::uint64_t{0} - header.frames) {
      return InvalidArgument("insert: chunk {} begins at frame {}", c, header.first_frame);
    }
    columns += ColumnBytes(spec, header.frames);
  }
  if (message.parts[0].size() != columns) {
    return InvalidArgument("insert: columns of {} bytes; {} items and the chunks' frames take {}",
                           message.parts[0].size(), body.items, columns);
  }
  return Status::Ok();
}

}  // namespace

SampleLayout::SampleLayout(const TrajectorySpec& spec, std::int64_t batch_size, int n_step) {
  const auto rows = std::size_t(batch_size);
  bytes = 0;
  const auto column = [this, rows](std::size_t row_bytes) {
    const std::size_t offset = bytes;
    bytes += Aligned(rows * row_bytes);
    return offset;
  };
  key = column(sizeof(std::uint64_t));
  probability = column(sizeof(double));
  policy_version = column(sizeof(std::uint64_t));
  length = column(sizeof(std::int32_t));
  reward = column(sizeof(float) * std::size_t(n_step));
  discount = column(sizeof(float) * std::size_t(n_step));
  action = column(spec.action.bytes());
  observation = column(spec.observation.bytes());
  next_observation = column(spec.observation.bytes());
}

Table::Rows SampleLayout::RowsAt(std::byte* block) const {
  return {.key = reinterpret_cast<std::uint64_t*>(block + key),
          .probability = reinterpret_cast<double*>(block + probability),
          .policy_version = reinterpret_cast<std::uint64_t*>(block + policy_version),
          .length = reinterpret_cast<std::int32_t*>(block + length),
          .reward = reinterpret_cast<float*>(block + reward),
          .discount = reinterpret_cast<float*>(block + discount),
          .action = block + action,
          .observation = block + observation,
          .next_observation = block + next_observation};
}

Message PackInsert(const TrajectorySpec& spec, std::span<const Chunk> chunks,
                   std::span<const Item> items) {
  InsertBody body{.items = std::uint32_t(items.size())};
  std::size_t columns = items.size() * sizeof(WireItem);
  for (const Chunk& chunk : chunks) {
    TROOP_CHECK(chunk.observation.size() == chunk.frames * spec.observation.bytes() &&
                    chunk.action.size() == chunk.frames * spec.action.bytes() &&
                    chunk.reward.size() == chunk.frames * sizeof(float) &&
                    chunk.discount.size() == chunk.frames * sizeof(float) &&
                    chunk.final.size() == chunk.frames,
                "a chunk of {} frames does not fit observation {}, action {}", chunk.frames,
                spec.observation.ToString(), spec.action.ToString());
    body.chunks.push_back({chunk.stream, chunk.first_frame, chunk.frames});
    columns += ColumnBytes(spec, chunk.frames);
  }
  Message message{.type = MessageType::kInsert, .body = EncodeBody(body)};
  Packer packer(columns);
  for (const Item& item : items) {
    const WireItem wire{.stream = item.stream,
                        .first_frame = item.first_frame,
                        .policy_version = item.policy_version,
                        .length = item.length,
                        .burn_in = item.burn_in,
                        .priority = item.priority};
    packer.Add(&wire, sizeof wire);
  }
  for (const Chunk& chunk : chunks) {
    for (const Buffer* column : {&chunk.action, &chunk.reward, &chunk.discount, &chunk.final}) {
      packer.Add(column->data(), column->size());
    }
  }
  message.parts.push_back(std::move(packer).Take());
  for (const Chunk& chunk : chunks) message.parts.push_back(chunk.observation);
  return message;
}

Result<InsertCall> ParseInsert(const Message& message, const TrajectorySpec& spec) {
  TROOP_ASSIGN_OR_RETURN(const InsertBody body, DecodeBody<InsertBody>(message.body));
  TROOP_RETURN_IF_ERROR(CheckParts(message, body, spec));
  Cutter columns(message.parts[0]);
  InsertCall call;
  call.items.reserve(body.items);
  const Buffer items = columns.Take(body.items * sizeof(WireItem));
  for (std::size_t i = 0; i < body.items; ++i) {
    WireItem wire;
    std::memcpy(&wire, items.data() + i * sizeof wire, sizeof wire);
    call.items.push_back({.stream = wire.stream,
                          .first_frame = wire.first_frame,
                          .length = wire.length,
                          .burn_in = wire.burn_in,
                          .priority = wire.priority,
                          .policy_version = wire.policy_version});
  }
  call.chunks.reserve(body.chunks.size());
  for (std::size_t c = 0; c < body.chunks.size(); ++c) {
    const ChunkHeader& header = body.chunks[c];
    Chunk chunk{header.stream, header.first_frame, header.frames};
    chunk.observation = message.parts[c + 1];
    chunk.action = columns.Take(header.frames * spec.action.bytes());
    chunk.reward = columns.Take(header.frames * sizeof(float));
    chunk.discount = columns.Take(header.frames * sizeof(float));
    chunk.final = columns.Take(header.frames);
    TROOP_RETURN_IF_ERROR(CheckValues(chunk));
    call.chunks.push_back(std::move(chunk));
  }
  return call;
}

Buffer PackUpdates(std::span<const std::uint64_t> key, std::span<const float> priority) {
  Packer packer(key.size_bytes() + priority.size_bytes());
  packer.Add(key.data(), key.size_bytes());
  packer.Add(priority.data(), priority.size_bytes());
  return std::move(packer).Take();
}

Status ParseUpdates(const Message& message, std::uint32_t updates, std::vector<std::uint64_t>* key,
                    std::vector<float>* priority) {
  const std::size_t parts = updates > 0 ? 1 : 0;
  const std::size_t bytes = std::size_t(updates) * (sizeof(std::uint64_t) + sizeof(float));
  if (message.parts.size() != parts || (parts == 1 && message.parts[0].size() != bytes)) {
    return InvalidArgument(
        "priority updates: {} parts, the first of {} bytes; {} updates take {} "
        "of {} bytes",
        message.parts.size(), message.parts.empty() ? 0 : message.parts[0].size(), updates, parts,
        bytes);
  }
  key->resize(updates);
  priority->resize(updates);
  if (updates == 0) return Status::Ok();
  const std::byte* const from = message.parts[0].data();
  std::memcpy(key->data(), from, updates * sizeof(std::uint64_t));
  std::memcpy(priority->data(), from + updates * sizeof(std::uint64_t), updates * sizeof(float));
  return Status::Ok();
}

}  // namespace troop
