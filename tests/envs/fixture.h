#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/check.h"

namespace troop {

// Reads a little-endian file of tests/fixtures/envs front to back; tools/make_env_fixtures.py
// describes the formats. Reading past the end aborts.
class Fixture {
 public:
  explicit Fixture(const std::string& name) {
    const std::string path = TROOP_SOURCE_DIR "/tests/fixtures/envs/" + name;
    std::ifstream file(path, std::ios::binary);
    TROOP_CHECK(file.good(), "{} is missing; a tool of tools/make_*_fixtures.py makes it", path);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  explicit Fixture(std::vector<char> bytes) : bytes_(std::move(bytes)) {}
  const std::vector<char>& bytes() const { return bytes_; }

  template <class T>
  T Read() {
    return ReadMany<T>(1)[0];
  }
  template <class T>
  std::vector<T> ReadMany(std::size_t count) {
    TROOP_CHECK(at_ + count * sizeof(T) <= bytes_.size(), "the fixture ends early");
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes_.data() + at_, count * sizeof(T));
    at_ += count * sizeof(T);
    return values;
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::vector<char> bytes_;
  std::size_t at_ = 0;
};

}  // namespace troop
