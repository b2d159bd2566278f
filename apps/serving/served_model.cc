// Implements the responses that all served models share.
#include "apps/serving/served_model.h"

namespace troop {

// Codes without an entry are faults of the server.
HttpResponse ServingFailure(const Status& status) {
  HttpResponse response{.status = 500, .body = status.message() + "\n"};
  switch (status.code()) {
    case Code::kInvalidArgument:
    case Code::kDataLoss:  // a damaged body, of the JSON reader
      response.status = 400;
      break;
    case Code::kFailedPrecondition:
      response.status = 409;
      break;
    case Code::kResourceExhausted:
      response.status = 503;
      // A queue is empty again within a second, or the server is too small.
      response.headers = {{"Retry-After", "1"}};
      break;
    case Code::kDeadlineExceeded:
      response.status = 504;
      break;
    default:
      break;
  }
  return response;
}

}  // namespace troop
