#pragma once

#include <exception>
#include <utility>

#include "core/base/status.h"

namespace troop {

// Carries a Status through pybind11, which turns it into a Python exception. Errors of everything
// but the module files are Status values; Ensure turns them into this exception.
struct StatusError : std::exception {
  explicit StatusError(Status s) : status(std::move(s)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

inline void Ensure(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}
template <class T>
T Ensure(Result<T> result) {
  if (!result.ok()) throw StatusError(result.status());
  return std::move(result).value();
}

}  // namespace troop
