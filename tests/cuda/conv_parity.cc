#include "kernels/cuda/conv/conv2d.h"

#include <algorithm>
#include <cmath>

#include "kernels/conv/conv2d_reference.h"
#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

struct Case {
  ConvShape shape;
  std::int64_t batch;
};

// Small convolutions of every kind: with and without runs of eight, from one filter to more than a
// tile, strides that skip rows. weights: for weight gradients, whose sums are computed in parts.
std::vector<Case> CasesOf(Parity& parity, Precision precision, bool weights = false) {
  std::vector<Case> cases = {
      {{10, 10, 4, 16, 3, 1}, 9},            // MinAtar; three parts of positions
      {{9, 11, 3, 5, 4, 3}, 2},              // rows and columns outside all windows
      {{5, 5, 1, 1, 5, 1}, 1},               // one output
      {{12, 12, 8, 40, 3, 2}, 3},            // runs of eight, filters beyond a narrow tile
      {{9, 9, 16, 72, 3, 1}, 2},             // and beyond a wide one
      {{20, 20, 4, 32, 8, 4}, 5}};           // as the first layer of Nature DQN
  cases.push_back({{7, 7, 7, 8, 2, 3}, 2});  // stride larger than the kernel: phases without taps
  cases.push_back({{1, 1, 7, 4, 1, 1}, 3});
  cases.push_back({{9, 9, 40, 16, 3, 1}, 2});  // channels beyond a narrow tile, for dx
  if (precision == Precision::kBF16) {         // whole images in shared memory
    if (weights) cases.push_back({{64, 64, 8, 16, 32, 32}, 13});  // more images than fit at a time
    cases.push_back({{70, 70, 32, 8, 3, 3}, 1});                  // an image that does not fit
    cases.push_back({{20, 20, 32, 64, 4, 2}, 3});  // as the second layer of Nature DQN
    cases.push_back({{9, 9, 64, 64, 3, 1}, 3});    // and the third
  }
  if (parity.large()) {
    cases.push_back({{84, 84, 4, 32, 8, 4}, 37});
    // Several images per block.
    cases.push_back({{20, 20, 32, 64, 4, 2}, precision == Precision::kBF16 ? 140 : 37});
    cases.push_back({{9, 9, 64, 64, 3, 1}, precision == Precision::kBF16 ? 140 : 37});
  }
  return cases;
}

// Operands are exact in their precision, so only sums are rounded, and for bf16 the output.
double ToleranceOf(Precision precision) {
  const double tolerance[] = {1e-5, 1e-5, 1e-2};
  return tolerance[std::size_t(precision)];
}

// Elements in a precision, and the same values in f64: the test compares only arithmetic.
struct Operand {
  DeviceArray<float> f32;
  DeviceArray<BF16> bf16;
  std::vector<double> exact;
  const void* data() const {
    if (bf16.data() != nullptr) return bf16.data();
    return f32.data();
  }
};
Operand MakeOperand(Parity& parity, Precision precision, std::int64_t n) {
  std::vector<float> x = parity.Random(n);
  Operand operand;
  if (precision == Precision::kBF16) {
    for (float& f : x) f = RoundedToBF16(f);
    operand.bf16 = parity.Upload(ToBF16s(x));
  } else {
    // Values that are exact in TF32: products are exact, regardless of cancellation.
    for (float& f : x) f = precision == Precision::kTF32 ? RoundedToTF32(f) : f;
    operand.f32 = parity.Upload(x);
  }
  operand.exact = Doubles(x);
  return operand;
}

// An output of ElementType(precision), filled with NaN.
struct Result {
  DeviceArray<float> f32;
  DeviceArray<BF16> bf16;
  Result(Parity& parity, Precision precision, std::int64_t n) {
    if (precision == Precision::kBF16) {
      bf16 = parity.Output<BF16>(n);
    } else {
      f32 = parity.Output<float>(n);
    }
  }
  void* data() const {
    if (bf16.data() != nullptr) return bf16.data();
    return f32.data();
  }
  std::vector<float> Get(Parity& parity) const {
    return bf16.data() != nullptr ? FromBF16s(parity.Download(bf16)) : parity.Download(f32);
  }
};

// The input: floats, or bytes with a scale.
struct Input {
  Operand floats;
  DeviceArray<std::uint8_t> bytes;
  std::vector<double> exact;
  ConvInput input;
};
Input MakeInput(Parity& parity, Precision precision, bool bytes, std::int64_t n) {
  Input in;
  if (bytes) {
    const float scale = 1.0f / 255;
    std::vector<std::uint8_t> x;
    for (std::int64_t i = 0; i < n; ++i) {
      x.push_back(std::uint8_t(parity.Below(256)));
      in.exact.push_back(double(scale) * x.back());
    }
    in.bytes = parity.Upload(x);
    in.input = {in.bytes.data(), DType::kU8, scale};
  } else {
    in.floats = MakeOperand(parity, precision, n);
    in.exact = in.floats.exact;
    in.input = {in.floats.data(), ElementType(precision), 1};
  }
  return in;
}

