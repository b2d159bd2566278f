#include "kernels/cuda/ops/matmul.h"

#include <cmath>

#include "kernels/cuda/ops/bias.h"
#include "kernels/cuda/ops/linear.h"
#include "kernels/linear/linear_reference.h"
#include "tests/cuda/parity_cases.h"

namespace troop::cuda {
namespace {

// Inputs as on the device, and the same values in f64.
struct Operand {
  DeviceArray<float> f32;
  DeviceArray<BF16> bf16;
  std::vector<double> exact;
  const void* data() const {
    if (bf16.data() != nullptr) return bf16.data();
    return f32.data();
  }
};

// TF32 inputs are truncated to 10 bits by the hardware; the tolerance allows for that.
Operand MakeOperand(Parity& parity, Precision precision, std::int64_t n) {
  std::vector<float> x = parity.Random(n);
  Operand operand;
  if (precision == Precision::kBF16) {
    for (float& f : x) f = RoundedToBF16(f);
    operand.bf16 = parity.Upload(ToBF16s(x));
  } else {
    operand.f32 = parity.Upload(x);
  }
  operand.exact = Doubles(x);
  return operand;
}

constexpr double kTolerance[] = {1e-5, 1e-3, 1e-2};
double ToleranceOf(Precision precision) { return kTolerance[std::size_t(precision)]; }

double Gelu(double z) {
  return 0.5 * z *
         (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
}

struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

void CheckProduct(Parity& parity, Precision precision, const Product& p, Epilogue epilogue,
                  float beta, DType c_dtype) {
  // Rows are padded, by a multiple of 8 as tensor cores require.
  const std::int64_t lda = (p.transpose_a ? p.m : p.k) + 8, ldb = (p.transpose_b ? p.k : p.n) + 16,
                     ldc = p.n + 8;
  const Operand a = MakeOperand(parity, precision, (p.transpose_a ? p.k : p.m) * lda);
  const Operand b = MakeOperand(parity, precision, (p.transpose_b ? p.n : p.k) * ldb);
  std::vector<float> bias = parity.Random(p.n);
  std::vector<float> c = parity.Random(p.m * ldc);
  for (float& f : c) f = RoundedToBF16(f);
  if (c_dtype == DType::kBF16)
    for (float& f : bias) f = RoundedToBF16(f);
  const auto on_bias = parity.Upload(bias);
  const auto bias16 = parity.Upload(ToBF16s(bias));
  const auto c32 = parity.Upload(c);
  const auto c16 = parity.Upload(ToBF16s(c));
  MatMulPlans plans(parity.device());
  MatMulArgs args;
  args.shape = {p.m, p.n, p.k, p.transpose_a, p.transpose_b, lda, ldb, ldc};
  args.precision = precision;
  args.a = a.data();
  args.b = b.data();
  args.c = c_dtype == DType::kBF16 ? static_cast<void*>(c16.data()) : c32.data();
  args.c_dtype = c_dtype;
  args.beta = beta;
  args.epilogue = epilogue;
  if (epilogue != Epilogue::kNone)
    args.bias = c_dtype == DType::kBF16 ? static_cast<const void*>(bias16.data()) : on_bias.data();
  MatMul(parity.stream(), plans, args);
  const std::vector<float> got =
      c_dtype == DType::kBF16 ? FromBF16s(parity.Download(c16)) : parity.Download(c32);
  std::vector<double> want = Doubles(c);  // the padding must not change
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = beta * want[std::size_t(i * ldc + j)];
      for (std::int64_t l = 0; l < p.k; ++l) {
        sum += a.exact[std::size_t(p.transpose_a ? l * lda + i : i * lda + l)] *
               b.exact[std::size_t(p.transpose_b ? j * ldb + l : l * ldb + j)];
      }
      if (epilogue != Epilogue::kNone) sum += bias[std::size_t(j)];
      if (epilogue == Epilogue::kBiasRelu) sum = std::max(sum, 0.0);
      if (epilogue == Epilogue::kBiasGeluTanh) sum = Gelu(sum);
      want[std::size_t(i * ldc + j)] = sum;
    }
  }
  parity.Close("c", got, want, ToleranceOf(precision));
}

template <Precision kPrecision>
void ProductsWithEpilogues(Parity& parity) {
  const std::int64_t scale = parity.large() ? 8 : 1;
  const Product shapes[] = {{33 * scale, 24 * scale, 40 * scale, false, true},
                            {16 * scale, 32 * scale, 8 * scale, false, false},
                            {24 * scale, 8 * scale, 57 * scale, true, false},
                            {7, 1, 24, false, true}};
  for (const Product& p : shapes) {
    CheckProduct(parity, kPrecision, p, Epilogue::kNone, 0, DType::kF32);
    CheckProduct(parity, kPrecision, p, Epilogue::kNone, 1, DType::kF32);
    for (const auto epilogue : {Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasGeluTanh})
      CheckProduct(parity, kPrecision, p, epilogue, 0, DType::kF32);
    if (kPrecision != Precision::kBF16) continue;
    CheckProduct(parity, kPrecision, p, Epilogue::kNone, 1, DType::kBF16);
    CheckProduct(parity, kPrecision, p, Epilogue::kBiasRelu, 0, DType::kBF16);
  }
}

void BiasAsAPassOfItsOwn(Parity& parity) {
  const std::int64_t m = parity.large() ? 1001 : 37, n = 41, ldc = 48;
  for (const auto epilogue : {Epilogue::kBias, Epilogue::kBiasRelu, Epilogue::kBiasGeluTanh}) {
    const std::vector<float> c = parity.Random(m * ldc), bias = parity.Random(n);
    const auto on_c = parity.Upload(c), on_bias = parity.Upload(bias);
    BiasAndActivate(parity.stream(), {.epilogue = epilogue,
                                      .m = m,
                                      .n = n,
                                      .ldc = ldc,
                                      .bias = on_bias.data(),
                                      .c = on_c.data()});
    std::vector<double> want = Doubles(c);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double& z = want[std::size_t(i * ldc + j)];
        z += bias[std::size_t(j)];
        if (epilogue == Epilogue::kBiasRelu) z = std::max(z, 0.0);
        if (epilogue == Epilogue::kBiasGeluTanh) z = Gelu(z);
      }
    }
    parity.Close("c", parity.Download(on_c), want, 1e-6);
  }
}

