#include "replay/table/room_maker.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/replay/parts_world.h"

namespace troop {
namespace {

// A table, and a separate RoomMaker for the call that the window has planned.
struct RoomWorld {
  explicit RoomWorld(const TableOptions& options)
      : parts(MakeParts(options)),
        room(options, {.log = &parts->log,
                       .streams = &parts->streams,
                       .window = &parts->window,
                       .slots = &parts->slots,
                       .evictor = &parts->evictor,
                       .compactor = &parts->compactor}) {}
  Result<std::size_t> MakeRoom(const EncodedChunk& chunk, std::int64_t newcomers) {
    const auto views = parts->inserter.checker().View({&chunk, 1});
    TROOP_CHECK(views.ok() && parts->window.Plan(*views).ok(), "an invalid chunk");
    const auto bytes = room.MakeRoom(newcomers);
    parts->window.Abandon();
    return bytes;
  }
  std::unique_ptr<TableParts> parts;
  RoomMaker room;
};

TEST(RoomMakerTest, ReturnsBytesOfTheRecord) {
  RoomWorld world(TinyOptions());
  const auto bytes = world.MakeRoom(TinyChunk(1, 0, 3), 2);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, world.parts->log.layout().RecordBytes(1, 0, 3, 3 * 8));
}

TEST(RoomMakerTest, EvictsWhatTheSlotsLack) {
  RoomWorld world(TinyOptions(10));
  PutInto(world.parts.get(), TinyChunk(1, 0, 10), TinyItems(1, 0, 8));
  ASSERT_TRUE(world.MakeRoom(TinyChunk(1, 10, 5), 5).ok());
  EXPECT_EQ(world.parts->slots.size(), 5);
}

TEST(RoomMakerTest, ReservoirKeepsItsItems) {
  TableOptions options = TinyOptions(10);
  options.reservoir = true;
  options.remover.kind = Selector::Kind::kUniform;
  RoomWorld world(options);
  PutInto(world.parts.get(), TinyChunk(1, 0, 11), TinyItems(1, 0, 10));
  ASSERT_TRUE(world.MakeRoom(TinyChunk(1, 11, 5), 5).ok());
  EXPECT_EQ(world.parts->slots.size(), 10);
}

TEST(RoomMakerTest, CallThatCanNeverFitEvictsNothing) {
  TableOptions options = TinyOptions(10);
  options.bytes_max = std::size_t{1} << 20;
  RoomWorld world(options);
  PutInto(world.parts.get(), TinyChunk(1, 0, 10), TinyItems(1, 0, 8));
  EXPECT_EQ(world.MakeRoom(TinyChunk(1, 10, 5), 11).status().code(), Code::kResourceExhausted);
  const auto large = world.MakeRoom(TinyChunk(1, 10, 30000), 1);
  EXPECT_EQ(large.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(world.parts->slots.size(), 8);
}

TEST(RoomMakerTest, LogWithoutRoomEvictsItemsUntilFramesLeave) {
  TableOptions options = TinyOptions(100);
  options.view = {.length_max = 1};
  options.frames = 40;
  RoomWorld world(options);
  PutInto(world.parts.get(), TinyChunk(1, 0, 18), TinyItems(1, 0, 17));
  PutInto(world.parts.get(), TinyChunk(1, 18, 18), TinyItems(1, 17, 18));
  ASSERT_TRUE(world.MakeRoom(TinyChunk(1, 36, 10), 1).ok());
  EXPECT_LE(world.parts->log.frames(), 30);
  EXPECT_LT(world.parts->slots.size(), 35);
  EXPECT_GT(world.parts->slots.size(), 0);
}

}  // namespace
}  // namespace troop
