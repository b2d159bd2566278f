// Implements the C interface: argument checks, frame stacks, and the choice of actions.
#include "nn/policy_library/troop_policy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "nn/policy_library/policy_program.h"

using troop::PolicyError;
using troop::PolicyProgram;

// A program and its description in the structures of the interface.
struct troop_policy {
  explicit troop_policy(const troop::PolicyFile& file) : program(file) {
    observation.name = program.observation_name().c_str();
    observation.dtype = std::int32_t(program.dtype());
    observation.rank = std::int32_t(program.shape().size());
    std::copy(program.shape().begin(), program.shape().end(), observation.shape);
    observation.bytes = program.frame_bytes();
    observation.frame_stack = program.stack();
    action.name = program.action_name().c_str();
    action.kind = program.discrete() ? TROOP_POLICY_DISCRETE : TROOP_POLICY_CONTINUOUS;
    action.count = program.count();
    action.low = program.discrete() ? nullptr : program.low().data();
    action.high = program.discrete() ? nullptr : program.high().data();
  }

  const PolicyProgram program;
  troop_policy_observation observation{};
  troop_policy_action action{};
};

// All memory that calls need: the buffers of the layers and the frames of each stream.
struct troop_policy_session {
  troop_policy_session(const troop_policy* of, std::int64_t count)
      : policy(of),
        streams(count),
        first(std::size_t(of->program.buffer_elements())),
        second(first.size()),
        begins(std::size_t(count), 1) {
    const PolicyProgram& program = of->program;
    if (program.stack() > 1)
      stacks.resize(std::size_t(count * program.stack() * program.frame_bytes()));
    states.resize(std::size_t(count * program.state()));
  }

  const troop_policy* const policy;
  const std::int64_t streams;
  std::vector<float> first, second;   // of PolicyProgram::Run
  std::vector<unsigned char> stacks;  // [streams, stack, frame bytes]; empty without a stack
  std::vector<float> states;          // [streams, state]; empty without a recurrent state
  std::vector<unsigned char> begins;  // [streams]: the next observation begins an episode
  char message[160] = "";
};

namespace {

constexpr std::int64_t kStreamsMax = 65536;

// Copies a message into a caller's buffer, cut to its size.
void Tell(const char* text, char* message, std::size_t bytes) {
  if (message != nullptr && bytes > 0) std::snprintf(message, bytes, "%s", text);
}

// Runs `make`, and turns its exceptions into result codes.
template <class Make>
int Guarded(const Make& make, char* message, std::size_t message_bytes) {
  try {
    make();
    Tell("", message, message_bytes);
    return TROOP_POLICY_OK;
  } catch (const PolicyError& error) {
    Tell(error.what(), message, message_bytes);
    return error.code();
  } catch (const std::bad_alloc&) {
    Tell("out of memory", message, message_bytes);
    return TROOP_POLICY_NO_MEMORY;
  } catch (const std::exception& error) {
    Tell(error.what(), message, message_bytes);
    return TROOP_POLICY_DATA_LOSS;
  }
}

// Arguments of a load. The structure of another interface version may have another layout, so its
// first two members decide.
int CheckSource(const troop_policy_source* source, troop_policy** policy) {
  if (source == nullptr || policy == nullptr || source->size < sizeof(size_t) + sizeof(int))
    return TROOP_POLICY_INVALID_ARGUMENT;
  if (source->abi != TROOP_POLICY_ABI || source->size < sizeof *source)
    return TROOP_POLICY_UNSUPPORTED;
  if ((source->path == nullptr) == (source->bytes == nullptr)) {
    Tell("one of path and bytes must be set", source->message, source->message_bytes);
    return TROOP_POLICY_INVALID_ARGUMENT;
  }
  return TROOP_POLICY_OK;
}

// Keeps the reason for troop_policy_session_message.
int Fail(troop_policy_session* session, int code, const char* text) {
  Tell(text, session->message, sizeof session->message);
  return code;
}

// The states of a call; programs of the first version have none in their structure.
float* StatesOf(const troop_policy_call& call) {
  return call.size < sizeof call ? nullptr : call.states;
}

// Arguments of a call, before anything changes. frames: in each observation.
int CheckCall(troop_policy_session* session, const troop_policy_call* call, std::int64_t frames) {
  const PolicyProgram& program = session->policy->program;
  if (call == nullptr || call->size < offsetof(troop_policy_call, states))
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "call.size is not sizeof(troop_policy_call)");
  if (call->first < 0 || call->count < 1 || call->first > session->streams - call->count)
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "call.first and call.count are outside of the session's streams");
  if (call->observations == nullptr || call->observations[0] == nullptr ||
      call->actions == nullptr || call->actions[0] == nullptr)
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "call.observations or call.actions is NULL");
  const unsigned char* const mask = call->masks == nullptr ? nullptr : call->masks[0];
  if (!program.discrete() && (mask != nullptr || call->values != nullptr))
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "call.masks and call.values are for discrete actions only");
  for (std::int64_t i = 0; mask != nullptr && i < call->count; ++i) {
    const unsigned char* const row = mask + i * program.count();
    if (std::all_of(row, row + program.count(), [](unsigned char c) { return c == 0; }))
      return Fail(session, TROOP_POLICY_INVALID_ARGUMENT, "call.masks forbids every action");
    // The newest frame of the row is its last one.
    const auto* const frame = static_cast<const unsigned char*>(call->observations[0]) +
                              ((i + 1) * frames - 1) * program.frame_bytes();
    if (program.Forbids(frame, row))
      return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                  "call.masks forbids every action that the observation allows");
  }
  if (program.dtype() == PolicyProgram::DType::kF32) {
    const auto* const x = static_cast<const unsigned char*>(call->observations[0]);
    for (std::int64_t i = 0; i < call->count * frames * program.frame_elements(); ++i) {
      float value;
      std::memcpy(&value, x + i * std::int64_t(sizeof value), sizeof value);
      if (!std::isfinite(value))
        return Fail(session, TROOP_POLICY_NOT_FINITE, "an observation is NaN or infinite");
    }
  }
  return TROOP_POLICY_OK;
}

