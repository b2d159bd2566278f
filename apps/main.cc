// Entry point of the program `troop`.
#include "apps/commands/cli.h"

int main(int argc, char** argv) { return troop::RunCommand(argc, argv); }
