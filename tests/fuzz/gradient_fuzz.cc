// Hostile bytes against what parameter shards are sent: an encoded gradient (its body, then its
// payload), a shard map, gaps, pushes, updates for a backup, or a snapshot (whose checksum is made
// right). What is accepted keeps its promises: every index inside, every number finite, a map that
// is read is written again as the same, and a shard that took it can be saved and read again.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/config/enum_names.h"
#include "core/storage/crc32c.h"
#include "kernels/elementwise/is_finite.h"
#include "net/wire/codec.h"
#include "paramserver/codec/golomb_rice.h"
#include "paramserver/codec/gradient_codec.h"
#include "paramserver/protocol/messages.h"
#include "paramserver/replication/backup_client.h"
#include "paramserver/shard/parameter_shard.h"
#include "paramserver/shard/shard_map.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr std::int64_t kElements = 5000;

void CheckGradient(FuzzInput& input) {
  const std::size_t size = input.Take<std::uint16_t>();
  auto coded = DecodeBody<CodedGradient>(StringOf(input.TakeBytes(size)));
  if (!coded.ok()) return;
  // A huge gradient would be summed into a huge buffer.
  const std::int64_t elements = std::clamp<std::int64_t>(coded->elements, 0, kElements);
  coded->payload = Buffer::Copy(input.TakeRest());
  const auto payload = GradientPayload::Parse(*coded, elements);
  if (!payload.ok()) return;
  std::vector<float> sum(static_cast<std::size_t>(elements)), twice(sum.size());
  payload->AddTo(1, sum);
  for (const float x : sum) TROOP_CHECK(std::isfinite(x), "{} was accepted", x);
  payload->AddTo(1, twice);
  TROOP_CHECK(sum == twice, "another sum");
}

void CheckMap(FuzzInput& input) {
  const auto body = DecodeBody<ShardMapBody>(StringOf(input.TakeRest()));
  if (!body.ok()) return;
  const auto map = ShardMap::FromBody(*body, body->parameters);
  if (!map.ok()) return;
  TROOP_CHECK(EncodeBody(map->ToBody()) == EncodeBody(*body), "another map");
  std::int64_t owned = 0;
  for (const std::int32_t shard : map->shards()) owned += map->LoadOf(shard);
  TROOP_CHECK(owned == map->parameters(), "{} of {}", owned, map->parameters());
  if (map->ranges().size() > 64 || map->shards().size() > 16) return;
  for (const auto& next : {map->WithShard(7), map->WithoutShard(0)}) {
    if (!next.ok()) continue;
    TROOP_CHECK(ShardMap::FromBody(next->ToBody(), next->parameters()).ok(), "{}",
                next->ToString());
  }
}

void CheckGaps(FuzzInput& input) {
  const int rice = input.Take<std::uint8_t>() % (kRiceMax + 1);
  const int extra_bits = input.Take<std::uint8_t>() % 17;
  const auto elements = std::int64_t(input.Take<std::uint64_t>() >> 16);
  const std::span<const std::byte> bytes = input.TakeRest();
  GolombRiceReader reader(bytes, rice, elements);
  GolombRiceWriter writer(rice);
  std::int64_t index = 0, last = -1;
  std::uint32_t extra = 0;
  while (reader.Next(&index, &extra, extra_bits)) {
    TROOP_CHECK(index > last && index < elements, "{} after {} of {}", index, last, elements);
    last = index;
    writer.Add(index, extra, extra_bits);
  }
  // The writer reproduces the bytes that were read; the last byte may hold more bits.
  const std::int64_t whole = writer.bits() / 8;
  const std::vector<std::byte> again = std::move(writer).Take();
  TROOP_CHECK(std::equal(again.begin(), again.begin() + whole, bytes.begin()), "other bytes");
}

constexpr std::int64_t kShardElements = 96;

ParameterShard::Options ShardOptions() {
  ParameterShard::Options options;
  options.ranges = {{0, 64}, {128, 160}};
  options.sync = {.mode = SyncMode::kAsync, .learners = 2};
  options.guards = {.staleness_max = 3, .loss_deviations = 2, .norm_deviations = 2, .first = 2};
  return options;
}

