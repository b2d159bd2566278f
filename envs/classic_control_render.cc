#include <cmath>
#include <numbers>

#include "envs/canvas.h"
#include "envs/classic_control.h"

// Pictures of the classic-control problems, for people: 160 x 120 pixels.
namespace troop {
namespace {

constexpr int kWidth = 160, kHeight = 120;
constexpr Color kPaper{250, 250, 245}, kInk{40, 44, 52}, kWood{202, 152, 101}, kJoint{70, 110, 180},
    kGoal{60, 160, 90}, kFaint{200, 200, 200};

}  // namespace

Environment::Picture CartPole::Render() const {
  Canvas canvas(kWidth, kHeight, {-2.4, 2.4, -0.9, 2.7}, kPaper);
  const double x = state_[0], theta = state_[2];
  canvas.Rectangle(-2.4, 2.4, -0.02, 0.02, kFaint);
  canvas.Rectangle(x - 0.3, x + 0.3, -0.15, 0.15, kInk);
  constexpr double kPoleLength = 1.6;  // drawn longer than it is: 1 m
  canvas.Line(x, 0.15, x + kPoleLength * std::sin(theta), 0.15 + kPoleLength * std::cos(theta), 0.14,
              kWood);
  canvas.Disc(x, 0.15, 0.08, kJoint);
  return canvas.Take();
}

}  // namespace troop
