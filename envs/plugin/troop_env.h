// C interface of an environment in a shared library. C99 and C++, no dependencies. Tutorial:
// docs/guide/environments.md. In C++, <troop/environment.hpp> implements all of it.
//
// A library exports one function, troop_env_api. Everything else is reached through the table that
// it returns. Rules for every function of the table:
//
// - Memory: the allocating side frees. Buffers of the host belong to the host; memory that the
//   library points to stays valid until the next call with the same handle. Ownership is never
//   transferred.
// - Threads: a handle is used by one thread at a time, not always the same one. Different handles
//   may be used by different threads at the same time: no unguarded globals.
// - Errors: a result below 0 means that the call failed; `last_error` then gives the reason. No
//   exception may leave a function, and no function may call exit() or abort().
// - Randomness: it depends on the seed of `reset` alone. Equal seeds and actions give equal bytes,
//   regardless of earlier episodes, in any process.
// - Standard output belongs to the host; write human-readable notes to standard error.
// - The library is loaded once per process and never unloaded.
//
// Later minor versions add members at the end of structures, never in between; `struct_size` says
// which members exist.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TROOP_ENV_ABI_MAJOR 1
#define TROOP_ENV_ABI_MINOR 3

#define TROOP_ENV_EXPORT __attribute__((visibility("default")))

// Element types of an observation.
#define TROOP_ENV_U8 1
#define TROOP_ENV_I32 2
#define TROOP_ENV_F32 3

// Kinds of actions.
#define TROOP_ENV_DISCRETE 1        // one int32_t in [0, action_count)
#define TROOP_ENV_CONTINUOUS 2      // float[action_size], each in [action_low[i], action_high[i]]
#define TROOP_ENV_MULTI_DISCRETE 3  // since 1.3: as continuous ones, but each is an integer

// Types of an option's value.
#define TROOP_ENV_BOOL 1     // value.integer is 0 or 1
#define TROOP_ENV_INTEGER 2  // value.integer
#define TROOP_ENV_NUMBER 3   // value.number, finite
#define TROOP_ENV_STRING 4   // value.string, UTF-8, ends with 0

// Length of observation_shape; the host accepts fewer dimensions.
#define TROOP_ENV_RANK_MAX 8

// One environment; an opaque type of the library.
typedef struct TroopEnv TroopEnv;

// One key of [env.options]. Name and value are valid only during `create`.
typedef struct TroopEnvOption {
  const char* name;
  int32_t type;
  union {
    int64_t integer;
    double number;
    const char* string;
  } value;
} TroopEnvOption;

// Since 1.3. One part of an observation, in consecutive elements: an image next to numbers, or the
// action mask, which has 1 for each discrete action that may be chosen next and 0 for the others.
typedef struct TroopEnvPart {
  const char* name;  // unique, at most 64 bytes, ended by 0
  int32_t rank;
  int64_t shape[TROOP_ENV_RANK_MAX];  // images: height, width, channels
  double scale;                       // factor that networks apply first; 0 means 1
  int32_t action_mask;                // 1: the action mask, of action_count elements
} TroopEnvPart;

// Spec of an environment. The host passes it with struct_size set and all else 0, validates the
// result and rejects what exceeds its limits: at most 4 dimensions and 64 MiB of observation, 2^20
// discrete actions, 4096 continuous ones with finite bounds. A step whose action mask allows no
// action, or has elements other than 0 and 1, fails, unless it ends the episode.
typedef struct TroopEnvSpec {
  uint32_t struct_size;
  int32_t observation_type;
  int32_t observation_rank;  // 0: a scalar
  int64_t observation_shape[TROOP_ENV_RANK_MAX];
  double observation_scale;  // factor that networks apply first: 1/255 for gray frames. 0 means 1
  int32_t action_kind;
  int32_t action_size;      // continuous actions: number of values
  int64_t action_count;     // discrete actions: number of actions
  const float* action_low;  // continuous actions: [action_size]
  const float* action_high;
  int64_t max_episode_steps;  // the host truncates longer episodes; 0: no limit
  // Since 1.3; only where struct_size has room for them. The parts of an observation, whose
  // elements add up to those of its shape, which then has one dimension. The array is copied before
  // the next call. At most 64 parts, one of them the action mask; observation_scale stays 0 or 1.
  int32_t part_count;  // 0: the observation is one tensor
  const TroopEnvPart* parts;
} TroopEnvSpec;

