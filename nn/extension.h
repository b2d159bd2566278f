#pragma once

#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/config_visitor.h"
#if __has_include(<troop_headers.h>)
#include <troop_headers.h>  // generated: TROOP_HEADERS, the version and a checksum of the headers
#endif

// Extensions: code of users that registers own layers (nn/layers/own_layer.h) and own algorithms
// (learners/external/own_algorithm.h) under names of the config. An extension is a shared library
// that learner.library names, or part of a program that links Troop.
//
// A shared library shares C++ types with the program that loads it. So it must be compiled with
// that program's headers and with a compiler of the same ABI; both are compared before any other
// code of the library runs. It links none of Troop's libraries: the program has their symbols.
#define TROOP_EXTENSION_TEXT_OF(x) #x
#define TROOP_EXTENSION_TEXT(x) TROOP_EXTENSION_TEXT_OF(x)
#ifdef _GLIBCXX_DEBUG
#define TROOP_EXTENSION_LIBRARY "debug"
#else
#define TROOP_EXTENSION_LIBRARY TROOP_EXTENSION_TEXT(_GLIBCXX_USE_CXX11_ABI)
#endif
// Text that is equal in a program and in the libraries that it can load.
#define TROOP_EXTENSION_ABI \
  "troop " TROOP_HEADERS    \
  ", C++ ABI " TROOP_EXTENSION_TEXT(__GXX_ABI_VERSION) ", libstdc++ ABI " TROOP_EXTENSION_LIBRARY

// Defines the entry of a shared library; the block after it registers layers and algorithms, and
// returns a Status:
//   TROOP_EXTENSION() { return troop::RegisterLayer("gated_linear", MakeGatedLinear); }
#define TROOP_EXTENSION()                                                                 \
  static troop::Status TroopRegisterAll();                                                \
  extern "C" [[gnu::visibility("default")]] const char* troop_extension_abi() {           \
    return TROOP_EXTENSION_ABI;                                                           \
  }                                                                                       \
  extern "C" [[gnu::visibility("default")]] void troop_extension(troop::Status* status) { \
    *status = TroopRegisterAll();                                                         \
  }                                                                                       \
  static troop::Status TroopRegisterAll()

namespace troop {

// Loads the library at `path` and lets it register its names; a second call for the same file
// returns the first one's result. Thread safe. Blocks on the disk. Errors: kNotFound: no such file.
// kInvalidArgument: not an extension, or one of another build, with both builds. And those of the
// registration, which may have registered a part of the names.
Status LoadExtension(const std::string& path);

// Source of the registrations on this thread, for messages: a library that is being loaded, or "the
// program".
std::string ExtensionSource();

// Calls a function of an extension: an exception becomes an error that begins with `what`.
template <class Call>
auto CallExtension(std::string_view what, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return InvalidArgument("{}: an exception was thrown: {}", what, error.what());
  } catch (...) {
    return InvalidArgument("{}: an exception was thrown that is not a std::exception", what);
  }
}

// The factories of one kind, by name. Thread safe; nothing is ever removed.
template <class Factory>
class FactoryRegistry {
 public:
  // Adds a name. noun: "layer". Errors: kInvalidArgument: a malformed name, a built-in one, or an
  // empty factory; kAlreadyExists: a name that is taken, with its source.
  Status Add(std::string_view noun, const std::string& name,
             std::span<const std::string_view> built_in, Factory factory) {
    if (!IsOwnName(name)) {
      return InvalidArgument(
          "{} \"{}\": not a name; use lower-case letters, digits and underscores, at most 64", noun,
          name);
    }
    for (const std::string_view taken : built_in) {
      if (taken == name)
        return InvalidArgument("{} \"{}\": the name is built in; use another name", noun, name);
    }
    if (!factory) return InvalidArgument("{} \"{}\": its factory is empty", noun, name);
    const std::lock_guard lock(mutex_);
    const auto [at, added] =
        entries_.try_emplace(name, Entry{std::move(factory), ExtensionSource()});
    if (added) return Status::Ok();
    return AlreadyExists("{} \"{}\": registered by {} already; use another name", noun, name,
                         at->second.source);
  }
  // The factory of a name; nullopt if there is none.
  std::optional<Factory> Find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::nullopt;
    return found->second.factory;
  }
  // All names, sorted.
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

 private:
  struct Entry {
    Factory factory;
    std::string source;
  };
  mutable std::mutex mutex_;  // protects entries_
  std::map<std::string, Entry> entries_;
};

}  // namespace troop