std::unique_ptr<ParameterShard> MakeShard() {
  auto shard = ParameterShard::Make(ShardOptions(), std::vector<float>(kShardElements, 1));
  TROOP_CHECK(shard.ok(), "{}", shard.status().ToString());
  for (const int learner : {0, 1}) (*shard)->Join(learner);
  return std::move(*shard);
}

void CheckSavable(ParameterShard* shard) {
  const Buffer bytes = shard->Snapshot();
  const auto again = ParameterShard::Restore(ShardOptions(), std::span(&bytes, 1));
  // Finite gradients may overflow a value; that is the learner's to notice.
  if (!AllFinite(shard->value())) return;
  TROOP_CHECK(again.ok(), "{}", again.status().ToString());
  const Buffer same = (*again)->Snapshot();
  TROOP_CHECK(std::ranges::equal(bytes.bytes(), same.bytes()), "another snapshot");
}

// A byte of the origin, the sizes of body and parts, and these.
void CheckPushes(FuzzInput& input) {
  const auto shard = MakeShard();
  while (!input.empty()) {
    const auto who = input.Take<std::uint8_t>();
    Message message{.type = MessageType::kShardPush};
    message.origin = {
        .role = Role(who & 7), .index = who >> 3 & 1, .incarnation = std::uint64_t(who >> 4)};
    const std::size_t body = input.Take<std::uint16_t>();
    message.body = StringOf(input.TakeBytes(body));
    for (int parts = input.Take<std::uint8_t>() % 4; parts > 0; --parts) {
      const std::size_t size = input.Take<std::uint16_t>();
      message.parts.push_back(Buffer::Copy(input.TakeBytes(size)));
    }
    auto push = ReadShardPush(std::move(message), kShardElements, shard->epoch());
    if (!push.ok()) continue;
    static_cast<void>(shard->Push(std::move(*push)));
    while (shard->ApplyNext()) {
    }
    TROOP_CHECK(shard->held() == 0, "{} held in async", shard->held());
  }
  CheckSavable(shard.get());
}

void CheckUpdate(FuzzInput& input) {
  const std::size_t size = input.Take<std::uint16_t>();
  auto body = DecodeBody<ShardUpdateBody>(StringOf(input.TakeBytes(size)));
  if (!body.ok()) return;
  body->update.sum = Buffer::Copy(input.TakeRest());
  const auto backup = MakeShard();
  if (backup->Follow(body->update).ok()) CheckSavable(backup.get());
}

// Pieces of a snapshot, as a backup puts them together.
void CheckState(FuzzInput& input) {
  constexpr std::size_t kBytesMax = 4096;
  StateAssembler state(kBytesMax);
  for (int i = 0; i < 16; ++i) {
    const std::size_t size = input.Take<std::uint8_t>();
    const auto head = DecodeBody<ShardStateBody>(StringOf(input.TakeBytes(size)));
    const Buffer piece = Buffer::Copy(input.TakeBytes(input.Take<std::uint16_t>()));
    if (!head.ok()) return;
    const auto whole = state.Add(*head, piece);
    if (!whole.ok() || !whole->has_value()) continue;
    TROOP_CHECK((**whole).size() == head->total && head->total <= kBytesMax, "{} bytes of {}",
                (**whole).size(), head->total);
  }
}

void CheckSnapshot(FuzzInput& input) {
  const std::span<std::byte> bytes = input.TakeRest();
  if (bytes.size() >= 8) Overwrite(bytes, 4, Crc32c(bytes.subspan(8)));
  const Buffer snapshot = Buffer::Copy(bytes);
  const auto shard = ParameterShard::Restore(ShardOptions(), std::span(&snapshot, 1));
  if (shard.ok()) CheckSavable(shard->get());
}

template <class T>
void Append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