// A human-readable picture: RGB, the top row first.
typedef struct TroopEnvPicture {
  uint32_t struct_size;
  int32_t width, height;  // each in [1, 4096]
  const uint8_t* rgb;     // [height][width][3]
} TroopEnvPicture;

// The table of a library.
typedef struct TroopEnvApi {
  uint32_t struct_size;  // sizeof(TroopEnvApi). The first three members never move
  uint32_t abi_major;    // TROOP_ENV_ABI_MAJOR
  uint32_t abi_minor;    // TROOP_ENV_ABI_MINOR

  // Ids of the environments in this library, ended by NULL. The host rejects other ids.
  const char* const* ids;

  // Creates an environment; its first episode begins with `reset`. An unknown option or an invalid
  // value is an error. On failure: returns NULL, with the reason in `error` (at most error_size
  // bytes with the terminating 0).
  TroopEnv* (*create)(const char* id, const TroopEnvOption* options, size_t option_count,
                      char* error, size_t error_size);

  // Frees the environment. May be called at any time, also during an episode.
  void (*destroy)(TroopEnv* env);

  // Called once, before the first `reset`. The spec is constant for the life of the handle; the
  // arrays of action bounds are copied before the next call.
  int32_t (*spec)(TroopEnv* env, TroopEnvSpec* spec);

  // Starts an episode and writes its first observation, all elements of it. May be called at any
  // time, also during an episode and after a failed call.
  int32_t (*reset)(TroopEnv* env, uint64_t seed, void* observation);

  // Plays one step. `action` is int32_t[1] or float[action_size], within its range. `observation`
  // has the size of the spec and is uninitialized: write all of it, also on the last step, where it
  // must be the last observation of the episode. Both are aligned for their type.
  //   reward: finite.
  //   terminated: 1 when the episode ended by the environment's rules.
  //   truncated: 1 when the environment's own limit ended it.
  // The host sets all three to 0 first, and calls `reset` before the next step after either flag. A
  // failed step ends the episode, which is discarded.
  int32_t (*step)(TroopEnv* env, const void* action, void* observation, float* reward,
                  int32_t* terminated, int32_t* truncated);

  // Draws the current state into memory of the library. May be NULL: there are no pictures.
  int32_t (*render)(TroopEnv* env, TroopEnvPicture* picture);

  // Reason of the last failed call with this handle: one line, valid until the next call. May be
  // NULL.
  const char* (*last_error)(TroopEnv* env);

  // Since 1.1. Plays one step of each of `count` different handles that were created with equal id
  // and options, with the semantics of `step`: row i of each array belongs to envs[i], rows are
  // contiguous, and all arrays are aligned and set to 0 as for `step`. results[i] is what `step`
  // would return; a failure affects only its own row. For code that steps many environments at
  // once, or saves calls; the host may use either function at any time. May be NULL: the host then
  // calls `step` for each.
  void (*step_many)(TroopEnv* const* envs, int32_t count, const void* actions, void* observations,
                    float* rewards, uint8_t* terminated, uint8_t* truncated, int32_t* results);

  // Since 1.2. Reports numbers of the last step, by one call of `emit(sink, name, value)` for each;
  // the run shows their mean, minimum and maximum per interval. Called after each step that
  // succeeded if env.metrics is set, else never. `name`: 1 to 64 letters, digits, _, - and /, ended
  // by 0, and copied by `emit`; at most 32 different names. `value`: finite. Others are dropped,
  // with a warning. `emit` must not be called later. May be NULL: there are no numbers.
  void (*metrics)(TroopEnv* env, void (*emit)(void* sink, const char* name, double value),
                  void* sink);
} TroopEnvApi;

// The only exported function of a library. The table must live as long as the process. A library
// that supports several versions returns the table for `host_abi_major`; others return their only
// table, and the host reports which side is too old.
TROOP_ENV_EXPORT const TroopEnvApi* troop_env_api(uint32_t host_abi_major);

#ifdef __cplusplus
}
#endif
