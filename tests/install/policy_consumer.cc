/* A program outside the repository that uses an installed libtroop_policy, in the language that C99
   and C++20 have in common. It prints the action and the values for the observation (1, 2). */
#include <stdio.h>
#include <troop_policy.h>

int main(int count, char** arguments) {
  char message[200] = "";
  troop_policy_source source = {0};
  source.size = sizeof source;
  source.abi = TROOP_POLICY_ABI;
  source.path = count > 1 ? arguments[1] : "";
  source.message = message;
  source.message_bytes = sizeof message;
  if (troop_policy_abi() != TROOP_POLICY_ABI) return 1;
  troop_policy* policy = NULL;
  if (troop_policy_load(&source, &policy) != TROOP_POLICY_OK) return puts(message), 2;
  troop_policy_session* session = NULL;
  if (troop_policy_session_create(policy, 1, &session) != TROOP_POLICY_OK) return 3;
  const float observation[2] = {1, 2};
  float values[3] = {0};
  int32_t action = -1;
  const void* observations[] = {observation};
  void* actions[] = {&action};
  troop_policy_call call = {0};
  call.size = sizeof call;
  call.count = 1;
  call.observations = observations;
  call.actions = actions;
  call.values = values;
  if (troop_policy_act(session, &call) != TROOP_POLICY_OK) return 4;
  printf("%d: %g %g %g\n", (int)action, (double)values[0], (double)values[1], (double)values[2]);
  troop_policy_session_destroy(session);
  troop_policy_unload(policy);
  return 0;
}