// All implementations: by eight columns or one by one, in parts or not, dense or not, overwriting
// or adding.
void SumsOfRows(Parity& parity) {
  struct Case {
    std::int64_t rows, n, stride;
  };
  for (const auto& [rows, n, stride] : {Case{1, 1, 1},
                                        {77, 33, 33},
                                        {500, 70, 70},
                                        {513, 64, 72},
                                        {1100, 136, 136},
                                        {1025, 30, 40}}) {
    std::vector<float> x = parity.Random(rows * stride);
    for (float& f : x) f = RoundedToBF16(f);
    const auto f32 = parity.Upload(x);
    const auto bf16 = parity.Upload(ToBF16s(x));
    const std::vector<float> before = parity.Random(n);
    for (const bool add : {false, true}) {
      std::vector<double> want(std::size_t(n), 0);
      if (add) want = Doubles(before);
      for (std::int64_t i = 0; i < rows * stride; ++i)
        if (i % stride < n) want[std::size_t(i % stride)] += x[std::size_t(i)];
      for (const bool parts : {false, true}) {
        const auto workspace = parity.Output<float>(SumRowsWorkspace(rows, n));
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          const auto sum = parity.Upload(before);
          const void* from =
              dtype == DType::kF32 ? static_cast<const void*>(f32.data()) : bf16.data();
          SumRows(parity.stream(), {.rows = rows,
                                    .n = n,
                                    .stride = stride == n ? 0 : stride,
                                    .x = from,
                                    .dtype = dtype,
                                    .sum = sum.data(),
                                    .add = add,
                                    .workspace = parts ? workspace.data() : nullptr});
          parity.Close("sums", parity.Download(sum), want, 1e-5);
        }
      }
    }
  }
}

