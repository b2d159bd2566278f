#include "kernels/cuda/loss/text_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cuda/parity_cases.h"

// Losses with targets against their CPU twins, which PyTorch's losses test, and plain f64 loops.
namespace troop::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Results of one of the losses.
struct Losses {
  std::vector<float> loss, dx;
  std::vector<std::int32_t> right;
};

// in_place: the gradient replaces x.
Losses Compute(Parity& parity, bool sigmoids, const TextLossInput& in, bool in_place) {
  const std::int64_t n = in.rows * in.outputs;
  const auto x = parity.Upload(std::span(in.x, std::size_t(n)));
  const auto target = parity.Upload(std::span(in.target, std::size_t(n)));
  const auto loss = parity.Output<float>(in.rows), dx = parity.Output<float>(n);
  const auto right = parity.Output<std::int32_t>(in.rows);
  TextLossInput there = in;
  there.x = x.data();
  there.target = target.data();
  const auto run = sigmoids ? BinaryCrossEntropy : SquaredError;
  run(parity.stream(), there, {loss.data(), right.data(), in_place ? x.data() : dx.data()});
  const Losses made{parity.Download(loss), parity.Download(in_place ? x : dx),
                    parity.Download(right)};
  if (in_place) return made;
  run(parity.stream(), there, {loss.data(), right.data(), nullptr});
  parity.Equal("the loss alone", parity.Download(loss), made.loss);
  return made;
}

void Check(Parity& parity, bool sigmoids, std::int64_t rows, std::int64_t outputs) {
  const std::vector<float> x = parity.Random(rows * outputs, -3, 3);
  std::vector<float> target = parity.Random(rows * outputs, -2, 2);
  for (float& t : target) {
    if (sigmoids) t = t > 0 ? 1.0f : 0.0f;
  }
  // Every third row is right.
  for (std::int64_t i = 0; sigmoids && i < rows; i += 3) {
    for (std::int64_t j = i * outputs; j < (i + 1) * outputs; ++j)
      target[std::size_t(j)] = x[std::size_t(j)] > 0 ? 1.0f : 0.0f;
  }
  std::vector<double> loss, dx;
  std::vector<std::int32_t> right;
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    bool all = sigmoids;
    for (std::int64_t j = i * outputs; j < (i + 1) * outputs; ++j) {
      const double z = double(x[std::size_t(j)]), t = double(target[std::size_t(j)]);
      const double p = 1 / (1 + std::exp(-z));
      sum += sigmoids ? -std::log(t == 1 ? p : 1 - p) : (z - t) * (z - t);
      dx.push_back(0.25 * (sigmoids ? p - t : 2 * (z - t)) / double(outputs));
      all = all && (p > 0.5) == (t == 1);
    }
    loss.push_back(sum / double(outputs));
    right.push_back(all ? 1 : 0);
  }
  const TextLossInput in{rows, outputs, x.data(), target.data(), 0.25f};
  for (const bool in_place : {false, true}) {
    const Losses made = Compute(parity, sigmoids, in, in_place);
    parity.Close("loss", Doubles(made.loss), loss, 1e-6);
    parity.Close("dx", Doubles(made.dx), dx, 1e-6);
    parity.True("what is right", made.right == right);
  }
}

// One output, less than a warp of them, and more.
void BinaryCrossEntropies(Parity& parity) {
  for (const std::int64_t outputs : {1, 3, 32, 45}) Check(parity, true, 7, outputs);
  if (parity.large()) Check(parity, true, 4099, 1000);
}
void SquaredErrors(Parity& parity) {
  for (const std::int64_t outputs : {1, 3, 45}) Check(parity, false, 7, outputs);
}

// Large logits do not overflow; NaN and infinite ones are not finite losses. The twin agrees.
void TextLossesOfExtremes(Parity& parity) {
  const std::vector<float> x = {-500, 500, 500, NAN, kInf, -kInf, 0, 3e38f};
  const std::vector<float> target = {0, 1, 0, 0, 1, 0, 1, 1};
  const TextLossInput in{8, 1, x.data(), target.data(), 1};
  for (const bool sigmoids : {true, false}) {
    const Losses made = Compute(parity, sigmoids, in, false);
    std::vector<float> loss(8), dx(8);
    const auto twin = sigmoids ? troop::BinaryCrossEntropy : troop::SquaredError;
    twin(in, {loss.data(), dx.data()});
    for (std::size_t i = 0; i < 8; ++i) {
      const bool same =
          made.loss[i] == loss[i] || (std::isnan(made.loss[i]) && std::isnan(loss[i]));
      parity.True("the twin's loss", same);
      parity.True("the twin's dx", made.dx[i] == dx[i] || std::isnan(dx[i]));
    }
    parity.True("a NaN stays one", std::isnan(made.loss[3]) && std::isnan(made.dx[3]));
  }
  // At 0 the answer is no.
  const std::vector<std::int32_t> right = {1, 1, 0, 1, 1, 1, 0, 1};
  parity.True("what is right", Compute(parity, true, in, true).right == right);
}

}  // namespace

std::vector<ParityCase> TextLossCases() {
  return {{"TextLoss.BinaryCrossEntropies", BinaryCrossEntropies},
          {"TextLoss.SquaredErrors", SquaredErrors},
          {"TextLoss.Extremes", TextLossesOfExtremes}};
}

}  // namespace troop::cuda
