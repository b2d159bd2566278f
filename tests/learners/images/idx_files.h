#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace troop::test {

// One IDX file of u8: big-endian sizes after the magic number, then the elements.
inline void WriteIdxFile(const std::string& path, const std::vector<std::uint32_t>& sizes,
                         const std::string& elements) {
  std::string bytes{0, 0, 8, char(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(char(size >> shift & 255));
  }
  std::ofstream(path, std::ios::binary) << bytes + elements;
}

// A pair of files under MNIST's names: PREFIX-images-idx3-ubyte and PREFIX-labels-idx1-ubyte.
inline void WriteIdx(const std::string& prefix, const std::array<std::uint32_t, 2>& size,
                     const std::string& pixels, const std::string& labels) {
  const auto images = std::uint32_t(labels.size());
  WriteIdxFile(prefix + "-images-idx3-ubyte", {images, size[0], size[1]}, pixels);
  WriteIdxFile(prefix + "-labels-idx1-ubyte", {images}, labels);
}

}  // namespace troop::test
