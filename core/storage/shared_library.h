#pragma once

#include <string>

#include "core/base/status.h"

namespace troop {

// A shared library of a user, opened for the life of this process: it is never closed, because its
// threads, exit handlers and thread-local storage could run into unmapped code, and because objects
// of its types may outlive every caller.
class SharedLibrary {
 public:
  // Opens the file `path`; a name without a slash is a file in the working directory, not one that
  // the system searches for. Symbols stay private to the library. Blocks, and runs the library's
  // static initializers. Errors: kNotFound: no such file. kInvalidArgument: not a library, or one
  // that lacks a symbol, with the reason of the dynamic linker.
  static Result<SharedLibrary> Open(const std::string& path);
  // The address of an exported symbol; nullptr if there is none.
  void* Find(const char* symbol) const;
  // Closes a library that turned out to be of another kind. REQUIRES: nothing of it is in use.
  void Close();

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace troop
