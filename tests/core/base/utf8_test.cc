#include "core/base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace troop {
namespace {

TEST(Utf8Test, PrintableLineKeepsUnicodeCharacters) {
  const std::string text = "plain \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  EXPECT_EQ(PrintableLine(text, 1000), text);
}

TEST(Utf8Test, PrintableLineTruncatesBetweenCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  const std::vector<std::size_t> ends = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t size = 0; size < ends.size(); ++size) {
    EXPECT_EQ(PrintableLine(text, size), text.substr(0, ends[size])) << size;
    const auto cut = std::string_view(text).substr(0, size);
    EXPECT_EQ(PrintableLine(cut, 1000), text.substr(0, ends[size])) << size;
  }
}

TEST(Utf8Test, PrintableLineReplacesControlsAndInvalidUtf8) {
  EXPECT_EQ(PrintableLine("a\nb\x1B[2Jc\x7F", 1000), "a b [2Jc ");
  EXPECT_EQ(PrintableLine("\xFF\xC3z\xED\xA0\x80\xC0\x80!", 1000),
            "??z?????"
            "!");
}

}  // namespace
}  // namespace troop
