// Implements the opening of users' shared libraries by dlopen.
#include "core/storage/shared_library.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "core/base/utf8.h"

namespace troop {

// All symbols are resolved now, so that a missing one is an error here and no crash later.
Result<SharedLibrary> SharedLibrary::Open(const std::string& path) {
  constexpr std::size_t kMessageBytesMax = 1000;
  // dlopen would search the system's folders for a name without a slash.
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return NotFound("no such file: {}; give the path of a shared library",
                    std::filesystem::absolute(file, error).lexically_normal().string());
  }
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return SharedLibrary(handle);
  const char* const reason = dlerror();
  return InvalidArgument(
      "{}", PrintableLine({reason, strnlen(reason, kMessageBytesMax)}, kMessageBytesMax));
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

void SharedLibrary::Close() { dlclose(handle_); }

}  // namespace troop
