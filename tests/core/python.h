#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

namespace troop {

// Ends a test where the reader is missing: tools/test makes the environment and names it.
#define TROOP_SKIP_WITHOUT_PYTHON()           \
  if (getenv("TROOP_TEST_PYTHON") == nullptr) \
  GTEST_SKIP()                                \
      << "TROOP_TEST_PYTHON names no interpreter with the packages of tools/test-requirements.txt"

// Runs `python ARGUMENTS` and returns what it prints; a failure fails the test.
inline std::string RunPython(const std::string& arguments) {
  const std::string command = fmt::format("{} {}", getenv("TROOP_TEST_PYTHON"), arguments);
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (std::size_t n; pipe != nullptr && (n = fread(part, 1, sizeof part, pipe)) > 0;) {
    text.append(part, n);
  }
  EXPECT_TRUE(pipe != nullptr && pclose(pipe) == 0) << command;
  return text;
}

}  // namespace troop
