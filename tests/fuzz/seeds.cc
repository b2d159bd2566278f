// `<name>_fuzz --seeds FOLDER`, with libFuzzer: writes the seeds of the target and ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz.h"

namespace {

int WriteSeeds(const std::filesystem::path& folder) {
  if (troop::VisitSeeds == nullptr) {
    std::fprintf(stderr, "this target has no seeds: its corpus is kept by hand\n");
    return 1;
  }
  std::filesystem::create_directories(folder);
  std::size_t files = 0, bytes = 0;
  troop::VisitSeeds([&](std::string_view name, const std::string& seed) {
    std::ofstream(folder / name, std::ios::binary) << seed;
    ++files;
    bytes += seed.size();
  });
  std::printf("%zu seeds of %zu bytes\n", files, bytes);
  return 0;
}

}  // namespace

// libFuzzer calls it first, and leaves flags that begin with two dashes alone.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::strcmp((*argv)[1], "--seeds") == 0) std::exit(WriteSeeds((*argv)[2]));
  return 0;
}
