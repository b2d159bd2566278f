#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/ops/cross_entropy.h"
#include "kernels/cuda/ops/layer_norm.h"
#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

// Tolerances: bf16 has 8 bits of mantissa; f32 after sums of n values.
double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 1e-2 : 1e-5; }

// x rounded to `dtype`: the input that the kernel sees.
std::vector<float> Rounded(DType dtype, std::vector<float> x) {
  if (dtype == DType::kBF16) {
    for (float& v : x) v = RoundedToBF16(v);
  }
  return x;
}

// An array of `dtype` on the device.
class Array {
 public:
  Array(Parity& parity, DType dtype, const std::vector<float>& x)
      : parity_(parity), bf16_(dtype == DType::kBF16) {
    if (bf16_) {
      halves_ = parity.Upload(ToBF16s(x));
    } else {
      floats_ = parity.Upload(x);
    }
  }
  Array(Parity& parity, DType dtype, std::int64_t n)
      : parity_(parity), bf16_(dtype == DType::kBF16) {
    if (bf16_) {
      halves_ = parity.Output<BF16>(n);
    } else {
      floats_ = parity.Output<float>(n);
    }
  }
  void* data() { return bf16_ ? static_cast<void*>(halves_.data()) : floats_.data(); }
  std::vector<float> values() {
    return bf16_ ? FromBF16s(parity_.Download(halves_)) : parity_.Download(floats_);
  }

 private:
  Parity& parity_;
  const bool bf16_;
  DeviceArray<float> floats_;
  DeviceArray<BF16> halves_;
};

void CheckNorm(Parity& parity, DType dtype, std::int64_t rows, std::int64_t n, bool in_place) {
  const LayerNormShape shape{rows, n, 1e-5f};
  const auto x = Rounded(dtype, parity.Random(rows * n, -1, 3));
  const auto dy = Rounded(dtype, parity.Random(rows * n));
  const auto gamma = parity.Random(n, 0.5, 1.5), beta = parity.Random(n);
  const auto dgamma_before = parity.Random(n), dbeta_before = parity.Random(n);
  std::vector<double> y, dx, mean, rstd;
  std::vector<double> dgamma = Doubles(dgamma_before), dbeta = Doubles(dbeta_before);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* const row = x.data() + r * n;
    const float* const d = dy.data() + r * n;
    double middle = 0, variance = 0, sum = 0, product = 0;
    for (std::int64_t i = 0; i < n; ++i) middle += double(row[i]) / double(n);
    for (std::int64_t i = 0; i < n; ++i) variance += std::pow(row[i] - middle, 2) / double(n);
    const double scale = 1 / std::sqrt(variance + double(shape.epsilon));
    mean.push_back(middle), rstd.push_back(scale);
    for (std::int64_t i = 0; i < n; ++i) {
      const double normed = (row[i] - middle) * scale, g = double(d[i]) * gamma[std::size_t(i)];
      y.push_back(gamma[std::size_t(i)] * normed + beta[std::size_t(i)]);
      dgamma[std::size_t(i)] += d[i] * normed;
      dbeta[std::size_t(i)] += d[i];
      sum += g, product += g * normed;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const double normed = (row[i] - middle) * scale, g = double(d[i]) * gamma[std::size_t(i)];
      dx.push_back(scale * (g - (sum + normed * product) / double(n)));
    }
  }
  Array x_there(parity, dtype, x), y_there(parity, dtype, rows * n);
  Array dy_there(parity, dtype, dy), dx_there(parity, dtype, rows * n);
  const auto gamma_there = parity.Upload(gamma), beta_there = parity.Upload(beta);
  const auto dgamma_there = parity.Upload(dgamma_before), dbeta_there = parity.Upload(dbeta_before);
  const auto mean_there = parity.Output<float>(rows), rstd_there = parity.Output<float>(rows);
  const auto workspace = parity.Output<float>(LayerNormWorkspace(n));
  Array& dx_to = in_place ? dy_there : dx_there;
  LayerNorm(parity.stream(), {.shape = shape,
                              .dtype = dtype,
                              .x = x_there.data(),
                              .gamma = gamma_there.data(),
                              .beta = beta_there.data(),
                              .y = y_there.data(),
                              .mean = mean_there.data(),
                              .rstd = rstd_there.data()});
  LayerNormBackward(parity.stream(), {.shape = shape,
                                      .dtype = dtype,
                                      .x = x_there.data(),
                                      .gamma = gamma_there.data(),
                                      .mean = mean_there.data(),
                                      .rstd = rstd_there.data(),
                                      .dy = dy_there.data(),
                                      .dx = dx_to.data(),
                                      .dgamma = dgamma_there.data(),
                                      .dbeta = dbeta_there.data(),
                                      .workspace = workspace.data()});
  const double near = Tolerance(dtype);
  parity.Close("y", Doubles(y_there.values()), y, near);
  parity.Close("mean", Doubles(parity.Download(mean_there)), mean, 1e-5);
  parity.Close("rstd", Doubles(parity.Download(rstd_there)), rstd, 1e-5);
  parity.Close("dx", Doubles(dx_to.values()), dx, near);
  parity.Close("dgamma", Doubles(parity.Download(dgamma_there)), dgamma, 1e-5);
  parity.Close("dbeta", Doubles(parity.Download(dbeta_there)), dbeta, 1e-5);
  if (!in_place) return;
  LayerNorm(parity.stream(), {.shape = shape,
                              .dtype = dtype,
                              .x = x_there.data(),
                              .gamma = gamma_there.data(),
                              .beta = beta_there.data(),
                              .y = x_there.data(),
                              .mean = mean_there.data(),
                              .rstd = rstd_there.data()});
  parity.Close("y over x", Doubles(x_there.values()), y, near);
}

