#include "envs/subprocess/worker_main.h"

// What `troop env-worker` is, without all the rest: for tests of the folder alone.
int main() { return troop::RunEnvWorker(); }
