// Encoding and checking of the replay messages of wire.h.
#include "replay/service/messages.h"

#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "net/wire/codec.h"
#include "net/wire/shared_memory.h"

namespace troop {
namespace {

// Bytes of a chunk's columns in part 0, without the observations.
std::size_t ColumnBytes(const TrajectorySpec& spec, Codec codec, std::size_t frames) {
  // Encoded frames have a size each; raw ones all have that of the observation.
  const std::size_t lengths = codec == Codec::kNone ? 0 : sizeof(std::uint32_t);
  return frames * (spec.action.bytes() + sizeof(float) + sizeof(float) + 1 + lengths);
}

// Bytes of an item in part 0, its state included.
std::size_t ItemBytes(const TrajectorySpec& spec) {
  return sizeof(WireItem) + (spec.state ? spec.state->bytes() : 0);
}

// Concatenates byte ranges into a part of known size.
class Packer {
 public:
  explicit Packer(std::size_t size) : buffer_(MakeSharedBuffer(size)) {}
  void Add(const void* data, std::size_t size) {
    if (size > 0) std::memcpy(buffer_.data() + used_, data, size);
    used_ += size;
  }
  // The size was computed from the same sizes before; a difference is a bug.
  Buffer Take() && {
    TROOP_CHECK(used_ == buffer_.size(), "packed {} of {} bytes", used_, buffer_.size());
    return std::move(buffer_).Freeze();
  }

