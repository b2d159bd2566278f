#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/monitor/http_message.h"
#include "core/base/status.h"
#include "core/tensor/dtype.h"
#include "nn/export/policy_description.h"

namespace troop {

// The shapes and types that requests for actions must match. Equal for all checkpoints of a run.
struct PolicySignature {
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // of one frame
  std::int64_t stack = 1;           // frames per observation, oldest first
  bool discrete = true;
  std::int64_t actions = 0;  // discrete: number of choices; else elements of an action
  std::vector<float> low, high;
  std::vector<ObservationPart> parts;  // names of the elements of a frame; empty: there are none
  std::optional<std::int64_t> mask;    // element of a frame at which the action mask begins
  std::int64_t state = 0;              // elements of the recurrent state, which sessions keep

  explicit PolicySignature(const PolicyDescription& policy);
  PolicySignature() = default;
  std::int64_t frame_elements() const;
  std::size_t frame_bytes() const { return std::size_t(frame_elements()) * DTypeSize(dtype); }
  std::size_t stack_bytes() const { return frame_bytes() * std::size_t(stack); }
  bool operator==(const PolicySignature&) const = default;
};

// A checked request for actions.
struct ActRequest {
  std::int64_t rows = 0;
  std::vector<std::byte> observations;  // [rows, stack, ...shape]; with a session [1, ...shape]
  std::vector<std::uint8_t> mask;       // empty, or [rows, actions]; 0 forbids
  std::string session;                  // empty: none
  bool reset = false;                   // begins an episode of the session
  bool q_values = false;
  bool binary = false;  // form of the request, and of the response
};

// Parses the body of POST /v1/act by its Content-Type:
//   application/json            {"observations": [rows, (stack,) ...shape], "mask": [rows,
//   actions],
//                               "session": "id", "reset": bool, "q_values": bool,
//                               "deterministic": true}; all but the first are optional
//   application/octet-stream    the observations, C-contiguous and little-endian in the policy's
//                               element type; with ?mask=1 followed by u8 [rows, actions];
//                               further options in the query: q_values=1, reset=1, session=ID
// With a session there is one observation, of one frame; a recurrent policy needs one. Errors:
// kInvalidArgument, with the value and the remedy: another shape, type or range, NaN, more than
// rows_max observations, an unknown key.
Result<ActRequest> ParseActRequest(const HttpRequest& request, const PolicySignature& policy,
                                   std::int64_t rows_max);

// True for a media type without its parameters: "application/json; charset=utf-8".
bool HasContentType(const HttpRequest& request, std::string_view type);

}  // namespace troop
