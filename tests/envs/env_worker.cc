#include "envs/subprocess/worker_main.h"

// Only `troop env-worker`, for tests of this folder alone.
int main() { return troop::RunEnvWorker(); }
