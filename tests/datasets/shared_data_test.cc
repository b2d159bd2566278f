#include "datasets/shared_data.h"

#include <gtest/gtest.h>

namespace troop {
namespace {

using Data = std::shared_ptr<const int>;

TEST(SharedDataTest, LoadsOncePerKeyWhileHeld) {
  SharedData<int> shared;
  int loads = 0;
  const auto load = [&]() -> Result<Data> { return std::make_shared<const int>(++loads); };
  Data first = *shared.Get("a", load);
  EXPECT_EQ(*shared.Get("a", load), first);
  EXPECT_EQ(loads, 1);
  // Another key has other data, which replace the remembered ones.
  const Data second = *shared.Get("b", load);
  EXPECT_EQ(*second, 2);
  EXPECT_EQ(**shared.Get("a", load), 3);
  // Data that nothing holds are gone.
  EXPECT_EQ(**shared.Get("a", load), 4);
  // An empty key is never shared.
  const Data alone = *shared.Get("", load);
  EXPECT_NE(*shared.Get("", load), alone);
}

TEST(SharedDataTest, ErrorsAreNotRemembered) {
  SharedData<int> shared;
  EXPECT_EQ(shared.Get("a", []() -> Result<Data> { return NotFound("no file"); }).status().code(),
            Code::kNotFound);
  const auto data =
      shared.Get("a", []() -> Result<Data> { return std::make_shared<const int>(7); });
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(**data, 7);
}

}  // namespace
}  // namespace troop
