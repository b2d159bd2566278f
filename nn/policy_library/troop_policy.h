// C interface of libtroop_policy, which computes the actions of a trained agent in another program.
// C99 and C++. The library depends on libc and libstdc++ only, starts no threads, and allocates
// memory only where a function says so. Guide: docs/guide/deploying.md.
//
//   char message[256];
//   troop_policy_source source = {.size = sizeof source, .abi = TROOP_POLICY_ABI,
//                                 .path = "agent.safetensors",
//                                 .message = message, .message_bytes = sizeof message};
//   troop_policy* policy;
//   if (troop_policy_load(&source, &policy)) puts(message);
//   troop_policy_session* session;
//   troop_policy_session_create(policy, 1, &session);
//   ... for each step:
//   const void* observations[] = {observation};
//   void* actions[] = {&action};
//   troop_policy_call call = {.size = sizeof call, .count = 1, .observations = observations,
//                             .actions = actions};
//   if (troop_policy_act(session, &call)) puts(troop_policy_session_message(session));
//
// Threads: a policy is immutable and shared by any number of threads. A session is used by one
// thread at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Version of this interface. It changes when a program must be compiled again; structures grow at
// their end only where `size` says which members exist.
#define TROOP_POLICY_ABI 1

#define TROOP_POLICY_EXPORT __attribute__((visibility("default")))

typedef struct troop_policy troop_policy;
typedef struct troop_policy_session troop_policy_session;

// Results. Every function that can fail returns one; 0 is success.
#define TROOP_POLICY_OK 0
#define TROOP_POLICY_INVALID_ARGUMENT 1  // an argument outside its range; nothing has changed
#define TROOP_POLICY_NOT_FINITE 2        // an observation or a result is NaN or infinite
#define TROOP_POLICY_NOT_FOUND 3         // the file cannot be opened
#define TROOP_POLICY_DATA_LOSS 4         // the file is damaged, or describes no valid policy
#define TROOP_POLICY_UNSUPPORTED 5       // the file or the program needs a later library
#define TROOP_POLICY_NO_MEMORY 6

// Element types.
#define TROOP_POLICY_U8 1
#define TROOP_POLICY_I32 2
#define TROOP_POLICY_F32 3

// Kinds of actions.
#define TROOP_POLICY_DISCRETE 1    // one int32 in 0 .. count - 1
#define TROOP_POLICY_CONTINUOUS 2  // float [count], within low and high

#define TROOP_POLICY_RANK_MAX 8

// One tensor of an observation: C-contiguous, one frame. A policy of today has one tensor, in which
// the parts of a dictionary follow each other (observations[0].parts of the file's metadata).
typedef struct {
  const char* name;
  int32_t dtype;
  int32_t rank;
  int64_t shape[TROOP_POLICY_RANK_MAX];
  int64_t bytes;        // of one observation
  int64_t frame_stack;  // frames that the policy sees; the session keeps the earlier ones
} troop_policy_observation;

// One head of an action. A policy of today has one head.
typedef struct {
  const char* name;
  int32_t kind;
  int64_t count;
  const float* low;  // [count]; NULL for discrete actions
  const float* high;
} troop_policy_action;

// Version of the library's interface, to be compared with TROOP_POLICY_ABI.
TROOP_POLICY_EXPORT int troop_policy_abi(void);

// Elements of the recurrent state of a stream (h and c of each LSTM, h of each GRU), or 0.
TROOP_POLICY_EXPORT size_t troop_policy_state_size(const troop_policy* policy);

// Where a policy comes from. Set unused members to 0.
typedef struct {
  size_t size;  // sizeof(troop_policy_source)
  int abi;      // TROOP_POLICY_ABI, of the program
  // One of the two: a file made by `troop export --format safetensors` or the weights.safetensors
  // of an agent's checkpoint, or its bytes, which are not referenced after the call.
  const char* path;
  const void* bytes;
  size_t byte_count;
  char* message;  // NULL, or receives the reason of a failure, with its final 0
  size_t message_bytes;
} troop_policy_source;

// Loads a policy. Allocates; blocks on the disk.
TROOP_POLICY_EXPORT int troop_policy_load(const troop_policy_source* source, troop_policy** policy);
// Frees a policy, whose sessions must have been destroyed. NULL does nothing.
TROOP_POLICY_EXPORT void troop_policy_unload(troop_policy* policy);

// Descriptions; they are valid until the policy is unloaded. index: 0 .. count - 1; NULL otherwise.
TROOP_POLICY_EXPORT size_t troop_policy_observation_count(const troop_policy* policy);
TROOP_POLICY_EXPORT const troop_policy_observation* troop_policy_observation_at(
    const troop_policy* policy, size_t index);
TROOP_POLICY_EXPORT size_t troop_policy_action_count(const troop_policy* policy);
TROOP_POLICY_EXPORT const troop_policy_action* troop_policy_action_at(const troop_policy* policy,
                                                                      size_t index);

// A session holds `streams` independent sequences of observations with their frame stacks (and
// recurrent state, for policies that have one), all at the start of an episode. streams: 1 to
// 65,536. Allocates all memory that later calls need.
TROOP_POLICY_EXPORT int troop_policy_session_create(const troop_policy* policy, int64_t streams,
                                                    troop_policy_session** session);
TROOP_POLICY_EXPORT void troop_policy_session_destroy(troop_policy_session* session);

// The next observation of this stream (-1: of every stream) begins an episode.
TROOP_POLICY_EXPORT int troop_policy_reset(troop_policy_session* session, int64_t stream);

// Arguments of one call for the streams first .. first + count - 1. Set unused members to 0.
typedef struct {
  size_t size;                      // sizeof(troop_policy_call)
  int64_t first, count;             // streams
  const void* const* observations;  // for each tensor: [count, ...shape]
  // NULL, or for each head NULL or [count, actions]: 0 forbids a discrete action, in addition to
  // those that a mask in the observation forbids. One action of each stream must be allowed.
  const uint8_t* const* masks;
  void* const* actions;  // for each head: int32 [count], or float [count, size]
  // NULL, or q of the first head's actions: [count, actions]; discrete only. An action that the
  // observation itself forbids has -1e30.
  float* values;
  // For troop_policy_act_stacked of a policy with a recurrent state: [count, state size], the
  // states before the observations, zeros at the start of an episode; replaced by those after them.
  // NULL otherwise.
  float* states;
} troop_policy_call;

// Computes the greedy actions: for discrete actions the lowest index of the largest q. An invalid
// argument or an observation that is not finite changes nothing. After a result that is not finite
// the streams must be reset.
TROOP_POLICY_EXPORT int troop_policy_act(troop_policy_session* session,
                                         const troop_policy_call* call);
// Does the same as troop_policy_act with whole stacks: for each tensor observations are [count,
// frame_stack, ...shape], oldest frame first, zeros before the episode. The streams' own frames and
// recurrent states are neither used nor changed.
TROOP_POLICY_EXPORT int troop_policy_act_stacked(troop_policy_session* session,
                                                 const troop_policy_call* call);
// The reason of the session's last failure; "" before the first.
TROOP_POLICY_EXPORT const char* troop_policy_session_message(const troop_policy_session* session);

#ifdef __cplusplus
}  // extern "C"
#endif