// Rows in the registers of a warp, whole and partial; rows that are not multiples of vectors; rows
// that are too long.
void NormsOf(Parity& parity, DType dtype) {
  const std::int64_t many = parity.large() ? 4099 : 9;
  for (const std::int64_t n : {8, 128, 768, 1024}) CheckNorm(parity, dtype, many, n, n == 768);
  for (const std::int64_t n : {1, 33, 1100}) CheckNorm(parity, dtype, 5, n, n == 33);
  CheckNorm(parity, dtype, 1, 264, false);
  CheckNorm(parity, dtype, parity.large() ? 20000 : 1030, 16, false);  // more than one row per warp
}
void Norms(Parity& parity) { NormsOf(parity, DType::kF32); }
void NormsOfBF16(Parity& parity) { NormsOf(parity, DType::kBF16); }

// stride: elements between rows.
void CheckCrossEntropy(Parity& parity, DType dtype, std::int64_t rows, std::int64_t n,
                       bool in_place, std::int64_t stride = 0) {
  if (stride == 0) stride = n;
  // Far from zero: nothing may overflow, and small values next to the largest still count.
  const auto x = Rounded(dtype, parity.Random(rows * stride, 90, 100));
  const float scale = 0.25f;
  const std::vector<float> weight = parity.Random(rows, 0.2, 2);
  std::vector<std::int32_t> label, right;
  std::vector<double> loss, dx;
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool ignored = r % 3 == 1;
    const float* const row = x.data() + r * stride;
    const auto best = std::int32_t(std::max_element(row, row + n) - row);
    label.push_back(ignored      ? kIgnoredLabel
                    : r == 0     ? std::int32_t(n - 1)
                    : r % 3 == 2 ? best
                                 : std::int32_t(parity.Below(n)));
    right.push_back(!ignored && row[label.back()] == row[best]);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(double(row[i]) - 100);
    loss.push_back(ignored ? 0 : 100 + std::log(sum) - row[label.back()]);
    for (std::int64_t i = 0; i < stride; ++i) {
      const double p = i < n ? std::exp(double(row[i]) - 100) / sum : 0;
      const double factor = double(scale) * double(weight[std::size_t(r)]);
      dx.push_back(ignored ? 0 : factor * (p - (i == label.back() ? 1 : 0)));
    }
  }
  Array x_there(parity, dtype, x), dx_there(parity, dtype, rows * stride);
  const auto label_there = parity.Upload(label);
  const auto weight_there = parity.Upload(weight);
  const auto loss_there = parity.Output<float>(rows), again = parity.Output<float>(rows);
  const auto right_there = parity.Output<std::int32_t>(rows);
  Array& to = in_place ? x_there : dx_there;
  CrossEntropyArgs args{.rows = rows,
                        .n = n,
                        .stride = stride,
                        .dtype = dtype,
                        .x = x_there.data(),
                        .label = label_there.data(),
                        .scale = scale,
                        .weight = weight_there.data(),
                        .loss = again.data()};
  CrossEntropy(parity.stream(), args);
  args.loss = loss_there.data();
  args.right = right_there.data();
  args.dx = to.data();
  CrossEntropy(parity.stream(), args);
  parity.Close("loss", Doubles(parity.Download(loss_there)), loss, 1e-5);
  parity.Equal("the loss alone", parity.Download(again), parity.Download(loss_there));
  parity.True("what is right", parity.Download(right_there) == right);
  parity.Close("dx", Doubles(to.values()), dx, Tolerance(dtype));
}

