#include <gtest/gtest.h>

#include "kernels/cuda/emulator/emulator.h"
#include "tests/cuda/parity.h"

// Every parity case on the emulated device, with several orders of threads, blocks and streams: a
// result that depends on the order reveals a missing barrier or event.
namespace troop::cuda {
namespace {

class ParityTest : public testing::TestWithParam<ParityCase> {};

TEST_P(ParityTest, MatchesReferenceInAnyOrder) {
  for (const std::uint64_t schedule : {0, 1, 2, 3}) {
    SCOPED_TRACE(schedule);
    emulator::SetSchedule(schedule);
    std::string error;
    const auto device = Device::Open(0, &error);
    ASSERT_NE(device, nullptr) << error;
    Parity parity(*device, 17 + schedule);
    GetParam().run(parity);
    EXPECT_EQ(device->error(), "");
    for (const std::string& failure : parity.failures()) ADD_FAILURE() << failure;
  }
}

std::string Name(const testing::TestParamInfo<ParityCase>& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, ParityTest, testing::ValuesIn(AllParityCases()), Name);

}  // namespace
}  // namespace troop::cuda
