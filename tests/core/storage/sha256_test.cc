#include "core/storage/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace troop {
namespace {

// The examples of FIPS 180 (NIST, "SHA256.pdf").
TEST(Sha256Test, MatchesExamplesOfStandard) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// hashlib.sha256 over the digests of "a" * n, n from 0 to 200: all ways in which a message can end
// within its last blocks.
TEST(Sha256Test, PadsEveryLengthOfLastBlock) {
  std::string digests;
  for (std::size_t n = 0; n <= 200; ++n) digests += Sha256Hex(std::string(n, 'a'));
  EXPECT_EQ(Sha256Hex(digests), "eb555248bd20c7831e511d4461b42c9b084e3a64b44d57b00051172f8afe03ff");
}

}  // namespace
}  // namespace troop
