// fuzz_corpus TARGET FOLDER: calls one fuzz target for every file of a folder, without libFuzzer.
// That is how ctest replays the corpora with any compiler and sanitizer. The program holds all
// targets: CMake gives the functions of each its name, and lists them in fuzz_targets.inc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#define FUZZ_FUNCTION(name) name##_fuzz_LLVMFuzzerTestOneInput
#define FUZZ_TARGET(name) \
  extern "C" int FUZZ_FUNCTION(name)(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

// Null if there is no such target.
Target FindTarget(std::string_view name) {
#define FUZZ_TARGET(target) \
  if (name == #target) return &FUZZ_FUNCTION(target);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const Target target = argc == 3 ? FindTarget(argv[1]) : nullptr;
  if (target == nullptr) {
    std::fprintf(stderr, "usage: fuzz_corpus TARGET FOLDER, with one of these targets:\n");
#define FUZZ_TARGET(name) std::fprintf(stderr, "  %s\n", #name);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::fprintf(stderr, "%s\n", path.c_str());  // the last one printed is the one that crashed
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;  // an empty corpus tests nothing
}
