#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace troop {

// The oracle for what is learned of one value's distribution: the papers' formulas in plain loops
// in f64, one item at a time, with nothing of the kernels in it.
struct ValueReference {
  enum Kind { kScalar, kCategorical, kQuantile };
  using Doubles = std::vector<double>;
  struct Item {
    double loss = 0, priority = 0;
    Doubles dout;  // [K]
  };

  Kind kind = kScalar;
  std::size_t numbers = 1;  // K
  double low = 0, high = 0;
  bool huber = true;  // of a scalar

  double Mean(const Doubles& out) const {
    const Doubles p = kind == kCategorical ? Softmax(out) : Doubles(numbers, 1.0 / double(numbers));
    double mean = 0;
    for (std::size_t k = 0; k < numbers; ++k)
      mean += p[k] * (kind == kCategorical ? Atom(k) : out[k]);
    return mean;
  }
  // How the mean changes with each number.
  Doubles Slope(const Doubles& out) const {
    if (kind != kCategorical) return Doubles(numbers, 1.0 / double(numbers));
    Doubles slope = Softmax(out);
    for (std::size_t k = 0; k < numbers; ++k) slope[k] *= Atom(k) - Mean(out);
    return slope;
  }
  // The action of the largest mean, of all [A · K]; the first of equal ones.
  std::size_t Best(const Doubles& all) const {
    std::size_t best = 0;
    for (std::size_t a = 1; a < all.size() / numbers; ++a) {
      if (Mean(Of(all, a)) > Mean(Of(all, best))) best = a;
    }
    return best;
  }
  Doubles Of(const Doubles& all, std::size_t action) const {
    const auto first = all.begin() + std::ptrdiff_t(action * numbers);
    return {first, first + std::ptrdiff_t(numbers)};
  }

  // out: the value's numbers; next: those behind the item's steps; become: what a value there makes
  // here, G + γ^n d z.
  Item Learn(const Doubles& out, const Doubles& next,
             const std::function<double(double)>& become) const {
    if (kind == kCategorical) return Categorical(out, next, become);
    if (kind == kQuantile) return Quantile(out, next, become);
    const double td = become(next[0]) - out[0];
    const bool far = huber && std::abs(td) > 1;
    return {
        far ? std::abs(td) - 0.5 : td * td / 2, std::abs(td), {-(far ? std::copysign(1, td) : td)}};
  }

 private:
  double Atom(std::size_t k) const { return low + (high - low) * double(k) / double(numbers - 1); }
  static Doubles Softmax(Doubles z) {
    const double top = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (double& x : z) sum += x = std::exp(x - top);
    for (double& x : z) x /= sum;
    return z;
  }

  // Bellemare et al. 2017, eq. 7: an atom's share of a moved one falls with their distance.
  Item Categorical(const Doubles& out, const Doubles& next,
                   const std::function<double(double)>& become) const {
    const Doubles p = Softmax(out), next_p = Softmax(next);
    Item item{.dout = p};
    double goal = 0;
    for (std::size_t j = 0; j < numbers; ++j) {
      const double moved = std::clamp(become(Atom(j)), low, high);
      goal += next_p[j] * moved;
      for (std::size_t k = 0; k < numbers; ++k) {
        const double near = 1 - std::abs(moved - Atom(k)) * double(numbers - 1) / (high - low);
        const double mass = next_p[j] * std::clamp(near, 0.0, 1.0);
        item.loss -= mass * std::log(p[k]);
        item.dout[k] -= mass;
      }
    }
    item.priority = std::abs(goal - Mean(out));
    return item;
  }

  // Dabney et al. 2018, eq. 10, κ = 1.
  Item Quantile(const Doubles& out, const Doubles& next,
                const std::function<double(double)>& become) const {
    Item item{.dout = Doubles(numbers)};
    double goal = 0;
    for (std::size_t j = 0; j < numbers; ++j) goal += become(next[j]) / double(numbers);
    for (std::size_t k = 0; k < numbers; ++k) {
      const double tau = (2 * double(k) + 1) / (2 * double(numbers));
      for (std::size_t j = 0; j < numbers; ++j) {
        const double u = become(next[j]) - out[k];
        const double side = (u < 0 ? 1 - tau : tau) / double(numbers);
        item.loss += side * (std::abs(u) <= 1 ? u * u / 2 : std::abs(u) - 0.5);
        item.dout[k] -= side * std::clamp(u, -1.0, 1.0);
      }
    }
    item.priority = std::abs(goal - Mean(out));
    return item;
  }
};

}  // namespace troop
