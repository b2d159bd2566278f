// Hostile messages to a replay server, some in a row, as net/ hands them over after its own checks.
// An input is a byte that chooses the server, then for each message
//   kind u8, caller u8, body_bytes u16, body, parts u8, and for each part bytes u16 and the part.
// Every call is answered once, or parked and answered when the server goes; answers are what they
// say; items and frames stay within the table's options; and the good messages still work.
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "net/error.h"
#include "net/wire/codec.h"
#include "replay/codec/encoded_batch.h"
#include "replay/codec/table_delta.h"
#include "replay/service/messages.h"
#include "replay/service/server.h"
#include "tests/fuzz/fuzz.h"
#include "tests/replay/table_world.h"

namespace troop {
namespace {

constexpr std::array kTypes{
    MessageType::kInsert,      MessageType::kSample,           MessageType::kUpdatePriorities,
    MessageType::kReplayStats, MessageType::kDescribe,         MessageType::kDictionary,
    MessageType::kReconfigure, MessageType::kReplayCheckpoint, MessageType::kNone,
    MessageType::kTableDelta};
constexpr std::size_t kMessagesMax = 32;
constexpr std::int64_t kBatchMax = 256;

ReplayServer::Options OptionsOf(int kind) {
  ReplayTableOptions table{.table = TinyOptions(20), .samples_per_insert = 0};
  if (kind == 1) {
    table.samples_per_insert = 2;
    table.table.min_items = 4;
    table.table.max_times_sampled = 3;
    table.table.remover.kind = Selector::Kind::kLowest;
  } else if (kind == 2) {
    table.table.trajectory = {.observation = {DType::kF32, {16}},
                              .action = {DType::kI32, {}},
                              .state = TensorSpec{DType::kF32, {2}}};
    table.table.view = {.kind = ViewSpec::Kind::kSequence, .length_max = 3, .burn_in = 2};
    table.table.codec = Codec::kLz4;
    table.table.max_policy_age = 100;
  } else if (kind == 3) {
    table.table.view = {.length_max = 2, .stack = 3};
    table.table.codec = Codec::kZstd;
    table.table.sampler.kind = Selector::Kind::kUniform;
    table.table.remover.kind = Selector::Kind::kUniform;
    table.table.reservoir = true;
  } else if (kind == 4) {
    table.samples_per_insert = 2;
    table.table.min_items = 4;
    table.table.view = {.length_max = 3, .stack = 2};
    table.table.codec = Codec::kLz4;
    table.table.trim_every_samples = 8;
    table.table.feed = true;
  }
  return {.tables = {std::move(table)}, .batch_size_max = kBatchMax};
}

// Receives the answer of one call, which must come exactly once.
class Sink final : public Reply::Sink {
 public:
  explicit Sink(std::vector<std::optional<Message>>* answers, std::size_t call)
      : answers_(answers), call_(call) {}
  void Answer(Message message) override {
    TROOP_CHECK(!(*answers_)[call_].has_value(), "call {} is answered twice", call_);
    (*answers_)[call_] = std::move(message);
  }

