#include "apps/serving/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace troop {
namespace {

constexpr Time At(std::int64_t s) { return Time(Seconds(double(s))); }

// Stacks of three frames of one byte each, as text: "0" is a zero.
class SessionTableTest : public testing::Test {
 protected:
  std::string Append(const std::string& id, char frame, bool reset, std::int64_t s) {
    const std::byte bytes[] = {std::byte(frame)};
    std::byte stacked[3] = {};
    const auto frames = table_.Append({id, reset}, bytes, At(s), stacked);
    if (!frames.ok()) return std::string(CodeName(frames.status().code()));
    std::string text = std::to_string(*frames) + " ";
    for (const std::byte b : stacked) text += b == std::byte{0} ? '0' : char(b);
    return text;
  }
  SessionTable table_{{.sessions_max = 2, .idle = Seconds(10), .frame_bytes = 1, .stack_bytes = 3}};
};

TEST_F(SessionTableTest, StacksAreIndependentAndBeginWithZeros) {
  EXPECT_EQ(Append("a", 'x', true, 0), "1 00x");
  EXPECT_EQ(Append("b", 'p', true, 0), "1 00p");
  EXPECT_EQ(Append("a", 'y', false, 1), "2 0xy");
  EXPECT_EQ(Append("a", 'z', false, 1), "3 xyz");
  EXPECT_EQ(Append("a", 'w', false, 1), "4 yzw");
  EXPECT_EQ(Append("b", 'q', false, 1), "2 0pq");
  EXPECT_EQ(Append("a", 'n', true, 1), "1 00n");
}

TEST_F(SessionTableTest, UnknownSessionMustBegin) {
  EXPECT_EQ(Append("a", 'x', false, 0), "failed_precondition");
  EXPECT_EQ(table_.size(), 0u);
}

TEST_F(SessionTableTest, UnusedSessionsExpireInOrderOfUse) {
  Append("a", 'x', true, 0);
  Append("b", 'x', true, 1);
  EXPECT_EQ(Append("a", 'y', false, 9), "2 0xy");
  EXPECT_EQ(Append("b", 'y', false, 11), "failed_precondition");  // unused for 10 s
  EXPECT_EQ(Append("a", 'z', false, 18), "3 xyz");
  EXPECT_EQ(table_.size(), 1u);
}

TEST_F(SessionTableTest, FullTableRefusesNewSessionsOnly) {
  Append("a", 'x', true, 0);
  Append("b", 'x', true, 5);
  EXPECT_EQ(Append("c", 'x', true, 9), "resource_exhausted");
  EXPECT_EQ(Append("b", 'y', true, 9), "1 00y");
  EXPECT_EQ(Append("c", 'x', true, 10), "1 00x");  // a has expired
}

}  // namespace
}  // namespace troop
