#pragma once

#include <cstdint>
#include <string_view>

// Batched step of CartPole for three instruction sets that give equal bytes.
namespace troop::cartpole {

inline constexpr int kLaneMultiple = 8;  // batch arrays are padded to a multiple of it

// One step in place: arrays of `count` environments, a multiple of kLaneMultiple. x (m), x_dot
// (m/s), theta (rad) and theta_dot (rad/s) are replaced by their values after `action` (0 or 1).
// observation and terminated are outputs.
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
StepFunction StepFor(Path path);  // REQUIRES: Supported(path)

// Steps for each instruction set. REQUIRES: Supported() for their path.
void StepBaseline(const BatchStep& step);
void StepAvx2(const BatchStep& step);
void StepAvx512(const BatchStep& step);

}  // namespace troop::cartpole
