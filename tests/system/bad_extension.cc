// Extensions that are refused, chosen by a macro at compilation.
#include <cstdlib>
#include <stdexcept>

#include "learners/external/own_algorithm.h"
#include "nn/extension.h"

#if defined(TROOP_TEST_FOREIGN)
// Made with the headers of another version: nothing of it but the text is called.
extern "C" const char* troop_extension_abi() { return "troop 0.0.1 headers 0"; }
extern "C" void troop_extension(troop::Status*) { std::abort(); }
#elif defined(TROOP_TEST_TAKEN)
TROOP_EXTENSION() {
  return troop::RegisterAlgorithm("dqn", [](troop::OwnAlgorithmRequest) {
    return troop::Result<std::unique_ptr<troop::Algorithm>>(troop::Internal("never made"));
  });
}
#else
TROOP_EXTENSION() { throw std::runtime_error("no disk"); }
#endif