// Checks cross entropy on column slices, whose partial sums are exchanged here.
void CheckSlicedCrossEntropy(Parity& parity, DType dtype, std::int64_t rows,
                             const std::vector<std::int64_t>& slices) {
  std::int64_t n = 0;
  for (const std::int64_t slice : slices) n += slice;
  const auto x = Rounded(dtype, parity.Random(rows * n, 90, 100));
  const float scale = 0.25f;
  std::vector<std::int32_t> label, right;
  std::vector<double> loss, dx;
  for (std::int64_t r = 0; r < rows; ++r) {
    const bool ignored = r % 3 == 1;
    const float* const row = x.data() + r * n;
    const auto best = std::int32_t(std::max_element(row, row + n) - row);
    // The label of the first row is the first id of the second slice, just after the first slice.
    label.push_back(ignored      ? kIgnoredLabel
                    : r == 0     ? std::int32_t(slices[0])
                    : r % 3 == 2 ? best
                                 : std::int32_t(parity.Below(n)));
    right.push_back(!ignored && row[label.back()] == row[best]);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += std::exp(double(row[i]) - 100);
    loss.push_back(ignored ? 0 : 100 + std::log(sum) - row[label.back()]);
    for (std::int64_t i = 0; i < n; ++i) {
      const double p = std::exp(double(row[i]) - 100) / sum;
      dx.push_back(ignored ? 0 : double(scale) * (p - (i == label.back() ? 1 : 0)));
    }
  }
  struct Slice {
    Array x;
    DeviceArray<float> largest, sums, own, loss;
    DeviceArray<std::int32_t> right;
    CrossEntropyArgs args;
    CrossEntropySums to() const { return {largest.data(), sums.data(), own.data()}; }
  };
  const auto label_there = parity.Upload(label);
  std::vector<Slice> all;
  std::int64_t first = 0;
  for (const std::int64_t count : slices) {
    const std::int64_t stride = (count + 7) / 8 * 8;
    std::vector<float> mine(std::size_t(rows * stride), NAN);
    for (std::int64_t r = 0; r < rows; ++r)
      std::copy_n(x.begin() + r * n + first, count, mine.begin() + r * stride);
    Slice s{Array(parity, dtype, mine),
            parity.Output<float>(rows),
            parity.Output<float>(2 * rows),
            parity.Output<float>(rows),
            parity.Output<float>(rows),
            parity.Output<std::int32_t>(rows),
            {}};
    s.args = {.rows = rows,
              .n = count,
              .stride = stride,
              .dtype = dtype,
              .x = s.x.data(),
              .label = label_there.data(),
              .scale = scale,
              .loss = s.loss.data(),
              .right = s.right.data(),
              .dx = s.x.data(),
              .first = first};
    all.push_back(std::move(s));
    first += count;
  }
  // Replaces the value of each slice by the reduction with `both` over all slices.
  const auto exchange = [&](DeviceArray<float> Slice::*which, const auto& both) {
    std::vector<float> result = parity.Download(all[0].*which);
    for (std::size_t s = 1; s < all.size(); ++s) {
      const auto theirs = parity.Download(all[s].*which);
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = both(result[i], theirs[i]);
    }
    for (Slice& s : all) s.*which = parity.Upload(result);
  };
  for (const Slice& s : all) BeginSlicedCrossEntropy(parity.stream(), s.args, s.to());
  exchange(&Slice::largest, [](float a, float b) { return std::max(a, b); });
  for (const Slice& s : all) ShareSlicedCrossEntropy(parity.stream(), s.args, s.to());
  exchange(&Slice::sums, [](float a, float b) { return a + b; });
  for (const Slice& s : all) EndSlicedCrossEntropy(parity.stream(), s.args, s.to());
  std::vector<double> got(std::size_t(rows * n));
  for (Slice& s : all) {
    parity.Close("loss", Doubles(parity.Download(s.loss)), loss, 1e-5);
    parity.True("what is right", parity.Download(s.right) == right);
    const std::vector<float> mine = s.x.values();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < s.args.stride; ++i) {
        const double here = double(mine[std::size_t(r * s.args.stride + i)]);
        if (i < s.args.n) {
          got[std::size_t(r * n + s.args.first + i)] = here;
        } else {
          parity.True("0 between rows", here == 0);
        }
      }
    }
  }
  parity.Close("dx", got, dx, Tolerance(dtype));
}
void SlicedCrossEntropies(Parity& parity) {
  CheckSlicedCrossEntropy(parity, DType::kF32, 7, {3, 2});
  CheckSlicedCrossEntropy(parity, DType::kF32, 6, {15, 15, 15});
  CheckSlicedCrossEntropy(parity, DType::kF32, parity.large() ? 300 : 4, {651, 650});
}
void SlicedCrossEntropiesOfBF16(Parity& parity) {
  CheckSlicedCrossEntropy(parity, DType::kBF16, 5, {16, 15});
  CheckSlicedCrossEntropy(parity, DType::kBF16, parity.large() ? 300 : 4, {651, 650});
}