template <Precision kPrecision>
void LinearLayers(Parity& parity) {
  const LinearShape shape{parity.large() ? 3136 : 48, parity.large() ? 512 : 24};
  const std::int64_t batch = parity.large() ? 512 : 19;
  const double tolerance = ToleranceOf(kPrecision);
  const Operand x = MakeOperand(parity, kPrecision, batch * shape.in);
  const Operand w = MakeOperand(parity, kPrecision, shape.out * shape.in);
  const Operand dz = MakeOperand(parity, kPrecision, batch * shape.out);
  const std::vector<float> bias = parity.Random(shape.out);
  const auto on_bias = parity.Upload(bias);
  const std::vector<double> b = Doubles(bias);
  MatMulPlans plans(parity.device());
  for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
    const auto y = parity.Output<float>(batch * shape.out);
    LinearForward(parity.stream(), plans,
                  {.precision = kPrecision,
                   .shape = shape,
                   .activation = activation,
                   .batch = batch,
                   .x = x.data(),
                   .weight = w.data(),
                   .bias = on_bias.data(),
                   .y = y.data(),
                   .y_dtype = DType::kF32});
    std::vector<double> want(std::size_t(batch * shape.out), 0);
    LinearForwardReference(shape, activation, batch, w.exact.data(), b.data(), x.exact.data(),
                           want.data());
    parity.Close("y", parity.Download(y), want, tolerance);
  }
  std::vector<double> want(std::size_t(batch * shape.in), 0);
  LinearBackwardDataReference(shape, batch, w.exact.data(), dz.exact.data(), want.data());
  for (const bool masked : {false, true}) {
    const void* relu_of = masked ? x.data() : nullptr;
    std::vector<float> dx;
    if (kPrecision == Precision::kBF16) {
      const auto out = parity.Output<BF16>(batch * shape.in);
      LinearBackwardData(parity.stream(), plans,
                         {.precision = kPrecision,
                          .shape = shape,
                          .batch = batch,
                          .weight = w.data(),
                          .dz = dz.data(),
                          .relu_of = relu_of,
                          .dx = out.data()});
      dx = FromBF16s(parity.Download(out));
    } else {
      const auto out = parity.Output<float>(batch * shape.in);
      LinearBackwardData(parity.stream(), plans,
                         {.precision = kPrecision,
                          .shape = shape,
                          .batch = batch,
                          .weight = w.data(),
                          .dz = dz.data(),
                          .relu_of = relu_of,
                          .dx = out.data()});
      dx = parity.Download(out);
    }
    if (masked) {
      for (std::size_t i = 0; i < want.size(); ++i)
        if (x.exact[i] <= 0) want[i] = 0;
    }
    parity.Close("dx", dx, want, tolerance);
  }
  std::vector<double> dw(std::size_t(shape.out * shape.in), 0), db(std::size_t(shape.out), 0);
  LinearBackwardWeightReference(shape, batch, x.exact.data(), dz.exact.data(), dw.data(),
                                db.data());
  const auto got_dw = parity.Output<float>(shape.out * shape.in),
             got_db = parity.Output<float>(shape.out);
  LinearBackwardWeight(parity.stream(), plans,
                       {.precision = kPrecision,
                        .shape = shape,
                        .batch = batch,
                        .x = x.data(),
                        .dz = dz.data(),
                        .dweight = got_dw.data(),
                        .dbias = got_db.data()});
  parity.Close("dweight", parity.Download(got_dw), dw, tolerance);
  parity.Close("dbias", parity.Download(got_db), db, 1e-5);
}

}  // namespace

std::vector<ParityCase> MatMulCases() {
  return {{"MatMul.ProductsWithEpiloguesF32", ProductsWithEpilogues<Precision::kF32>},
          {"MatMul.ProductsWithEpiloguesTF32", ProductsWithEpilogues<Precision::kTF32>, 80},
          {"MatMul.ProductsWithEpiloguesBF16", ProductsWithEpilogues<Precision::kBF16>, 80},
          {"MatMul.BiasAsAPassOfItsOwn", BiasAsAPassOfItsOwn},
          {"MatMul.SumsOfRows", SumsOfRows},
          {"Linear.LayersF32", LinearLayers<Precision::kF32>},
          {"Linear.LayersTF32", LinearLayers<Precision::kTF32>, 80},
          {"Linear.LayersBF16", LinearLayers<Precision::kBF16>, 80}};
}

}  // namespace troop::cuda
