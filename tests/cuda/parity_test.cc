#include <gtest/gtest.h>

#include "kernels/cuda/emulator/emulator.h"
#include "tests/cuda/parity.h"

// Every parity case on the emulated device, with several orders of threads, blocks and streams: a
// result that depends on the order reveals a missing barrier or event.
namespace troop::cuda {
namespace {

class ParityTest : public testing::TestWithParam<ParityCase> {};

// Ascending, descending, and two random orders, of which the second lets all threads take turns
// (kernels/cuda/emulator/emulator.h).
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kFirstSchedule = 2;  // the sanitizer is ten times slower
#else
constexpr std::uint64_t kFirstSchedule = 0;
#endif

TEST_P(ParityTest, MatchesReferenceInAnyOrder) {
  for (std::uint64_t schedule = kFirstSchedule; schedule < 4; ++schedule) {
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
