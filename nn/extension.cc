// Implements the loading of extensions in shared libraries.
#include "nn/extension.h"

#include <cstring>
#include <filesystem>

#include "core/base/utf8.h"
#include "core/storage/shared_library.h"

namespace troop {
namespace {

// The library that this thread is loading; empty outside of LoadExtension.
thread_local std::string loading;

// Steps: open, find both symbols, compare the builds, register.
Status OpenAndRegister(const std::string& path) {
  constexpr std::size_t kBuildBytesMax = 200;
  constexpr const char* kBuild = TROOP_EXTENSION_ABI;
  auto library = SharedLibrary::Open(path);
  if (!library.ok()) {
    const Status& why = library.status();
    // Symbols that are missing here come from headers of another version.
    if (why.message().find("undefined symbol") == std::string::npos) return why;
    return InvalidArgument("{}; rebuild it with the headers of this program ({})", why.message(),
                           kBuild);
  }
  const auto abi = reinterpret_cast<const char* (*)()>(library->Find("troop_extension_abi"));
  const auto entry = reinterpret_cast<void (*)(Status*)>(library->Find("troop_extension"));
  // A library of another kind, such as an environment, is closed again.
  if (abi == nullptr || entry == nullptr) {
    library->Close();
    return InvalidArgument(
        "not an extension: exports no troop_extension; define it with TROOP_EXTENSION "
        "(docs/guide/own_algorithm_in_cpp.md)");
  }
  // The library's text is bounded and made printable before it is compared or shown.
  const char* const text = abi();
  const std::string build = PrintableLine({text, strnlen(text, kBuildBytesMax)}, kBuildBytesMax);
  if (build != kBuild) {
    library->Close();
    return InvalidArgument(
        "built for \"{}\", but this program is \"{}\"; rebuild it with the headers and the "
        "compiler of this program",
        build, kBuild);
  }
  return CallExtension("troop_extension", [entry] {
    Status status;
    entry(&status);
    return status;
  });
}

}  // namespace

// Only the loading thread registers names of the library.
std::string ExtensionSource() { return loading.empty() ? "the program" : loading; }

// Results are kept by the file's canonical path, so that two spellings of it load it once.
Status LoadExtension(const std::string& path) {
  static std::mutex mutex;  // protects results, and lets one thread load at a time
  static std::map<std::string, Status> results;
  std::error_code error;
  const std::string file = std::filesystem::weakly_canonical(path, error).string();
  const std::lock_guard lock(mutex);
  if (const auto found = results.find(file); found != results.end()) return found->second;
  loading = path;
  const Status status = OpenAndRegister(path).WithContext(fmt::format("learner.library: {}", path));
  loading.clear();
  // A file that does not exist yet may be built while this process runs.
  if (status.code() != Code::kNotFound) results.emplace(file, status);
  return status;
}

}  // namespace troop
