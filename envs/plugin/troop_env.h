// An environment for Troop as a shared library: the C interface. C99 and C++, no dependencies.
// Step by step: docs/guide/environments.md. In C++ <troop/environment.hpp> writes all of this for
// you.
//
// A library exports one function, troop_env_api. Everything else is reached through the table that
// it returns. What holds for every function of the table:
//
//  - Memory: whoever allocates frees. The host's buffers are the host's; what a function of the
//    library points to stays valid until the next call with the same handle. Nothing is handed
//    over.
//  - Threads: a handle is used by one thread at a time, not always the same one. Different handles
//    may be used by different threads at the same time: no unguarded globals.
//  - Errors: a number below 0 says that the call failed; `last_error` then gives the reason. No
//    exception may leave a function, and nothing may call exit() or abort().
//  - Chance: the seed of `reset` decides all of it. Equal seeds and actions give equal bytes,
//    whatever was played before, in any process.
//  - Standard output belongs to the host; write notes for people to standard error.
//  - The library is loaded once per process and never unloaded.
//
// Later minor versions add members at the end of structures, never in between; `struct_size` says
// which of them are there.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TROOP_ENV_ABI_MAJOR 1
#define TROOP_ENV_ABI_MINOR 1

#define TROOP_ENV_EXPORT __attribute__((visibility("default")))

// Types of an observation's elements.
#define TROOP_ENV_U8 1
#define TROOP_ENV_I32 2
#define TROOP_ENV_F32 3

// Kinds of actions.
#define TROOP_ENV_DISCRETE 1    // one int32_t in [0, action_count)
#define TROOP_ENV_CONTINUOUS 2  // float[action_size], each in [action_low[i], action_high[i]]

// Types of an option's value.
#define TROOP_ENV_BOOL 1     // value.integer is 0 or 1
#define TROOP_ENV_INTEGER 2  // value.integer
#define TROOP_ENV_NUMBER 3   // value.number, finite
#define TROOP_ENV_STRING 4   // value.string, UTF-8, ends with 0

#define TROOP_ENV_RANK_MAX 8

// One environment. What is inside is the library's.
typedef struct TroopEnv TroopEnv;

// One key of [env.options]. Name and value are valid during `create` alone.
typedef struct TroopEnvOption {
  const char* name;
  int32_t type;
  union {
    int64_t integer;
    double number;
    const char* string;
  } value;
} TroopEnvOption;

// What an environment looks like. The host hands it out with struct_size set and all else 0, checks
// what it gets, and refuses what it can't hold: at most 4 dimensions and 64 MiB of observation,
// 2^20 discrete actions, 4096 continuous ones with finite bounds.
typedef struct TroopEnvSpec {
  uint32_t struct_size;
  int32_t observation_type;
  int32_t observation_rank;  // 0: a single number
  int64_t observation_shape[TROOP_ENV_RANK_MAX];
  double observation_scale;  // networks multiply by it first: 1/255 for grey frames. 0 means 1
  int32_t action_kind;
  int32_t action_size;      // continuous
  int64_t action_count;     // discrete
  const float* action_low;  // continuous: [action_size]
  const float* action_high;
  int64_t max_episode_steps;  // the host truncates longer episodes; 0: no limit
} TroopEnvSpec;

// A picture for people: RGB, the top row first.
typedef struct TroopEnvPicture {
  uint32_t struct_size;
  int32_t width, height;  // each in [1, 4096]
  const uint8_t* rgb;     // [height][width][3]
} TroopEnvPicture;

typedef struct TroopEnvApi {
  uint32_t struct_size;  // sizeof(TroopEnvApi). These three stay where they are for ever
  uint32_t abi_major;    // TROOP_ENV_ABI_MAJOR
  uint32_t abi_minor;    // TROOP_ENV_ABI_MINOR

  // The environments in this library: names, and NULL behind the last. The host refuses others.
  const char* const* ids;

  // A new environment; its first episode begins with `reset`. An option that is not known, or has a
  // bad value, is an error. On failure: returns NULL, with the reason in `error` (at most
  // error_size bytes with the 0 at its end).
  TroopEnv* (*create)(const char* id, const TroopEnvOption* options, size_t option_count,
                      char* error, size_t error_size);

  // Frees it. May be called at any time, in the middle of an episode as well.
  void (*destroy)(TroopEnv* env);

  // Called once, before the first `reset`. What it says holds for the life of the handle; the
  // arrays of an action's bounds are copied before the next call.
  int32_t (*spec)(TroopEnv* env, TroopEnvSpec* spec);

  // Starts an episode and writes its first observation, all elements of it. May come at any time,
  // in the middle of an episode and after a failed call as well.
  int32_t (*reset)(TroopEnv* env, uint64_t seed, void* observation);

  // One step. `action` is int32_t[1] or float[action_size], within its range; `observation` as the
  // spec says, uninitialised: write all of it, also on the last step, where it must be the true
  // last observation. Both are aligned for their type.
  //   reward: finite.
  //   terminated: 1 when the task ended: won, lost, nothing can come after.
  //   truncated: 1 when it was broken off, and would have gone on: a time limit of your own.
  // The host sets all three to 0 first, and calls `reset` before it steps again after either. A
  // step that fails ends the episode, which then counts for nothing.
  int32_t (*step)(TroopEnv* env, const void* action, void* observation, float* reward,
                  int32_t* terminated, int32_t* truncated);

  // May be NULL: there are no pictures. Draws the present state into memory of the library's.
  int32_t (*render)(TroopEnv* env, TroopEnvPicture* picture);

  // May be NULL. Why the last call with this handle failed: one line, valid until the next call.
  const char* (*last_error)(TroopEnv* env);

  // Since 1.1. May be NULL: the host then calls `step` for each. One step of each of `count`
  // different handles made with equal id and options, as `step` would take them: row i of each
  // array is envs[i]'s, rows lie behind one another without gaps, and all of them are aligned and
  // set to 0 as for `step`. results[i]: what `step` would return; one that fails fails alone. For
  // code that steps many at once, or saves calls; a host may use either at any time.
  void (*step_many)(TroopEnv* const* envs, int32_t count, const void* actions, void* observations,
                    float* rewards, uint8_t* terminated, uint8_t* truncated, int32_t* results);
} TroopEnvApi;

// The one function that a library exports. The table must live as long as the process. A library
// that speaks several versions returns the table for `host_abi_major`; others return theirs
// whatever they are asked for, and the host says which version is too old.
TROOP_ENV_EXPORT const TroopEnvApi* troop_env_api(uint32_t host_abi_major);

#ifdef __cplusplus
}
#endif
