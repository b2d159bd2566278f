// Memory of a process tree, from /proc/<pid>/stat and /proc/<pid>/statm.
#include "fleet/launcher/process_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace troop {
namespace {

// The parent of a process; 0 if the process has exited. The name in parentheses may contain any
// bytes, so the search starts at the last ')'. If the process exits during the read, read() only
// sets the stream's state; an iterator would throw.
std::int64_t ParentOf(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text(1024, 0);
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(file.gcount()));
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 4 >= text.size()) return 0;
  return std::atoll(text.c_str() + end + 4);  // ") S 123"
}

std::int64_t ResidentPages(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/statm");
  std::int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

}  // namespace

std::int64_t ResidentBytesOfFamily() {
  std::multimap<std::int64_t, std::int64_t> children;
  std::error_code error;
  using Iterator = std::filesystem::directory_iterator;
  for (Iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) continue;
    const std::int64_t process = std::stoll(name);
    children.emplace(ParentOf(process), process);
  }
  // Breadth-first over the descendants of this process.
  std::vector<std::int64_t> family = {getpid()};
  std::int64_t pages = 0;
  for (std::size_t i = 0; i < family.size(); ++i) {
    pages += ResidentPages(family[i]);
    const auto [first, last] = children.equal_range(family[i]);
    for (auto it = first; it != last; ++it) family.push_back(it->second);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace troop
