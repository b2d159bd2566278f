#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/spec.h"
#include "core/status.h"
#include "envs/environment.h"

// How a ProcessVectorEnv and its worker processes (worker_loop.cc, python/troop_env/worker.py)
// talk. The worker finds a SOCK_SEQPACKET socket as descriptor 3 and a memfd, empty at first, as 4.
//   owner  -> worker  the request: JSON (WorkerRequest). Python: one with no rows may come before,
//                     perhaps long before, and has no answer: load the modules it will need
//   worker -> owner   {"spec": ...} or {"error": "why not"}
//   owner  -> worker  the layout of the memory, now of its size: JSON (LayoutMessage)
//   worker -> owner   "d"
// JSON goes in parts of kPartBytes, the last of which is shorter (InParts, TakePart): a request may
// be of any length, the answer of kAnswerBytesMax. Then come
// rounds, which the owner begins: "s": each row takes a step with its action, and one whose
// episode ends may begin the next with its seed at once (kBegun), when the last observation of the
// old is in `final`; "o": each row whose `reset` is 1 begins an episode with its seed; both
// answered by "d" when the rows are written. "r<row>": a picture, answered by {"height": h,
// "width": w} and its bytes in messages of at most kPartBytes, or {"error": ...}. End of file:
// the other one is gone. The owner trusts none of it: sizes and offsets are its own, flags are
// masked, texts are cleaned.
namespace troop::worker {

inline constexpr int kSocket = 3, kMemory = 4;
inline constexpr int kVersion = 4;
inline constexpr std::size_t kTextBytes = 256;      // why a row failed; shorter ends with a 0
inline constexpr std::size_t kPartBytes = 1 << 15;  // of one message on the socket, at most
inline constexpr std::size_t kAnswerBytesMax = 1 << 20;
inline constexpr std::int64_t kPictureSideMax = 4096;
inline constexpr std::int64_t kMemoryBytesMax = std::int64_t{1} << 34;

enum Message : char { kStep = 's', kReset = 'o', kRender = 'r', kDone = 'd', kExec = 'E' };
// kFault beside kBegun: the episode ended well, and the next one's start failed.
enum Flags : std::uint8_t { kTerminated = 1, kTruncated = 2, kFault = 4, kBegun = 8 };

// Byte offsets of the arrays of one worker, whose rows lie behind one another.
struct Layout {
  int rows = 0;
  std::size_t progress = 0;     // u32: Progress of the row under way; 0: none
  std::size_t spent = 0;        // u64: ns inside the environments, where it is measured
  std::size_t reset = 0;        // [rows] u8
  std::size_t seed = 0;         // [rows] u64
  std::size_t action = 0;       // [rows, ...action]
  std::size_t observation = 0;  // [rows, ...obs]
  std::size_t final = 0;        // [rows, ...obs]: where flags has kBegun
  std::size_t reward = 0;       // [rows] f32
  std::size_t flags = 0;        // [rows] u8: Flags
  std::size_t text = 0;         // [rows, kTextBytes]: where flags has kFault
  std::size_t total = 0;        // bytes of the memory
};
// What a worker writes when it enters a row: it grows within a round.
constexpr std::uint32_t Progress(std::size_t row, bool resetting) {
  return std::uint32_t(2 * row + (resetting ? 2 : 1));
}
// The memory of `workers` workers with `rows` rows together.
struct MemoryPlan {
  Layout all;  // first of each array; `progress` and `spent` share one cache line a worker
  std::size_t action_bytes = 0, observation_bytes = 0;  // of one row
  Layout Of(int worker, int first, int rows) const;
};
// Errors: kResourceExhausted.
Result<MemoryPlan> PlanMemory(const EnvSpec& spec, int rows, int workers);

// JSON as it goes over the socket: all parts behind one another, the last one shorter than the
// others, which white space sees to.
std::string InParts(std::string json);
// Appends a part that came to the ones before it; whether it was the last.
bool TakePart(std::string_view part, std::string* json);

std::string LayoutMessage(const Layout& layout);
Result<Layout> ParseLayout(std::string_view text);

std::string WorkerRequest(std::string_view id, const EnvOptions& options, int rows);
struct Request {
  std::string id;
  EnvOptions options;
  int rows = 0;
};
Result<Request> ParseRequest(std::string_view text);

std::string SpecMessage(const EnvSpec& spec);
// What a worker says that its environments look like. Errors: its own {"error"} as
// kFailedPrecondition; kInvalidArgument for what can't be.
Result<EnvSpec> ParseSpecMessage(std::string_view text, std::string_view id);

}  // namespace troop::worker
