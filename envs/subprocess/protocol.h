#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/storage/json.h"
#include "core/tensor/spec.h"
#include "envs/environment.h"

// Protocol between a ProcessVectorEnv (the owner) and its worker processes (worker_main.cc,
// python/troop_env/worker.py). The worker has a SOCK_SEQPACKET socket as descriptor 3 and a memfd,
// empty at first, as descriptor 4.
//   owner  -> worker  the request: JSON (WorkerRequest). To Python, a request with 0 rows may be
//                     sent earlier: load the modules that will be needed; it has no answer
//   worker -> owner   {"spec": ...} or {"error": "why not"}
//   owner  -> worker  the layout of the memory, which now has its size: JSON (LayoutMessage)
//   worker -> owner   "d"
// JSON is sent in parts of kPartBytes, the last one shorter (InParts, TakePart). A request may have
// any length, an answer at most kAnswerBytesMax. The owner then begins rounds:
//   "s"       each row takes a step with its action. If its episode ends, it may begin the next at
//             once with its seed (kBegun); `final` then has the last observation of the old one
//   "o"       each row whose `reset` is 1 begins an episode with its seed
//   "r<row>"  a picture, answered by {"height": h, "width": w} and its bytes in messages of at most
//             kPartBytes, or by {"error": ...}
//   "m"       the numbers that its environments reported since the last "m" (EnvMetrics), in one
//             message: {"metrics": {name: [count, mean, min, max]}, "problem": text}
// Rounds "s" and "o" are answered by "d" when the rows are written. End of file: the peer has
// exited. The owner validates everything it reads: sizes and offsets are its own, flags are masked,
// and text is sanitized.
namespace troop::worker {

inline constexpr int kSocket = 3, kMemory = 4;
inline constexpr int kVersion = 7;                  // checked by both sides
inline constexpr std::size_t kTextBytes = 256;      // error text of a row; shorter text ends with 0
inline constexpr std::size_t kPartBytes = 1 << 15;  // maximum size of one message on the socket
inline constexpr std::size_t kAnswerBytesMax = 1 << 20;
inline constexpr std::int64_t kPictureSideMax = 4096;
inline constexpr std::int64_t kMemoryBytesMax = std::int64_t{1} << 34;

// First byte of a message; kExec with an errno: the worker's program could not be started.
enum Message : char {
  kStep = 's',
  kReset = 'o',
  kRender = 'r',
  kMetrics = 'm',
  kDone = 'd',
  kExec = 'E'
};
// kFault with kBegun: the episode ended normally, and the start of the next one failed.
enum Flags : std::uint8_t { kTerminated = 1, kTruncated = 2, kFault = 4, kBegun = 8 };

// Byte offsets of the arrays of one worker; the rows of each array are contiguous.
struct Layout {
  int rows = 0;
  std::size_t progress = 0;     // u32: Progress of the current row; 0: none
  std::size_t spent = 0;        // u64: ns spent inside the environments, if it is measured
  std::size_t reset = 0;        // [rows] u8
  std::size_t seed = 0;         // [rows] u64
  std::size_t action = 0;       // [rows, ...action]
  std::size_t observation = 0;  // [rows, ...obs]
  std::size_t final = 0;        // [rows, ...obs]: valid where flags has kBegun
  std::size_t reward = 0;       // [rows] f32
  std::size_t flags = 0;        // [rows] u8: Flags
  std::size_t text = 0;         // [rows, kTextBytes]: valid where flags has kFault
  std::size_t total = 0;        // size of the memory in bytes
};
// Value that a worker writes when it enters a row; it increases within a round.
constexpr std::uint32_t Progress(std::size_t row, bool resetting) {
  return std::uint32_t(2 * row + (resetting ? 2 : 1));
}
// Layout of the memory of all workers and rows.
struct MemoryPlan {
  Layout all;  // offsets of each array; `progress` and `spent` share a cache line per worker
  std::size_t action_bytes = 0, observation_bytes = 0;  // of one row
  // Layout of one worker, which has the rows [first, first + rows).
  Layout Of(int worker, int first, int rows) const;
};
// Plans the memory. Errors: kResourceExhausted: more than kMemoryBytesMax.
Result<MemoryPlan> PlanMemory(const EnvSpec& spec, int rows, int workers);

// Pads JSON with white space for the socket, so that its last part is shorter than kPartBytes.
std::string InParts(std::string json);
// Appends a received part to `json`; true if it was the last part.
bool TakePart(std::string_view part, std::string* json);

// JSON messages and their parsers.
std::string LayoutMessage(const Layout& layout);
Result<Layout> ParseLayout(std::string_view text);

std::string WorkerRequest(std::string_view id, const EnvOptions& options, int rows);
struct Request {
  std::string id;
  EnvOptions options;
  int rows = 0;
};
Result<Request> ParseRequest(std::string_view text);

// Numbers of a worker's environments, and their inverse, which adds valid ones to `into`. Errors:
// kInvalidArgument: another message, with nothing added.
std::string MetricsMessage(const EnvMetrics& metrics);
Status ParseMetricsMessage(std::string_view text, EnvMetrics* into);

std::string SpecMessage(const EnvSpec& spec);
// Parses the spec that a worker sent. Errors: kFailedPrecondition with the text of its {"error"};
// kInvalidArgument for an invalid spec.
Result<EnvSpec> ParseSpecMessage(std::string_view text, std::string_view id);

}  // namespace troop::worker
