#pragma once

#include <cstdint>
#include <string_view>

// Batched step of CartPole for three instruction sets that give equal bytes.
namespace troop::cartpole {

inline constexpr int kLaneMultiple = 8;  // batch arrays are padded to a multiple of it

// Inputs and outputs of one step: arrays of `count` environments, a multiple of kLaneMultiple.
struct BatchStep {
  int count;
  double *x, *x_dot, *theta, *theta_dot;
  const std::int32_t* action;
  float* observation;        // [count, 4]
  std::uint8_t* terminated;  // 0 or 1
};

enum class Path { kBaseline, kAvx2, kAvx512 };
std::string_view PathName(Path path);
bool Supported(Path path);  // on this machine
Path FastestPath();

using StepFunction = void (*)(const BatchStep& step);
StepFunction StepFor(Path path);

// Steps for each instruction set. REQUIRES: Supported().
void StepBaseline(const BatchStep& step);
void StepAvx2(const BatchStep& step);
void StepAvx512(const BatchStep& step);

}  // namespace troop::cartpole