 private:
  std::vector<std::optional<Message>>* answers_;
  std::size_t call_;
};

void CheckSampleReply(const Table::Options& options, const Message& answer) {
  const auto body = DecodeBody<SampleReplyBody>(answer.body);
  TROOP_CHECK(body.ok() && body->rows.size() == answer.parts.size(), "an invalid sample reply");
  std::uint64_t rows = 0;
  EncodedBatch drawn;
  for (std::size_t i = 0; i < answer.parts.size(); ++i) {
    const Status parsed =
        ParseEncodedBatch(answer.parts[i], options.trajectory, options.view, options.codec, &drawn);
    TROOP_CHECK(parsed.ok() && drawn.size() == body->rows[i], "block {}: {}", i, parsed.ToString());
    for (const float reward : drawn.reward) TROOP_CHECK(std::isfinite(reward), "{}", reward);
    rows += body->rows[i];
  }
  TROOP_CHECK(rows <= std::uint64_t{body->batch_size} * body->batches, "{} rows", rows);
}

void CheckFeedReply(const Table::Options& options, const Message& answer) {
  const auto body = DecodeBody<TableDeltaReplyBody>(answer.body);
  TROOP_CHECK(body.ok() && answer.parts.size() == 1, "an invalid feed reply");
  TROOP_CHECK(body->start <= body->next && body->next <= body->end, "from {} to {} of {}",
              body->start, body->next, body->end);
  TableDelta feed;
  const Status parsed = ParseTableDelta(answer.parts[0].bytes(), options.trajectory, options.view,
                                        options.codec, {body->slots, body->frames}, &feed);
  TROOP_CHECK(parsed.ok(), "{}", parsed.ToString());
  for (const std::uint64_t number : feed.number) {
    TROOP_CHECK(number >= body->oldest && number < body->next, "item {} of {} to {}", number,
                body->oldest, body->next);
  }
}

void CheckAnswer(const Table::Options& options, MessageType type, const Message& answer) {
  if (answer.type == MessageType::kError) {
    TROOP_CHECK(!ErrorOf(answer).ok(), "an error with code OK");
    return;
  }
  TROOP_CHECK(int(answer.type) == int(type) + 1, "{} is answered with {}", int(type),
              int(answer.type));
  if (type == MessageType::kSample) CheckSampleReply(options, answer);
  if (type == MessageType::kTableDelta) CheckFeedReply(options, answer);
  if (type == MessageType::kDescribe) {
    TROOP_CHECK(DecodeBody<DescribeReplyBody>(answer.body).ok(), "no description");
  }
  if (type == MessageType::kReplayStats) {
    TROOP_CHECK(DecodeBody<ReplayStatsBody>(answer.body).ok(), "no statistics");
  }
}

Message TakeMessage(FuzzInput* input) {
  Message message{.type = kTypes[input->Take<std::uint8_t>() % kTypes.size()]};
  const auto caller = input->Take<std::uint8_t>();
  message.origin = {.role = caller % 2 == 0 ? Role::kActor : Role::kLearner,
                    .index = caller / 2 % 4,
                    .incarnation = std::uint64_t(caller / 8 + 1)};
  message.body = StringOf(input->TakeBytes(input->Take<std::uint16_t>()));
  const int parts = input->Take<std::uint8_t>() % 8;
  for (int i = 0; i < parts; ++i) {
    message.parts.push_back(Buffer::Copy(input->TakeBytes(input->Take<std::uint16_t>())));
  }
  return message;
}

Message GoodInsert(const Table::Options& options, StreamId stream, std::uint64_t first = 0) {
  const EncodedChunk chunk =
      EncodeFrames(options.trajectory, options.codec, stream, PlainFrames(first, 7));
  std::vector<Item> items = TinyItems(stream, first, 4, 1, options.view.length_max);
  for (Item& item : items) {
    item.burn_in = std::uint32_t(options.view.burn_in);
    if (options.trajectory.state) item.state = MutableBuffer::Zeros(8).Freeze();
  }
  return PackInsert(0, options.trajectory, options.codec, {&chunk, 1}, items);
}

void CheckCounts(const ReplayServer& server, const Table::Options& options) {
  Metrics metrics;
  server.Report(&metrics);
  const double items = metrics.Get("replay/items");
  TROOP_CHECK(items >= 0 && items <= double(options.capacity_items * 9 / 8 + 1), "{} items", items);
  for (const auto& [name, value] : metrics.snapshot()) {
    TROOP_CHECK(std::isfinite(value.value), "{} is {}", name, value.value);
  }
}

void CheckServer(int kind, FuzzInput* input) {
  const ReplayServer::Options options = OptionsOf(kind);
  auto server = std::move(*MakeReplayServer(options));
  const Table::Options& table = options.tables[0].table;
  std::vector<std::optional<Message>> answers(kMessagesMax + 1);
  std::vector<MessageType> types;
  Time now{Seconds(1)};
  const auto call = [&](Message message) {
    types.push_back(message.type);
    const std::size_t number = types.size() - 1;
    server->Handle(std::move(message), Reply(std::make_unique<Sink>(&answers, number)));
    server->Tick(now);
    now += Milliseconds(50);
  };
  while (!input->empty() && types.size() < kMessagesMax) call(TakeMessage(input));
  CheckCounts(*server, table);
  call(GoodInsert(table, 1'000'000));
  const std::optional<Message>& good = answers[types.size() - 1];
  // It may wait for its turn behind others, for the limiter; it is never refused.
  TROOP_CHECK(!good || good->type == MessageType::kInsertReply, "a good insert is refused: {}",
              ErrorOf(*good).ToString());
  CheckCounts(*server, table);
  server.reset();
  for (std::size_t i = 0; i < types.size(); ++i) {
    TROOP_CHECK(answers[i].has_value(), "call {} is never answered", i);
    CheckAnswer(table, types[i], *answers[i]);
  }
}

std::string Packed(const Message& message, int caller) {
  std::string out;
  const auto number = [&out](auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i] == message.type) number(std::uint8_t(i));
  }
  number(std::uint8_t(caller));
  number(std::uint16_t(message.body.size()));
  out += message.body;
  number(std::uint8_t(message.parts.size()));
  for (const Buffer& part : message.parts) {
    number(std::uint16_t(part.size()));
    out += part.text();
  }
  return out;
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  for (const int kind : {0, 1, 2, 3, 4}) {
    const Table::Options options = OptionsOf(kind).tables[0].table;
    const std::string server(1, char(kind));
    std::string course = server;
    course += Packed(GoodInsert(options, 1), 0);
    write(fmt::format("insert_{}", kind), course);
    course += Packed(GoodInsert(options, 1, 7), 0);
    course += Packed({.type = MessageType::kSample, .body = EncodeBody(SampleBody{0, 4, 2, 0})}, 1);
    const std::uint64_t key[] = {std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 1};
    const float priority[] = {0.5f, 2};
    course += Packed({.type = MessageType::kUpdatePriorities,
                      .body = EncodeBody(UpdateBody{0, 2, 0}),
                      .parts = {PackUpdates(key, priority)}},
                     1);
    if (kind == 4) {
      course += Packed(
          {.type = MessageType::kTableDelta, .body = EncodeBody(TableDeltaBody{.items_max = 3})},
          1);
      course += Packed(
          {.type = MessageType::kTableDelta,
           .body = EncodeBody(TableDeltaBody{
               .sample = {.batches = 1, .charge = 4}, .life = 1, .next = 3, .items_max = 9})},
          1);
    }
    write(fmt::format("course_{}", kind), course);
    course += Packed({.type = MessageType::kSample,
                      .body = EncodeBody(SampleBody{0, 4, 2, 8, 2, 3, true, 9}),
                      .parts = {PackUpdates(key, priority)}},
                     1);
    course += Packed({.type = MessageType::kReplayStats}, 1);
    course += Packed({.type = MessageType::kDescribe}, 1);
    course += Packed({.type = MessageType::kDictionary, .body = EncodeBody(DictionaryBody{})}, 0);
    course += Packed(
        {.type = MessageType::kReconfigure, .body = EncodeBody(ReconfigureBody{0, 4, 0.1, 2})}, 1);
    course += Packed({.type = MessageType::kReplayCheckpoint, .body = EncodeBody(TableBody{})}, 1);
    write(fmt::format("all_{}", kind), course);
  }
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  QuietLog();
  FuzzInput input(data, size);
  const int kind = input.Take<std::uint8_t>();
  if (kind <= 4) CheckServer(kind, &input);
  return 0;
}
