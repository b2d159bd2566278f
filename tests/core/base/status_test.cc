#include "core/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace troop {
namespace {

TEST(StatusTest, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_TRUE(status.WithContext("anything").ok());
  EXPECT_EQ(status.WithContext("anything").ToString(), "ok");
}

TEST(StatusTest, ErrorHoldsCodeAndMessageWithContextPrefix) {
  const Status status = NotFound("{} of {}", 3, "x");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.ToString(), "not_found: 3 of x");
  EXPECT_EQ(status.WithContext("file f").ToString(), "not_found: file f: 3 of x");
}

TEST(StatusTest, CodesKeepWireNumbersAndDistinctNames) {
  EXPECT_EQ(int(Code::kOk), 0);
  EXPECT_EQ(int(Code::kUnavailable), 7);
  EXPECT_EQ(int(Code::kInternal), 12);
  std::set<std::string_view> names;
  for (int code = 0; code <= 12; ++code) names.insert(CodeName(Code(code)));
  EXPECT_EQ(names.size(), 13u);
  EXPECT_EQ(CodeName(Code(99)), "unknown");
}

Result<std::unique_ptr<int>> Seven(bool good) {
  if (!good) return NotFound("no seven");
  return std::make_unique<int>(7);
}

TEST(ResultTest, HoldsValueOrError) {
  Result<std::unique_ptr<int>> good = Seven(true);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 7);
  EXPECT_FALSE(Seven(false).ok());
  EXPECT_EQ(Seven(false).status().ToString(), "not_found: no seven");
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("{} is odd", x);
  return x / 2;
}
Result<int> Quarter(int x) {
  TROOP_ASSIGN_OR_RETURN(const int half, Half(x));
  TROOP_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
Status IsMultipleOfFour(int x) {
  TROOP_RETURN_IF_ERROR(Quarter(x).status());
  return Status::Ok();
}

TEST(ResultTest, MacrosPassValuesAndReturnErrors) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_TRUE(IsMultipleOfFour(8).ok());
  EXPECT_EQ(IsMultipleOfFour(7).message(), "7 is odd");
}

TEST(ResultDeathTest, AbortsOnValueOfError) {
  EXPECT_DEATH((void)Half(3).value(), "check failed.*3 is odd");
}

}  // namespace
}  // namespace troop
