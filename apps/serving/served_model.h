#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apps/monitor/http_mailbox.h"
#include "apps/monitor/http_message.h"
#include "apps/serving/act_request.h"
#include "core/base/status.h"
#include "core/base/time.h"

namespace troop {

// Texts to classify, or pairs of texts: the checked body of POST /v1/predict.
struct PredictRequest {
  struct Text {
    std::string text;
    std::optional<std::string> pair{};
  };
  std::vector<Text> texts;
};

// A checked request that waits for its batch.
struct ServingRequest {
  std::int64_t rows = 0;  // observations or texts
  Time arrived{}, deadline{};
  std::variant<ActRequest, PredictRequest> input;
  HttpReply reply;
};

// The weights of one checkpoint, and the requests that they answer. Implementations: ServedPolicy,
// ServedText. The const functions are thread-safe; Answer is called by one thread at a time.
class ServedModel {
 public:
  virtual ~ServedModel() = default;
  // Path of the requests: "/v1/act".
  virtual std::string_view path() const = 0;
  // Updates of the weights; every answer states them.
  virtual std::uint64_t updates() const = 0;
  // Bytes of the smallest body of a request, which the server must permit.
  virtual std::size_t body_bytes_min() const = 0;
  // One line of JSON: shapes, element types, actions or classes, origin.
  virtual std::string Description() const = 0;
  // True if requests that `other` has parsed can be answered: equal shapes and actions.
  virtual bool Accepts(const ServedModel& other) const = 0;
  // Parses a request; sets rows and input. Errors: kInvalidArgument, with the remedy.
  virtual Result<ServingRequest> Parse(const HttpRequest& request) const = 0;
  // Computes all requests together. Returns one response for each, in their order.
  virtual std::vector<HttpResponse> Answer(std::span<const ServingRequest> batch, Time now) = 0;
};

// The response to a request that failed: one line of text, and the status of its code
// (kInvalidArgument 400, kFailedPrecondition 409, kResourceExhausted 503 with Retry-After,
// kDeadlineExceeded 504, others 500).
HttpResponse ServingFailure(const Status& status);
// The header that names the updates of the weights.
inline constexpr char kUpdatesHeader[] = "Troop-Updates";

}  // namespace troop
