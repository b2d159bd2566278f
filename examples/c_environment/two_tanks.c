/* Two water tanks: a pump fills the first, which drains into the second, which drains away. Keep
 * the level of the second tank at a target by controlling the pump. In C an environment is a table
 * of functions; troop_env.h specifies each of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <troop_env.h>

/* State of one environment; the host only has a pointer to TroopEnv, an opaque type. */
typedef struct Tanks {
  float pump_max; /* option "pump_max": fill rate at full power */
  float level[2]; /* 1: full */
  float target;
} Tanks;

static const float kActionLow[] = {0}, kActionHigh[] = {1};

static int32_t Fail(char* error, size_t error_size, const char* what, const char* name) {
  snprintf(error, error_size, what, name);
  return -1;
}

/* An unknown or invalid option is an error, so that a mistyped one is not ignored. */
static int32_t ReadOption(Tanks* tanks, const TroopEnvOption* option, char* error, size_t size) {
  if (strcmp(option->name, "pump_max") != 0) {
    return Fail(error, size, "unknown option %s; known: pump_max", option->name);
  }
  if (option->type != TROOP_ENV_NUMBER || option->value.number < 0.01 || option->value.number > 1) {
    return Fail(error, size, "option %s: give a number in [0.01, 1]", option->name);
  }
  tanks->pump_max = (float)option->value.number;
  return 0;
}

static void Destroy(TroopEnv* env) { free(env); }

static TroopEnv* Create(const char* id, const TroopEnvOption* options, size_t option_count,
                        char* error, size_t error_size) {
  Tanks* tanks = calloc(1, sizeof *tanks);
  (void)id; /* the library has only one id */
  if (tanks == NULL) {
    Fail(error, error_size, "out of memory for %s", "two tanks");
    return NULL;
  }
  tanks->pump_max = 0.1f;
  for (size_t i = 0; i < option_count; ++i) {
    if (ReadOption(tanks, &options[i], error, error_size) < 0) {
      free(tanks);
      return NULL;
    }
  }
  return (TroopEnv*)tanks;
}

static int32_t Describe(TroopEnv* env, TroopEnvSpec* spec) {
  (void)env;
  spec->observation_type = TROOP_ENV_F32;
  spec->observation_rank = 1;
  spec->observation_shape[0] = 3; /* both levels, the target */
  spec->action_kind = TROOP_ENV_CONTINUOUS;
  spec->action_size = 1; /* power of the pump */
  spec->action_low = kActionLow;
  spec->action_high = kActionHigh;
  spec->max_episode_steps = 200;
  return 0;
}

static void Observe(const Tanks* tanks, void* observation) {
  float* values = observation;
  values[0] = tanks->level[0];
  values[1] = tanks->level[1];
  values[2] = tanks->target;
}

/* Returns a value in [low, high) and advances the seed: SplitMix64. Not rand(), whose state all
 * environments of the process share. */
static float Uniform(uint64_t* seed, float low, float high) {
  uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return low + (high - low) * (float)(z >> 40) / 16777216.0f;
}

static int32_t Reset(TroopEnv* env, uint64_t seed, void* observation) {
  Tanks* tanks = (Tanks*)env;
  tanks->level[0] = Uniform(&seed, 0.1f, 0.6f);
  tanks->level[1] = Uniform(&seed, 0.1f, 0.6f);
  tanks->target = Uniform(&seed, 0.2f, 0.6f);
  Observe(tanks, observation);
  return 0;
}

static int32_t Step(TroopEnv* env, const void* action, void* observation, float* reward,
                    int32_t* terminated, int32_t* truncated) {
  Tanks* tanks = (Tanks*)env;
  const float power = *(const float*)action;
  /* Torricelli's law: outflow is proportional to the square root of the level. */
  const float first = 0.08f * sqrtf(tanks->level[0]), second = 0.08f * sqrtf(tanks->level[1]);
  (void)truncated; /* the host applies max_episode_steps */
  tanks->level[0] = fmaxf(0, tanks->level[0] + tanks->pump_max * power - first);
  tanks->level[1] = fmaxf(0, tanks->level[1] + first - second);
  *reward = -fabsf(tanks->level[1] - tanks->target);
  if (tanks->level[0] > 1 || tanks->level[1] > 1) { /* a tank overflows */
    *reward = -20;
    *terminated = 1;
  }
  Observe(tanks, observation);
  return 0;
}

static const char* const kIds[] = {"TwoTanks-v0", NULL};

static const TroopEnvApi kApi = {
    .struct_size = sizeof(TroopEnvApi),
    .abi_major = TROOP_ENV_ABI_MAJOR,
    .abi_minor = TROOP_ENV_ABI_MINOR,
    .ids = kIds,
    .create = Create,
    .destroy = Destroy,
    .spec = Describe,
    .reset = Reset,
    .step = Step,
};

const TroopEnvApi* troop_env_api(uint32_t host_abi_major) {
  (void)host_abi_major;
  return &kApi;
}