void WriteShardSeeds(const SeedWriter& write) {
  std::string pushes(1, '\3');
  const auto shard = MakeShard();
  ShardUpdate update;
  const std::vector<float> gradient(kShardElements, 0.5f);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    CodedGradient coded = CodedGradient::Dense(Buffer::Copy(std::as_bytes(std::span(gradient))));
    const std::string body = EncodeBody(ShardPushBody{
        .sequence = i, .epoch = 1, .clock = i, .learning_rate = 0.1f, .loss = 1, .parts = {coded}});
    Append(&pushes, std::uint8_t(int(Role::kLearner) | 16));
    Append(&pushes, std::uint16_t(body.size()));
    pushes += body;
    Append(&pushes, std::uint8_t{1});
    Append(&pushes, std::uint16_t(coded.payload.size()));
    pushes += coded.payload.text();
    ShardPush push{.id = {0, 1, i}, .epoch = 1, .clock = i, .learning_rate = 0.1f, .loss = 1};
    push.parts.push_back(*GradientPayload::Parse(coded, kShardElements));
    static_cast<void>(shard->Push(std::move(push)));
    update = *shard->ApplyNext();
  }
  write("pushes", pushes);
  update.from = 1, update.version = 2;
  const std::string body = EncodeBody(ShardUpdateBody{1, update});
  std::string bytes(1, '\4');
  Append(&bytes, std::uint16_t(body.size()));
  bytes += body;
  bytes += TextOf(std::as_bytes(std::span(gradient)));
  write("update", bytes);
  write("snapshot", '\5' + std::string(shard->Snapshot().text()));
  const Buffer snapshot = shard->Snapshot();
  std::string pieces(1, '\6');
  for (std::size_t at = 0; at < snapshot.size(); at += 500) {
    const Buffer piece = snapshot.Slice(at, std::min<std::size_t>(500, snapshot.size() - at));
    const std::string head = EncodeBody(ShardStateBody{1, 1, at, snapshot.size()});
    Append(&pieces, std::uint8_t(head.size()));
    pieces += head;
    Append(&pieces, std::uint16_t(piece.size()));
    pieces += piece.text();
  }
  write("state", pieces);
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  std::vector<float> gradient(600);
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = float(int(i * 37 % 101) - 50);
  for (int codec = 0; codec < 5; ++codec) {
    GradientEncoder encoder({.codec = GradientCodec(codec), .keep = 0.1, .threshold = 40},
                            std::int64_t(gradient.size()));
    const auto coded = encoder.Encode(gradient);
    const std::string body = EncodeBody(*coded);
    const auto size = std::uint16_t(body.size());
    std::string bytes(1, '\0');
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += body;
    bytes += coded->payload.text();
    write("gradient_" + std::string(EnumName(coded->codec)), bytes);
  }
  auto map = ShardMap::Make(Sharding::kMemory, {}, 10000, 3);
  write("map_memory", '\1' + EncodeBody(map->WithShard(7)->ToBody()));
  const std::vector<ParamSpec> params{{.name = "a.w", .offset = 0}, {.name = "b.w", .offset = 64}};
  map = ShardMap::Make(Sharding::kLayer, params, 100, 2);
  write("map_layer", '\1' + EncodeBody(map->ToBody()));
  GolombRiceWriter gaps(3);
  for (const std::int64_t index : {0, 1, 40, 41, 300}) gaps.Add(index, 1, 1);
  const std::vector<std::byte> bytes = std::move(gaps).Take();
  std::string seed("\2\3\1\0\0\0\0\0\1\0\0", 11);
  seed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  write("gaps", seed);
  WriteShardSeeds(write);
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troop::QuietLog();
  troop::FuzzInput input(data, size);
  switch (input.Take<std::uint8_t>() % 7) {
    case 0:
      troop::CheckGradient(input);
      break;
    case 1:
      troop::CheckMap(input);
      break;
    case 2:
      troop::CheckGaps(input);
      break;
    case 3:
      troop::CheckPushes(input);
      break;
    case 4:
      troop::CheckUpdate(input);
      break;
    case 5:
      troop::CheckSnapshot(input);
      break;
    default:
      troop::CheckState(input);
  }
  return 0;
}
