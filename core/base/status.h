#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/base/check.h"

namespace troop {

// Error codes for failures with external causes. The values are part of the wire format.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,     // invalid input; a retry can't succeed
  kNotFound = 2,            // the named object does not exist
  kAlreadyExists = 3,       // exists already, or is held by another process
  kFailedPrecondition = 4,  // not permitted in the current state
  kOutOfRange = 5,          // past the end
  kResourceExhausted = 6,   // a limit was reached (window, memory, disk); a retry may succeed
  kUnavailable = 7,         // the peer is not reachable; a retry may succeed
  kDeadlineExceeded = 8,    // no answer in time; the operation may have been applied or not
  kDataLoss = 9,            // damaged or truncated data
  kAborted = 10,            // fenced: a newer incarnation took over
  kCancelled = 11,          // canceled by the caller
  kInternal = 12,
};
std::string_view CodeName(Code code);

// Result of an operation without a value. Cheap if ok. A message states what failed, the value, the
// limit and the remedy.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // Returns "not_found: message", or "ok".
  std::string ToString() const;
  // Returns the same code with the message "context: message"; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Creates a Status with a formatted message. The macro defines a function per code, such as
// NotFound("{}: no such file", path).
template <class... Args>
Status MakeStatus(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}
#define TROOP_DEFINE_STATUS_MAKER(Name)                                    \
  template <class... Args>                                                 \
  Status Name(fmt::format_string<Args...> format, Args&&... args) {        \
    return MakeStatus(Code::k##Name, format, std::forward<Args>(args)...); \
  }
TROOP_DEFINE_STATUS_MAKER(InvalidArgument)
TROOP_DEFINE_STATUS_MAKER(NotFound)
TROOP_DEFINE_STATUS_MAKER(AlreadyExists)
TROOP_DEFINE_STATUS_MAKER(FailedPrecondition)
TROOP_DEFINE_STATUS_MAKER(OutOfRange)
TROOP_DEFINE_STATUS_MAKER(ResourceExhausted)
TROOP_DEFINE_STATUS_MAKER(Unavailable)
TROOP_DEFINE_STATUS_MAKER(DeadlineExceeded)
TROOP_DEFINE_STATUS_MAKER(DataLoss)
TROOP_DEFINE_STATUS_MAKER(Aborted)
TROOP_DEFINE_STATUS_MAKER(Cancelled)
TROOP_DEFINE_STATUS_MAKER(Internal)
#undef TROOP_DEFINE_STATUS_MAKER

// A value, or the Status that explains its absence. REQUIRES for value(): ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : data_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : data_(std::in_place_index<1>, std::move(status)) {
    TROOP_CHECK(!std::get<1>(data_).ok(), "an ok Status has no value");
  }

  bool ok() const { return data_.index() == 0; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status::Ok() : std::get<1>(data_); }

  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &value(); }

 private:
  T& Checked() {
    TROOP_CHECK(ok(), "{}", std::get<1>(data_).ToString());
    return std::get<0>(data_);
  }
  std::variant<T, Status> data_;
};

}  // namespace troop

// TROOP_RETURN_IF_ERROR returns a failed Status to the caller. TROOP_ASSIGN_OR_RETURN assigns the
// value of a Result, or returns its Status.
#define TROOP_CONCAT_(a, b) a##b
#define TROOP_CONCAT(a, b) TROOP_CONCAT_(a, b)
#define TROOP_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::troop::Status troop_status_ = (expression); !troop_status_.ok()) return troop_status_; \
  } while (false)
#define TROOP_ASSIGN_OR_RETURN(declaration, expression) \
  TROOP_ASSIGN_OR_RETURN_(TROOP_CONCAT(troop_result_, __LINE__), declaration, expression)
#define TROOP_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  declaration = std::move(result).value()