// Appends frames to the stacks of `rows` streams; zeros precede an episode's first frame.
const void* Stack(troop_policy_session* session, std::int64_t stream, std::int64_t rows,
                  const unsigned char* frames) {
  const PolicyProgram& program = session->policy->program;
  const auto frame = std::size_t(program.frame_bytes());
  const std::size_t older = std::size_t(program.stack() - 1) * frame;
  if (older == 0) return frames;
  unsigned char* const begin = session->stacks.data() + std::size_t(stream) * (older + frame);
  unsigned char* to = begin;
  for (std::int64_t i = 0; i < rows; ++i, to += older + frame, frames += frame) {
    if (session->begins[std::size_t(stream + i)] != 0) {
      std::memset(to, 0, older);
    } else {
      std::memmove(to, to + frame, older);
    }
    std::memcpy(to + older, frames, frame);
  }
  return begin;
}

// The lowest allowed index of the largest value.
std::int32_t BestAction(const float* q, const unsigned char* mask, std::int64_t count) {
  std::int64_t best = -1;
  for (std::int64_t a = 0; a < count; ++a) {
    if (mask != nullptr && mask[a] == 0) continue;
    if (best < 0 || q[a] > q[best]) best = a;
  }
  return std::int32_t(best);
}

// Writes the outputs [rows, count] of the call's rows from `row` on.
int TakeOutputs(const troop_policy_session& session, const troop_policy_call& call,
                std::int64_t row, std::int64_t rows, const float* out) {
  const PolicyProgram& program = session.policy->program;
  const std::int64_t count = program.count();
  if (!std::all_of(out, out + rows * count, [](float x) { return std::isfinite(x); }))
    return TROOP_POLICY_NOT_FINITE;
  if (!program.discrete()) {
    std::copy_n(out, rows * count, static_cast<float*>(call.actions[0]) + row * count);
    return TROOP_POLICY_OK;
  }
  auto* const actions = static_cast<std::int32_t*>(call.actions[0]);
  const unsigned char* const mask = call.masks == nullptr ? nullptr : call.masks[0];
  for (std::int64_t i = 0; i < rows; ++i) {
    actions[row + i] =
        BestAction(out + i * count, mask == nullptr ? nullptr : mask + (row + i) * count, count);
  }
  // The values include those of forbidden actions.
  if (call.values != nullptr) std::copy_n(out, rows * count, call.values + row * count);
  return TROOP_POLICY_OK;
}

// Computes a call in groups of rows that fit into the buffers. stacked(row, rows): the stacks of a
// group.
// states: of the call's rows.
template <class Stacked>
int RunInGroups(troop_policy_session* session, const troop_policy_call& call, float* states,
                const Stacked& stacked) {
  const PolicyProgram& program = session->policy->program;
  const std::int64_t rows_max = program.rows_max();
  for (std::int64_t row = 0; row < call.count; row += rows_max) {
    const std::int64_t rows = std::min(rows_max, call.count - row);
    const float* const out =
        program.Run(rows, stacked(row, rows), {session->first, session->second}, states);
    states += rows * program.state();
    if (TakeOutputs(*session, call, row, rows, out) != TROOP_POLICY_OK)
      return Fail(session, TROOP_POLICY_NOT_FINITE, "the policy computed NaN or infinity");
  }
  return TROOP_POLICY_OK;
}

}  // namespace

