// Implements the recurrent layers of policies; the arithmetic is stated in
// nn/export/policy_description.h.
#include "nn/policy_library/policy_recurrent_operations.h"

namespace troop {
namespace {

// A tanh cannot overflow, unlike an exponential.
float Sigmoid(float x) { return 0.5f + 0.5f * PolicyTanh(0.5f * x); }

// The products of the gates with the input and with h, and where they are kept.
class Recurrent : public PolicyOperation {
 public:
  // Both products follow the rows of the output.
  std::int64_t scratch() const override { return 2 * gates_ * units_; }

 protected:
  Recurrent(const PolicyLayerReader& layer, std::int64_t gates)
      : units_(layer.out()),
        gates_(gates),
        input_(layer.Tensor("weight_ih", gates * units_ * layer.in()).data(),
               layer.Tensor("bias_ih", gates * units_).data(), gates * units_, layer.in()),
        recurrent_(layer.Tensor("weight_hh", gates * units_ * units_).data(),
                   layer.Tensor("bias_hh", gates * units_).data(), gates * units_, units_) {}

  // x and u, [rows, gates · units]: products with the input and with h, biases included.
  struct Sums {
    float *x, *u;
  };
  Sums Multiplied(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
                  const PolicyStates& states) const {
    const Sums sums{out + rows * units_, out + rows * units_ * (1 + gates_)};
    Multiply(isa, {.weights = &input_,
                   .rows = rows,
                   .row_step = input_.depth,
                   .length = input_.depth,
                   .in = in,
                   .out = sums.x});
    // h begins the state of each row.
    Multiply(isa, {.weights = &recurrent_,
                   .rows = rows,
                   .row_step = states.step,
                   .length = units_,
                   .in = states.first,
                   .out = sums.u});
    return sums;
  }

  const std::int64_t units_, gates_;

 private:
  const PackedWeights input_, recurrent_;
};

// Hochreiter & Schmidhuber 1997, with PyTorch's order of gates: i, f, g, o.
class Lstm final : public Recurrent {
 public:
  explicit Lstm(const PolicyLayerReader& layer) : Recurrent(layer, 4) {}
  // h and c, which this step replaces unit by unit: the products with the old h come first.
  std::int64_t state() const override { return 2 * units_; }
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates& states) const override {
    const Sums sums = Multiplied(isa, rows, in, out, states);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float *const x = sums.x + r * 4 * units_, *const u = sums.u + r * 4 * units_;
      float* const h = states.first + r * states.step;
      float* const c = h + units_;
      for (std::int64_t i = 0; i < units_; ++i) {
        const auto sum = [&](std::int64_t gate) {
          return x[gate * units_ + i] + u[gate * units_ + i];
        };
        c[i] = Sigmoid(sum(1)) * c[i] + Sigmoid(sum(0)) * PolicyTanh(sum(2));
        out[r * units_ + i] = h[i] = Sigmoid(sum(3)) * PolicyTanh(c[i]);
      }
    }
  }
};

// Cho et al. 2014 in the form of PyTorch, with its order of gates: r, z, n.
class Gru final : public Recurrent {
 public:
  explicit Gru(const PolicyLayerReader& layer) : Recurrent(layer, 3) {}
  // h alone.
  std::int64_t state() const override { return units_; }
  void Run(PolicyIsa isa, std::int64_t rows, const float* in, float* out,
           const PolicyStates& states) const override {
    const Sums sums = Multiplied(isa, rows, in, out, states);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float *const x = sums.x + r * 3 * units_, *const u = sums.u + r * 3 * units_;
      float* const h = states.first + r * states.step;
      for (std::int64_t i = 0; i < units_; ++i) {
        // h of this unit is read last, because the sums contain the old one.
        const float reset = Sigmoid(x[i] + u[i]);
        const float keep = Sigmoid(x[units_ + i] + u[units_ + i]);
        const float fresh = PolicyTanh(x[2 * units_ + i] + reset * u[2 * units_ + i]);
        out[r * units_ + i] = h[i] = (1 - keep) * fresh + keep * h[i];
      }
    }
  }
};

}  // namespace

// The names are those of PolicyLayerKind.
std::unique_ptr<PolicyOperation> MakePolicyRecurrentOperation(const std::string& kind,
                                                              const PolicyLayerReader& layer) {
  if (kind == "lstm") return std::make_unique<Lstm>(layer);
  if (kind == "gru") return std::make_unique<Gru>(layer);
  return nullptr;
}

}  // namespace troop
