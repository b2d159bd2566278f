// Hostile bytes against what a learner sends to parameter shards: an encoded gradient (its body,
// then its payload), a shard map, or gaps. What is accepted keeps its promises: every index inside,
// every number finite, and a map that is read is written again as the same.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "net/codec.h"
#include "paramserver/gap_code.h"
#include "paramserver/gradient_codec.h"
#include "paramserver/shard_map.h"
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
  GapReader reader(bytes, rice, elements);
  GapWriter writer(rice);
  std::int64_t index = 0, last = -1;
  std::uint32_t extra = 0;
  while (reader.Next(&index, &extra, extra_bits)) {
    TROOP_CHECK(index > last && index < elements, "{} after {} of {}", index, last, elements);
    last = index;
    writer.Add(index, extra, extra_bits);
  }
  // What could be read is what would be written; the last byte may hold more.
  const std::int64_t whole = writer.bits() / 8;
  const std::vector<std::byte> again = std::move(writer).Take();
  TROOP_CHECK(std::equal(again.begin(), again.begin() + whole, bytes.begin()), "other bytes");
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
    write("gradient_" + std::string(GradientCodecName(coded->codec)), bytes);
  }
  auto map = ShardMap::Make(Sharding::kMemory, {}, 10000, 3);
  write("map_memory", '\1' + EncodeBody(map->WithShard(7)->ToBody()));
  const std::vector<ParamSpec> params{{.name = "a.w", .offset = 0}, {.name = "b.w", .offset = 64}};
  map = ShardMap::Make(Sharding::kLayer, params, 100, 2);
  write("map_layer", '\1' + EncodeBody(map->ToBody()));
  GapWriter gaps(3);
  for (const std::int64_t index : {0, 1, 40, 41, 300}) gaps.Add(index, 1, 1);
  const std::vector<std::byte> bytes = std::move(gaps).Take();
  std::string seed("\2\3\1\0\0\0\0\0\1\0\0", 11);
  seed.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  write("gaps", seed);
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  troop::QuietLog();
  troop::FuzzInput input(data, size);
  switch (input.Take<std::uint8_t>() % 3) {
    case 0:
      troop::CheckGradient(input);
      break;
    case 1:
      troop::CheckMap(input);
      break;
    default:
      troop::CheckGaps(input);
  }
  return 0;
}
