#include <cmath>
#include <numbers>

#include "core/graphics/world_canvas.h"
#include "envs/classic_control/classic_control.h"

// Human-readable pictures of the classic-control environments: 160 x 120 pixels.
namespace troop {
namespace {

constexpr int kWidth = 160, kHeight = 120;
constexpr double kAspect = double(kWidth) / kHeight;
constexpr Color kPaper{250, 250, 245}, kInk{40, 44, 52}, kWood{202, 152, 101}, kJoint{70, 110, 180},
    kGoal{60, 160, 90}, kFaint{200, 200, 200}, kForce{200, 60, 50};

}  // namespace

// The view covers the permitted positions of the cart, [-2.4, 2.4] m.
Environment::Picture CartPole::Render() const {
  Canvas canvas(kWidth, kHeight, {-2.4, 2.4, -0.9, 2.7}, kPaper);
  const double x = state_[0], theta = state_[2];
  canvas.Rectangle(-2.4, 2.4, -0.02, 0.02, kFaint);
  canvas.Rectangle(x - 0.3, x + 0.3, -0.15, 0.15, kInk);
  constexpr double kPoleLength = 1.6;  // the real length is 1 m; longer is easier to see
  const double tip_x = x + kPoleLength * std::sin(theta);
  canvas.Line(x, 0.15, tip_x, 0.15 + kPoleLength * std::cos(theta), 0.14, kWood);
  canvas.Disc(x, 0.15, 0.08, kJoint);
  return canvas.Take();
}

// Links have length 1. The line is the height that the tip must reach.
Environment::Picture Acrobot::Render() const {
  Canvas canvas(kWidth, kHeight, {-2.2 * kAspect, 2.2 * kAspect, -2.2, 2.2}, kPaper);
  canvas.Rectangle(-2.2 * kAspect, 2.2 * kAspect, 0.98, 1.02, kGoal);
  const auto [theta1, theta2, velocity1, velocity2] = state_;  // 0: hanging down
  const double elbow_x = std::sin(theta1), elbow_y = -std::cos(theta1);
  const double tip_x = elbow_x + std::sin(theta1 + theta2);
  const double tip_y = elbow_y - std::cos(theta1 + theta2);
  canvas.Line(0, 0, elbow_x, elbow_y, 0.2, kWood);
  canvas.Line(elbow_x, elbow_y, tip_x, tip_y, 0.2, kInk);
  canvas.Disc(0, 0, 0.12, kJoint);
  canvas.Disc(elbow_x, elbow_y, 0.12, kJoint);
  return canvas.Take();
}

// Height as in Gymnasium: 0.45 sin(3x) + 0.55; its slope is 1.35 cos(3x).
Environment::Picture MountainCar::Render() const {
  const auto height = [](double x) { return 0.45 * std::sin(3 * x) + 0.55; };
  Canvas canvas(kWidth, kHeight, {-1.2, 0.6, 0, 1.35}, kPaper);
  // The hill as a polyline, then the flag at the goal, then the car.
  constexpr int kPieces = 60;
  for (int i = 0; i < kPieces; ++i) {
    const double x0 = -1.2 + 1.8 * i / kPieces, x1 = -1.2 + 1.8 * (i + 1) / kPieces;
    canvas.Line(x0, height(x0), x1, height(x1), 0.025, kInk);
  }
  canvas.Line(0.5, height(0.5), 0.5, height(0.5) + 0.25, 0.02, kInk);
  canvas.Rectangle(0.4, 0.5, height(0.5) + 0.16, height(0.5) + 0.25, kGoal);
  const double x = state_[0];
  const double slope = std::atan(1.35 * std::cos(3 * x));  // of the hill under the car
  const double up_x = -std::sin(slope) * 0.06, up_y = std::cos(slope) * 0.06;
  const double along_x = std::cos(slope) * 0.06, along_y = std::sin(slope) * 0.06;
  const double y = height(x);
  canvas.Line(x + up_x - along_x, y + up_y - along_y, x + up_x + along_x, y + up_y + along_y, 0.08,
              kJoint);
  return canvas.Take();
}

Environment::Picture Pendulum::Render() const {
  Canvas canvas(kWidth, kHeight, {-1.3 * kAspect, 1.3 * kAspect, -1.3, 1.3}, kPaper);
  const double x = std::sin(state_[0]), y = std::cos(state_[0]);  // 0: upright
  canvas.Line(0, 0, x, y, 0.2, kWood);
  // Torque as a bar below the joint; to the right is clockwise.
  canvas.Line(0, -1.15, 0.5 * torque_, -1.15, 0.08, kForce);
  canvas.Disc(0, 0, 0.07, kInk);
  return canvas.Take();
}

}  // namespace troop
