#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "core/check.h"

namespace troop {

// Why something failed for a reason outside this program. Fixed numbers: they travel on the wire.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,     // bad input; a retry can't help
  kNotFound = 2,            // the named thing does not exist
  kAlreadyExists = 3,       // somebody else holds it
  kFailedPrecondition = 4,  // not now: the state forbids it
  kOutOfRange = 5,          // past the end: no more will come
  kResourceExhausted = 6,   // a bound was reached (window, memory, disk); later may work
  kUnavailable = 7,         // the peer is not there; later may work
  kDeadlineExceeded = 8,    // it did not answer in time; it may have happened or not
  kDataLoss = 9,            // checksum, truncation
  kAborted = 10,            // fenced: another incarnation took over
  kCancelled = 11,          // we gave up ourselves
  kInternal = 12,
};
std::string_view CodeName(Code code);

// Value type; cheap when ok. A message says what, which value, which limit, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "not_found: message", or "ok".
  std::string ToString() const;
  // The same code with `context` in front of the message: "context: message".
  Status WithContext(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

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

// A value, or the Status that says why there is none. REQUIRES for value(): ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : data_(std::in_place_index<0>, std::move(value)) {}
  Result(Status status) : data_(std::in_place_index<1>, std::move(status)) {
    TROOP_CHECK(!std::get<1>(data_).ok(), "an ok Status holds no value");
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
