// Plays ten episodes of CartPole with the policy in a file of `troop export`: balance_pole FILE.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <troop_policy.h>

#define STEPS_MAX 500

// The position and velocity of the cart, then the angle and angular velocity of the pole.
typedef struct {
  double x, v, angle, turn;
} Pole;

// A start in ±0.05 for each element, from a linear congruential generator (Knuth's constants).
static Pole Start(unsigned long long* seed) {
  double all[4];
  for (int i = 0; i < 4; ++i) {
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    all[i] = 0.1 * ((double)(*seed >> 40) / (1 << 24)) - 0.05;
  }
  return (Pole){all[0], all[1], all[2], all[3]};
}

// One step of 20 ms (Florian 2007); the action pushes the cart to the left (0) or right (1).
static void Advance(Pole* pole, int32_t action) {
  const double force = action == 1 ? 10 : -10, s = sin(pole->angle), c = cos(pole->angle);
  const double push = (force + 0.05 * pole->turn * pole->turn * s) / 1.1;
  const double turning = (9.8 * s - c * push) / (0.5 * (4.0 / 3 - 0.1 * c * c / 1.1));
  const double moving = push - 0.05 * turning * c / 1.1;
  pole->x += 0.02 * pole->v;
  pole->v += 0.02 * moving;
  pole->angle += 0.02 * pole->turn;
  pole->turn += 0.02 * turning;
}

static int Fallen(const Pole* pole) { return fabs(pole->x) > 2.4 || fabs(pole->angle) > 0.2095; }

// Plays one episode and returns its steps, or -1 after an error.
static int Play(troop_policy_session* session, Pole pole) {
  // The next observation begins an episode: frame stacks are cleared.
  troop_policy_reset(session, -1);
  int steps = 0;
  while (steps < STEPS_MAX && !Fallen(&pole)) {
    const float observation[4] = {(float)pole.x, (float)pole.v, (float)pole.angle,
                                  (float)pole.turn};
    int32_t action;
    const void* observations[] = {observation};
    void* actions[] = {&action};
    const troop_policy_call call = {
        .size = sizeof call, .count = 1, .observations = observations, .actions = actions};
    if (troop_policy_act(session, &call) != TROOP_POLICY_OK) {
      fprintf(stderr, "%s\n", troop_policy_session_message(session));
      return -1;
    }
    Advance(&pole, action);
    ++steps;
  }
  return steps;
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: balance_pole FILE\n");
    return 2;
  }
  // 1. The policy. It must be one for CartPole: 4 numbers in, 2 actions out.
  char message[256];
  const troop_policy_source source = {.size = sizeof source,
                                      .abi = TROOP_POLICY_ABI,
                                      .path = arguments[1],
                                      .message = message,
                                      .message_bytes = sizeof message};
  troop_policy* policy;
  if (troop_policy_load(&source, &policy) != TROOP_POLICY_OK) {
    fprintf(stderr, "%s\n", message);
    return 1;
  }
  const troop_policy_observation* observation = troop_policy_observation_at(policy, 0);
  const troop_policy_action* action = troop_policy_action_at(policy, 0);
  troop_policy_session* session = NULL;
  int failed = 0;
  if (observation->dtype != TROOP_POLICY_F32 || observation->bytes != 16 ||
      action->kind != TROOP_POLICY_DISCRETE || action->count != 2) {
    fprintf(stderr, "%s: not a policy for CartPole\n", arguments[1]);
    failed = 1;
  } else if (troop_policy_session_create(policy, 1, &session) != TROOP_POLICY_OK) {
    fprintf(stderr, "no memory for a session\n");
    failed = 1;
  }
  // 2. The episodes.
  unsigned long long seed = 1;
  for (int episode = 0; episode < 10 && !failed; ++episode) {
    const int steps = Play(session, Start(&seed));
    failed = steps < 0;
    if (!failed) printf("%d\n", steps);
  }
  troop_policy_session_destroy(session);
  troop_policy_unload(policy);
  return failed;
}
