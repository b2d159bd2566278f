#pragma once

#include <fmt/format.h>

#include <string>

namespace troop {

inline const std::string kTarEnd(1024, '\0');

// A file of a tar archive: header, bytes, zeros up to the next block. size: in octal; empty: that
// of the bytes.
inline std::string TarFile(const std::string& name, const std::string& bytes, char type = '0',
                           const std::string& prefix = "", const std::string& size = "") {
  std::string header(512, '\0');
  const auto put = [&header](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000644");
  put(124, size.empty() ? fmt::format("{:011o}", bytes.size()) : size);
  put(148, "        ");
  header[156] = type;
  put(257, std::string("ustar\00000", 8));
  put(345, prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

}  // namespace troop