extern "C" {

int troop_policy_abi(void) { return TROOP_POLICY_ABI; }

int troop_policy_load(const troop_policy_source* source, troop_policy** policy) {
  if (const int code = CheckSource(source, policy); code != TROOP_POLICY_OK) return code;
  const auto load = [&] {
    *policy = new troop_policy(source->path != nullptr
                                   ? troop::ReadPolicyFile(source->path)
                                   : troop::ParsePolicyFile(source->bytes, source->byte_count));
  };
  return Guarded(load, source->message, source->message_bytes);
}

void troop_policy_unload(troop_policy* policy) { delete policy; }

size_t troop_policy_observation_count(const troop_policy*) { return 1; }
const troop_policy_observation* troop_policy_observation_at(const troop_policy* policy,
                                                            size_t index) {
  return index == 0 ? &policy->observation : nullptr;
}
size_t troop_policy_state_size(const troop_policy* policy) {
  return size_t(policy->program.state());
}
size_t troop_policy_action_count(const troop_policy*) { return 1; }
const troop_policy_action* troop_policy_action_at(const troop_policy* policy, size_t index) {
  return index == 0 ? &policy->action : nullptr;
}

int troop_policy_session_create(const troop_policy* policy, int64_t streams,
                                troop_policy_session** session) {
  if (policy == nullptr || session == nullptr || streams < 1 || streams > kStreamsMax)
    return TROOP_POLICY_INVALID_ARGUMENT;
  return Guarded([&] { *session = new troop_policy_session(policy, streams); }, nullptr, 0);
}

void troop_policy_session_destroy(troop_policy_session* session) { delete session; }

// Stack and state themselves are cleared when the next observation arrives.
int troop_policy_reset(troop_policy_session* session, int64_t stream) {
  if (stream < -1 || stream >= session->streams)
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "stream is outside of the session's streams");
  if (stream < 0) {
    std::fill(session->begins.begin(), session->begins.end(), 1);
  } else {
    session->begins[std::size_t(stream)] = 1;
  }
  return TROOP_POLICY_OK;
}

// The checks come first, so that an error leaves all streams as they were.
int troop_policy_act(troop_policy_session* session, const troop_policy_call* call) {
  if (const int code = CheckCall(session, call, 1); code != TROOP_POLICY_OK) return code;
  if (StatesOf(*call) != nullptr)
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                "call.states is for troop_policy_act_stacked only: the streams have their own");
  const std::int64_t frame = session->policy->program.frame_bytes();
  const std::int64_t state = session->policy->program.state();
  float* const states = session->states.data() + call->first * state;
  return RunInGroups(session, *call, states, [&](std::int64_t row, std::int64_t rows) {
    const auto* const frames = static_cast<const unsigned char*>(call->observations[0]);
    const std::int64_t stream = call->first + row;
    const void* const stacked = Stack(session, stream, rows, frames + row * frame);
    for (std::int64_t i = 0; i < rows; ++i) {
      if (session->begins[std::size_t(stream + i)] != 0)
        std::fill_n(states + (row + i) * state, state, 0.0F);
    }
    std::fill_n(session->begins.begin() + stream, rows, 0);
    return stacked;
  });
}

int troop_policy_act_stacked(troop_policy_session* session, const troop_policy_call* call) {
  const PolicyProgram& program = session->policy->program;
  if (const int code = CheckCall(session, call, program.stack()); code != TROOP_POLICY_OK)
    return code;
  // Zeros in place of the states would give wrong actions without an error.
  float* const states = StatesOf(*call);
  if ((program.state() > 0) != (states != nullptr))
    return Fail(session, TROOP_POLICY_INVALID_ARGUMENT,
                states == nullptr ? "call.states is NULL, but the policy has a recurrent state"
                                  : "call.states is set, but the policy has no recurrent state");
  const std::int64_t count = call->count * program.state();
  if (!std::all_of(states, states + count, [](float x) { return std::isfinite(x); }))
    return Fail(session, TROOP_POLICY_NOT_FINITE, "a recurrent state is NaN or infinite");
  const std::int64_t stack = program.stack() * program.frame_bytes();
  return RunInGroups(session, *call, states, [&](std::int64_t row, std::int64_t) -> const void* {
    return static_cast<const unsigned char*>(call->observations[0]) + row * stack;
  });
}

const char* troop_policy_session_message(const troop_policy_session* session) {
  return session->message;
}

}  // extern "C"