 private:
  MutableBuffer buffer_;
  std::size_t used_ = 0;
};

// Slices consecutive ranges off a part whose size was checked.
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

// Checks the sizes of all parts against the body. The sizes of single encoded frames are checked
// later.
Status CheckParts(const Message& message, const InsertBody& body, const TrajectorySpec& spec,
                  Codec codec) {
  // Part 0 has the columns of all chunks and items, each further part one chunk's frames.
  if (message.parts.size() != body.chunks.size() + 1) {
    return InvalidArgument("insert: {} parts for {} chunks, must be one more than chunks",
                           message.parts.size(), body.chunks.size());
  }
  // Expected size of part 0, summed in 64 bits from 32-bit counts.
  std::size_t columns = std::size_t(body.items) * ItemBytes(spec);
  for (std::size_t c = 0; c < body.chunks.size(); ++c) {
    const ChunkHeader& header = body.chunks[c];
    const std::size_t bytes = message.parts[c + 1].size();
    const std::size_t expected = header.frames * spec.observation.bytes();
    // Encoded frames have at least their tag byte each.
    const bool fits = codec == Codec::kNone ? bytes == expected : bytes >= header.frames;
    if (header.frames == 0 || !fits) {
      return InvalidArgument("insert: chunk {} has {} observation bytes; {} frames of {} have {}{}",
                             c, bytes, header.frames, spec.observation.ToString(), expected,
                             codec == Codec::kNone ? "" : " before encoding");
    }
    // The table computes first_frame + frames.
    if (header.first_frame > ~std::uint64_t{0} - header.frames) {
      return InvalidArgument("insert: chunk {} begins at frame {}, which overflows", c,
                             header.first_frame);
    }
    columns += ColumnBytes(spec, codec, header.frames);
  }
  if (message.parts[0].size() != columns) {
    return InvalidArgument("insert: columns have {} bytes; {} items and the chunks' frames take {}",
                           message.parts[0].size(), body.items, columns);
  }
  return Status::Ok();
}

// Guards the sender against chunks that do not match the table's spec.
void CheckShape(const EncodedChunk& chunk, const TrajectorySpec& spec, Codec codec) {
  const std::size_t frames = chunk.frames;
  const bool observations = codec == Codec::kNone
                                ? chunk.observation.size() == frames * spec.observation.bytes()
                                : chunk.frame_bytes.size() == frames * sizeof(std::uint32_t);
  TROOP_CHECK(observations && chunk.action.size() == frames * spec.action.bytes() &&
                  chunk.reward.size() == frames * sizeof(float) &&
                  chunk.discount.size() == frames * sizeof(float) && chunk.final.size() == frames,
              "a chunk of {} frames does not fit observation {}, action {}", frames,
              spec.observation.ToString(), spec.action.ToString());
}

// The state travels separately, after all items.
// Explicit fields: the wire format must not follow changes of Item.
WireItem ToWire(const Item& item) {
  return {.stream = item.stream,
          .first_frame = item.first_frame,
          .policy_version = item.policy_version,
          .length = item.length,
          .burn_in = item.burn_in,
          .priority = item.priority};
}

// Calls f for each column of a chunk, in wire order.
template <class C, class F>
void EachColumn(C& chunk, Codec codec, const F& f) {
  f(chunk.action);
  f(chunk.reward);
  f(chunk.discount);
  f(chunk.final);
  if (codec != Codec::kNone) f(chunk.frame_bytes);
}

}  // namespace

WireSpec ToWire(const TensorSpec& spec) {
  const auto dims = spec.shape.dims();
  return {std::uint8_t(spec.dtype), {dims.begin(), dims.end()}};
}

// Bounds the number of elements step by step, so that the product cannot overflow.
Result<TensorSpec> FromWire(const WireSpec& spec) {
  constexpr std::int64_t kElementsMax = std::int64_t{1} << 28;  // 1 GiB of f32
  // A cast of an unknown type would be an invalid enumerator.
  if (spec.dtype > std::uint8_t(DType::kU32) || spec.shape.size() > Shape::kMaxRank) {
    return DataLoss("tensor has invalid type {} or rank {}", spec.dtype, spec.shape.size());
  }
  std::int64_t elements = 1;
  for (const std::int64_t dim : spec.shape) {
    if (dim < 1 || dim > kElementsMax / elements) {
      return DataLoss("tensor has invalid dimension {}", dim);
    }
    elements *= dim;
  }
  return TensorSpec{DType(spec.dtype), Shape(std::span(spec.shape))};
}

// Refuses descriptions that no table can have, before any cast or allocation.
Result<TableDescription> ParseTableInfo(const TableInfo& info) {
  TableDescription table{.name = info.name};
  TROOP_ASSIGN_OR_RETURN(table.trajectory.observation, FromWire(info.observation));
  TROOP_ASSIGN_OR_RETURN(table.trajectory.action, FromWire(info.action));
  if (info.state) {
    TROOP_ASSIGN_OR_RETURN(table.trajectory.state, FromWire(*info.state));
  }
  constexpr std::uint32_t kMax = 1024;  // as CheckView; keeps the casts below safe
  if (info.view_kind > 1 || info.codec > std::uint8_t(Codec::kZstd) || info.length_max > kMax ||
      info.stack > kMax || info.burn_in > kMax) {
    return DataLoss("table {}: invalid view of kind {}, or codec {}", info.name, info.view_kind,
                    info.codec);
  }
  table.view = {.kind = ViewSpec::Kind(info.view_kind),
                .length_max = int(info.length_max),
                .stack = int(info.stack),
                .burn_in = int(info.burn_in)};
  table.codec = Codec(info.codec);
  const Status view = CheckView(table.view);
  if (!view.ok()) return DataLoss("table {}: {}", info.name, view.message());
  return table;
}

// Shares the buffers of the chunk.
EncodedChunk PlainChunk(const Chunk& chunk) {
  EncodedChunk out;
  out.stream = chunk.stream;
  out.first_frame = chunk.first_frame;
  out.frames = chunk.frames;
  out.action = chunk.action;
  out.reward = chunk.reward;
  out.discount = chunk.discount;
  out.final = chunk.final;
  out.observation = chunk.observation;
  return out;
}

EncodedChunk EncodeChunk(const Chunk& chunk, FrameCoder* coder) {
  EncodedChunk out = PlainChunk(chunk);
  // Without a codec, frames are raw and need no sizes.
  if (coder->codec() == Codec::kNone) return out;
  const std::size_t frame_bytes = coder->frame_bytes();
  TROOP_CHECK(chunk.observation.size() == chunk.frames * frame_bytes,
              "{} observation bytes for {} frames of {}", chunk.observation.size(), chunk.frames,
              frame_bytes);
  // The coder's bound may be far above the result, which lives as long as the message.
  // Encode into the worst-case size, then copy what was used into a part.
  MutableBuffer lengths(chunk.frames * sizeof(std::uint32_t));
  MutableBuffer encoded(chunk.frames * coder->encoded_bytes_max());
  std::size_t used = 0;
  for (std::uint32_t i = 0; i < chunk.frames; ++i) {
    const std::size_t bytes =
        coder->Encode(chunk.observation.data() + i * frame_bytes, encoded.data() + used);
    lengths.as<std::uint32_t>()[i] = std::uint32_t(bytes);
    used += bytes;
  }
  out.frame_bytes = std::move(lengths).Freeze();
  out.observation = CopyToSharedBuffer(std::as_bytes(encoded.bytes().first(used)));
  return out;
}

Message PackInsert(std::uint32_t table, const TrajectorySpec& spec, Codec codec,
                   std::span<const EncodedChunk> chunks, std::span<const Item> items) {
  // Part 0 has the items, their states, and the columns of all chunks; the observations follow as
  // parts.
  InsertBody body{.table = table, .items = std::uint32_t(items.size())};
  std::size_t columns = items.size() * ItemBytes(spec);
  for (const EncodedChunk& chunk : chunks) {
    CheckShape(chunk, spec, codec);
    body.chunks.push_back({chunk.stream, chunk.first_frame, chunk.frames});
    columns += ColumnBytes(spec, codec, chunk.frames);
  }
  Message message{.type = MessageType::kInsert, .body = EncodeBody(body)};
  Packer packer(columns);
  for (const Item& item : items) {
    const WireItem wire = ToWire(item);
    packer.Add(&wire, sizeof wire);
  }
  if (spec.state) {
    for (const Item& item : items) {
      TROOP_CHECK(item.state.size() == spec.state->bytes(), "item state has {} bytes, must have {}",
                  item.state.size(), spec.state->bytes());
      packer.Add(item.state.data(), item.state.size());
    }
  }
  for (const EncodedChunk& chunk : chunks) {
    EachColumn(chunk, codec,
               [&](const Buffer& column) { packer.Add(column.data(), column.size()); });
  }
  message.parts.push_back(std::move(packer).Take());
  for (const EncodedChunk& chunk : chunks) message.parts.push_back(chunk.observation);
  return message;
}

Result<EncodedInsert> ParseInsert(const Message& message, const InsertBody& body,
                                  const TrajectorySpec& spec, Codec codec) {
  TROOP_RETURN_IF_ERROR(CheckParts(message, body, spec, codec));
  // The sizes are right, so that slicing stays within part 0.
  Cutter columns(message.parts[0]);
  EncodedInsert call;
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
  if (spec.state) {
    for (Item& item : call.items) item.state = columns.Take(spec.state->bytes());
  }
  call.chunks.reserve(body.chunks.size());
  for (std::size_t c = 0; c < body.chunks.size(); ++c) {
    const ChunkHeader& header = body.chunks[c];
    EncodedChunk chunk;
    chunk.stream = header.stream;
    chunk.first_frame = header.first_frame;
    chunk.frames = header.frames;
    chunk.action = columns.Take(header.frames * spec.action.bytes());
    chunk.reward = columns.Take(header.frames * sizeof(float));
    chunk.discount = columns.Take(header.frames * sizeof(float));
    chunk.final = columns.Take(header.frames);
    if (codec != Codec::kNone) {
      chunk.frame_bytes = columns.Take(header.frames * sizeof(std::uint32_t));
    }
    chunk.observation = message.parts[c + 1];
    call.chunks.push_back(std::move(chunk));
  }
  return call;
}

// Keys first, so that both arrays are aligned for copying as a whole.
Buffer PackUpdates(std::span<const std::uint64_t> key, std::span<const float> priority) {
  Packer packer(key.size_bytes() + priority.size_bytes());
  packer.Add(key.data(), key.size_bytes());
  packer.Add(priority.data(), priority.size_bytes());
  return std::move(packer).Take();
}

Status ParseUpdates(const Message& message, std::uint32_t updates, std::vector<std::uint64_t>* key,
                    std::vector<float>* priority) {
  // Without updates there must be no part at all.
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