template <Precision kPrecision>
void Forward(Parity& parity) {
  for (const auto& [s, batch] : CasesOf(parity, kPrecision)) {
    for (const bool bytes : {false, true}) {
      const Input x = MakeInput(parity, kPrecision, bytes, batch * s.height * s.width * s.channels);
      const Operand w =
          MakeOperand(parity, kPrecision, s.filters * s.kernel * s.kernel * s.channels);
      const std::vector<float> bias = parity.Random(s.filters);
      const auto on_bias = parity.Upload(bias);
      const auto activation = bytes           ? Activation::kRelu
                              : s.kernel == 3 ? Activation::kTanh
                                              : Activation::kNone;
      const std::int64_t out = batch * s.out_height() * s.out_width() * s.filters;
      const Result y(parity, kPrecision, out);
      ConvForward(parity.stream(), {.precision = kPrecision,
                                    .shape = s,
                                    .activation = activation,
                                    .batch = batch,
                                    .input = x.input,
                                    .weight = w.data(),
                                    .bias = on_bias.data(),
                                    .y = y.data()});
      std::vector<double> want(std::size_t(out), 0);
      ConvForwardReference(s, activation, batch, w.exact.data(), Doubles(bias).data(),
                           x.exact.data(), want.data());
      parity.Close("y", y.Get(parity), want, ToleranceOf(kPrecision));
    }
  }
}

template <Precision kPrecision>
void BackwardData(Parity& parity) {
  for (const auto& [s, batch] : CasesOf(parity, kPrecision)) {
    const std::int64_t in = batch * s.height * s.width * s.channels;
    const Operand w = MakeOperand(parity, kPrecision, s.filters * s.kernel * s.kernel * s.channels);
    const Operand dz =
        MakeOperand(parity, kPrecision, batch * s.out_height() * s.out_width() * s.filters);
    const Operand y = MakeOperand(parity, kPrecision, in);
    std::vector<double> want(std::size_t(in), 0);
    ConvBackwardDataReference(s, batch, w.exact.data(), dz.exact.data(), want.data());
    for (const bool masked : {false, true}) {
      const Result dx(parity, kPrecision, in);
      ConvBackwardData(parity.stream(), {.precision = kPrecision,
                                         .shape = s,
                                         .batch = batch,
                                         .weight = w.data(),
                                         .dz = dz.data(),
                                         .relu_of = masked ? y.data() : nullptr,
                                         .dx = dx.data()});
      for (std::size_t i = 0; masked && i < want.size(); ++i)
        if (!(y.exact[i] > 0)) want[i] = 0;
      parity.Close("dx", dx.Get(parity), want, ToleranceOf(kPrecision));
    }
  }
}

template <Precision kPrecision>
void BackwardWeight(Parity& parity) {
  for (const auto& [s, batch] : CasesOf(parity, kPrecision, true)) {
    for (const bool bytes : {false, true}) {
      const Input x = MakeInput(parity, kPrecision, bytes, batch * s.height * s.width * s.channels);
      const Operand dz =
          MakeOperand(parity, kPrecision, batch * s.out_height() * s.out_width() * s.filters);
      const std::int64_t weights = s.filters * s.kernel * s.kernel * s.channels;
      std::vector<double> dw(std::size_t(weights), 0), db(std::size_t(s.filters), 0);
      ConvBackwardWeightReference(s, batch, x.exact.data(), dz.exact.data(), dw.data(), db.data());
      const auto got_dw = parity.Output<float>(weights), got_db = parity.Output<float>(s.filters);
      const auto scratch = parity.Output<std::byte>(ConvBackwardWeightScratch(s, batch));
      ConvBackwardWeight(parity.stream(), {.precision = kPrecision,
                                           .shape = s,
                                           .batch = batch,
                                           .input = x.input,
                                           .dz = dz.data(),
                                           .dweight = got_dw.data(),
                                           .dbias = got_db.data(),
                                           .scratch = scratch.data()});
      parity.Close("dweight", parity.Download(got_dw), dw, ToleranceOf(kPrecision));
      parity.Close("dbias", parity.Download(got_db), db, 1e-5);
      parity.Download(scratch);  // checks the guard after its end
    }
  }
}

void ABatchBeyondItsLimitIsRefused(Parity& parity) {
  std::string error;
  const auto device = Device::Open(0, &error);
  if (device == nullptr || !device->info().emulated) return;  // a failed device stays unusable
  Stream stream(*device);
  ConvForward(stream, {.precision = Precision::kF32,
                       .shape = {84, 84, 4, 32, 8, 4},
                       .activation = Activation::kRelu,
                       .batch = 1 << 20,
                       .input = {},
                       .weight = nullptr,
                       .bias = nullptr,
                       .y = nullptr});
  parity.True("the message says what to do",
              device->error() ==
                  "a convolution over 1048576 images of 84 x 84 has more than 2^30 "
                  "positions; make the batch smaller");
}

}  // namespace

std::vector<ParityCase> ConvCases() {
  return {{"Conv.ForwardF32", Forward<Precision::kF32>},
          {"Conv.ForwardTF32", Forward<Precision::kTF32>},
          {"Conv.ForwardBF16", Forward<Precision::kBF16>, 80},
          {"Conv.BackwardDataF32", BackwardData<Precision::kF32>},
          {"Conv.BackwardDataTF32", BackwardData<Precision::kTF32>},
          {"Conv.BackwardDataBF16", BackwardData<Precision::kBF16>, 80},
          {"Conv.BackwardWeightF32", BackwardWeight<Precision::kF32>},
          {"Conv.BackwardWeightTF32", BackwardWeight<Precision::kTF32>},
          {"Conv.BackwardWeightBF16", BackwardWeight<Precision::kBF16>, 80},
          {"Conv.ABatchBeyondItsLimitIsRefused", ABatchBeyondItsLimitIsRefused}};
}

}  // namespace troop::cuda