void CrossEntropiesOf(Parity& parity, DType dtype) {
  const std::int64_t words = parity.large() ? 30522 : 1301;
  CheckCrossEntropy(parity, dtype, 7, 2, false);
  CheckCrossEntropy(parity, dtype, 4, 45, true);
  CheckCrossEntropy(parity, dtype, 5, 45, true, 48);
  CheckCrossEntropy(parity, dtype, 2, 512, false);
  CheckCrossEntropy(parity, dtype, parity.large() ? 512 : 4, words, true);
}
void CrossEntropies(Parity& parity) { CrossEntropiesOf(parity, DType::kF32); }
void CrossEntropiesOfBF16(Parity& parity) { CrossEntropiesOf(parity, DType::kBF16); }

// An f32 row with one dominating value, and one with a NaN.
void CrossEntropyOfExtremes(Parity& parity) {
  const auto x = parity.Upload(std::vector<float>{-3e38f, 3e38f, 0, 1, NAN, 2});
  const auto label = parity.Upload(std::vector<std::int32_t>{1, 0});
  const auto loss = parity.Output<float>(2), dx = parity.Output<float>(6);
  CrossEntropy(parity.stream(), {.rows = 2,
                                 .n = 3,
                                 .x = x.data(),
                                 .label = label.data(),
                                 .loss = loss.data(),
                                 .dx = dx.data()});
  const auto losses = parity.Download(loss), gradient = parity.Download(dx);
  parity.True("no loss where all is on the label", losses[0] == 0);
  parity.True("and no gradient", gradient[0] == 0 && gradient[1] == 0 && gradient[2] == 0);
  parity.True("a NaN stays one", std::isnan(losses[1]) && std::isnan(gradient[3]));
}

// A label is not correct in a row with NaN, however large its logit, nor if its logit is infinite.
void CrossEntropyOfBadRowsIsNotCorrect(Parity& parity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto x = parity.Upload(std::vector<float>{3, NAN, 0, NAN, NAN, NAN, 0, kInf, 1,  //
                                                  3, 2, -kInf, NAN, 1, 2});
  const auto label = parity.Upload(std::vector<std::int32_t>{0, 1, 1, 0, 0});
  const std::vector<std::int32_t> correct = {0, 0, 0, 1, 0};
  const auto loss = parity.Output<float>(5), largest = parity.Output<float>(5);
  const auto sums = parity.Output<float>(10), own = parity.Output<float>(5);
  const auto right = parity.Output<std::int32_t>(5);
  const CrossEntropyArgs args{.rows = 5,
                              .n = 3,
                              .x = x.data(),
                              .label = label.data(),
                              .loss = loss.data(),
                              .right = right.data()};
  CrossEntropy(parity.stream(), args);
  parity.True("whole rows", parity.Download(right) == correct);
  const CrossEntropySums to{largest.data(), sums.data(), own.data()};  // of one slice
  BeginSlicedCrossEntropy(parity.stream(), args, to);
  ShareSlicedCrossEntropy(parity.stream(), args, to);
  EndSlicedCrossEntropy(parity.stream(), args, to);
  parity.True("rows in slices", parity.Download(right) == correct);
}

}  // namespace

std::vector<ParityCase> TransformerCases() {
  return {{"LayerNorm.RowsOfEverySize", Norms},
          {"LayerNorm.RowsOfBF16", NormsOfBF16, 80},
          {"CrossEntropy.RowsOfEverySize", CrossEntropies},
          {"CrossEntropy.RowsOfBF16", CrossEntropiesOfBF16, 80},
          {"CrossEntropy.SlicesOfRows", SlicedCrossEntropies},
          {"CrossEntropy.SlicesOfRowsOfBF16", SlicedCrossEntropiesOfBF16, 80},
          {"CrossEntropy.Extremes", CrossEntropyOfExtremes},
          {"CrossEntropy.BadRowsAreNotCorrect", CrossEntropyOfBadRowsIsNotCorrect}};
}

}  // namespace troop::cuda
