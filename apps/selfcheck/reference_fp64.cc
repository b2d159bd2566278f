// fp64 reference: forward and backward of the network, optimizers, guards and gradient codecs.
#include "apps/selfcheck/reference_fp64.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/config/enum_names.h"

namespace troop {
namespace {

// A linear layer within the parameters.
struct Layer {
  std::int64_t in, out;
  std::size_t weight, bias;  // offsets
  bool tanh;
};

// Parameters come in pairs of weight [out, in] and bias [out]; all layers but the last use tanh.
std::vector<Layer> LayersOf(const ToyModel& problem) {
  const auto params = problem.params();
  std::vector<Layer> layers;
  for (std::size_t i = 0; i + 1 < params.size(); i += 2) {
    layers.push_back({params[i].shape[1], params[i].shape[0], std::size_t(params[i].offset),
                      std::size_t(params[i + 1].offset), i + 2 < params.size()});
  }
  return layers;
}

// Adds one sample's part to the gradient and returns its part of the loss: forward, loss, then
// backward through the layers.
double AddSample(const std::vector<Layer>& layers, const Doubles& value,
                 const ToyModel::Sample& sample, Doubles* gradient) {
  // Forward: y holds the input and the output of each layer, which the backward pass needs.
  std::vector<Doubles> y{{sample.in.begin(), sample.in.end()}};
  for (const Layer& layer : layers) {
    Doubles next;
    for (std::int64_t o = 0; o < layer.out; ++o) {
      double sum = value[layer.bias + std::size_t(o)];
      for (std::int64_t i = 0; i < layer.in; ++i) {
        sum += value[layer.weight + std::size_t(o * layer.in + i)] * y.back()[std::size_t(i)];
      }
      next.push_back(layer.tanh ? std::tanh(sum) : sum);
    }
    y.push_back(std::move(next));
  }
  // Loss: half the squared error, averaged over the batch.
  Doubles dy = y.back();
  double loss = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const double off = dy[i] - double(sample.target[i]);
    loss += off * off / 2 / ToyModel::kBatch;
    dy[i] = off / ToyModel::kBatch;
  }
  // Backward: tanh' = 1 - tanh^2.
  for (std::size_t l = layers.size(); l-- > 0;) {
    const Layer& layer = layers[l];
    Doubles dx(static_cast<std::size_t>(layer.in));
    for (std::int64_t o = 0; o < layer.out; ++o) {
      const double out = y[l + 1][std::size_t(o)];
      const double dz = layer.tanh ? dy[std::size_t(o)] * (1 - out * out) : dy[std::size_t(o)];
      (*gradient)[layer.bias + std::size_t(o)] += dz;
      for (std::int64_t i = 0; i < layer.in; ++i) {
        const std::size_t w = layer.weight + std::size_t(o * layer.in + i);
        (*gradient)[w] += dz * y[l][std::size_t(i)];
        dx[std::size_t(i)] += dz * value[w];
      }
    }
    dy = std::move(dx);
  }
  return loss;
}

// The value of an IEEE-like float with the given field widths; subnormals included.
double BitsOf(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const auto fraction = double(bits & ((1u << fraction_bits) - 1));
  const int exponent = int(bits >> fraction_bits & ((1u << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double one = std::ldexp(1, fraction_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, 1 - bias - fraction_bits)
                               : std::ldexp(one + fraction, exponent - bias - fraction_bits);
  return (bits >> (exponent_bits + fraction_bits) & 1u) != 0 ? -magnitude : magnitude;
}

// memcpy, since a received payload may have any alignment.
template <class T>
T At(const Buffer& payload, std::size_t i) {
  T value;
  std::memcpy(&value, payload.data() + i * sizeof value, sizeof value);
  return value;
}

// Reads bits from the lowest upward. A Golomb-Rice gap is a run of ones, a zero and `rice` bits.
class BitReader {
 public:
  BitReader(const Buffer& payload, std::size_t from) : bytes_(payload.bytes().subspan(from)) {}
  unsigned Bit() {
    if (at_ / 8 >= bytes_.size()) return failed_ = true, 0u;
    const unsigned bit = unsigned(bytes_[at_ / 8]) >> (at_ % 8) & 1u;
    ++at_;
    return bit;
  }
  std::uint64_t Bits(int count) {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= std::uint64_t{Bit()} << i;
    return value;
  }
  std::uint64_t Gap(int rice) {
    std::uint64_t ones = 0;
    while (Bit() == 1) ++ones;
    return (ones << rice) | Bits(rice);
  }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool failed_ = false;
};

// The indices of a sparse payload and their sign bits.
struct Sparse {
  std::vector<std::size_t> index;
  std::vector<bool> negative;
};
// Top-k payloads begin with the f32 values, followed by the Golomb-Rice gaps; Strom payloads have a
// sign bit after each gap instead.
Result<Sparse> ReadSparse(const CodedGradient& coded, std::size_t elements) {
  const bool values = coded.codec == GradientCodec::kTopK;
  const std::size_t begin = values ? std::size_t(coded.entries) * sizeof(float) : 0;
  if (begin > coded.payload.size()) return DataLoss("{} entries are missing", coded.entries);
  BitReader bits(coded.payload, begin);
  Sparse sparse;
  std::uint64_t next = 0;
  for (std::int64_t i = 0; i < coded.entries; ++i) {
    // A gap counts the elements skipped since the previous entry, so indices always increase.
    next += bits.Gap(coded.rice);
    sparse.negative.push_back(!values && bits.Bit() == 1);
    if (bits.failed() || next >= elements) return DataLoss("entry {} is beyond the end", i);
    sparse.index.push_back(std::size_t(next++));
  }
  return sparse;
}

// Checks the choice of elements: those sent have at least the limit, the others at most.
Status CheckChosen(const std::vector<bool>& sent, const Doubles& residual, double limit,
                   double slack) {
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const double size = std::abs(residual[i]);
    if (sent[i] ? size < limit - slack : size > limit + slack) {
      return DataLoss("element {} of magnitude {} is{} sent, the limit is {}", i, size,
                      sent[i] ? "" : " not", limit);
    }
  }
  return Status::Ok();
}

// Top-k and Strom payloads: checks indices, values or signs, and the choice of elements.
Result<Doubles> SentSparse(const CodecOptions& options, const CodedGradient& coded,
                           const Doubles& residual, double slack) {
  TROOP_ASSIGN_OR_RETURN(const Sparse sparse, ReadSparse(coded, residual.size()));
  Doubles out(residual.size());
  std::vector<bool> sent(residual.size());
  for (std::size_t i = 0; i < sparse.index.size(); ++i) {
    const std::size_t at = sparse.index[i];
    sent[at] = true;
    if (options.codec == GradientCodec::kStrom) {
      out[at] = sparse.negative[i] ? -double(options.threshold) : double(options.threshold);
      if (out[at] * residual[at] < 0) return DataLoss("element {} has the wrong sign", at);
    } else {
      out[at] = residual[at];
      const double decoded = At<float>(coded.payload, i);
      if (std::abs(decoded - residual[at]) > slack) {
        return DataLoss("element {} is sent as {}, must be {}", at, decoded, residual[at]);
      }
    }
  }
  // The limit of the choice: the threshold for Strom, the k-th largest magnitude for top-k.
  double limit = double(options.threshold);
  if (options.codec == GradientCodec::kTopK) {
    Doubles size = residual;
    for (double& s : size) s = std::abs(s);
    std::ranges::sort(size, std::greater<>());
    const auto most =
        std::max<std::size_t>(std::size_t(std::ceil(options.keep * double(size.size()))), 1);
    limit = size[std::min(most, size.size()) - 1];
    if (sparse.index.size() > most)
      return DataLoss("{} entries, must be at most {}", sparse.index.size(), most);
  }
  TROOP_RETURN_IF_ERROR(CheckChosen(sent, residual, limit, slack));
  return out;
}

// fp16 and bf16 payloads: each value must be within half a unit in the last place.
Result<Doubles> SentHalves(const CodedGradient& coded, const Doubles& residual, double slack) {
  const bool f16 = coded.codec == GradientCodec::kFp16;
  const int fraction = f16 ? 10 : 7, exponent = f16 ? 5 : 8;
  if (coded.payload.size() != 2 * residual.size())
    return DataLoss("{} bytes", coded.payload.size());
  Doubles out;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    out.push_back(BitsOf(At<std::uint16_t>(coded.payload, i), exponent, fraction));
    // Half of the distance between adjacent values of this magnitude.
    const int top = std::max(std::ilogb(std::max(std::abs(residual[i]), 1e-300)), f16 ? -14 : -126);
    const double half = std::ldexp(0.5, top - fraction);
    if (std::abs(out[i] - residual[i]) > half + slack) {
      return DataLoss("element {} is sent as {}, must be {}", i, out[i], residual[i]);
    }
  }
  return out;
}

// The rectification of RAdam: the factor of a step; 0 if it does not divide. Lengths of averages
// follow from the mean age of their terms, (length + 1) / 2, which is summed term by term.
double RAdamFactor(double beta2, std::int64_t steps) {
  double weights = 0, ages = 0;
  for (std::int64_t age = steps; age > 0; --age) {
    const double weight = std::pow(beta2, double(age - 1));
    weights += weight, ages += double(age) * weight;
  }
  const double length = 2 * ages / weights - 1, limit = 2 / (1 - beta2) - 1;
  if (length <= 5) return 0;
  const auto spread = [](double l) { return l / ((l - 2) * (l - 4)); };
  return std::sqrt(spread(limit) / spread(length));
}

}  // namespace

// Uses the same samples as ToyModel::Gradient for this batch.
Doubles ReferenceGradient(const ToyModel& problem, const Doubles& value, std::uint64_t batch,
                          double* loss) {
  Doubles gradient(value.size());
  double sum = 0;
  const std::vector<Layer> layers = LayersOf(problem);
  for (int b = 0; b < ToyModel::kBatch; ++b) {
    const auto sample = problem.Draw(batch * ToyModel::kBatch + std::uint64_t(b));
    sum += AddSample(layers, value, sample, &gradient);
  }
  if (loss != nullptr) *loss = sum;
  return gradient;
}

// Like the product, without decay for biases.
ReferenceOptimizer::ReferenceOptimizer(const Config& config, const ToyModel& problem)
    : keys_(config.optimizer) {
  m_.resize(std::size_t(problem.parameters()));
  v_ = m_;
  decay_.assign(m_.size(), keys_.weight_decay);
  for (const ParamSpec& spec : problem.params()) {
    if (!spec.name.ends_with("bias")) continue;
    for (std::int64_t i = 0; i < spec.shape.elements(); ++i) {
      decay_[std::size_t(spec.offset + i)] = 0;
    }
  }
}

// Weights are those of an exponential mean over `window` values; an outlier counts as the limit.
bool ReferenceGuard::Judge(double number) {
  if (deviations_ == 0) return false;
  double mean = 0, variance = 0;
  for (const Seen& seen : seen_) mean += seen.weight * seen.size;
  for (const Seen& seen : seen_) variance += seen.weight * std::pow(seen.size - mean, 2);
  const double limit = mean + deviations_ * std::sqrt(variance);
  double size = std::abs(number);
  // The first values are never outliers: their mean is not reliable yet.
  const bool outlier = std::int64_t(seen_.size()) >= options_.first && size > limit;
  if (outlier) size = limit;
  // The weights are those of a running mean until `window` values have been seen.
  const double share =
      1 / double(std::min<std::int64_t>(std::int64_t(seen_.size()) + 1, options_.window));
  for (Seen& seen : seen_) seen.weight *= 1 - share;
  seen_.push_back({share, size});
  return outlier;
}

// One element at a time: SGD with momentum and coupled weight decay, Adagrad, (centered)
// RMSProp, else Adam or RAdam with decoupled weight decay and bias correction.
void ReferenceOptimizer::Step(std::span<const std::size_t> at, const Doubles& gradient,
                              double scale, double rate, std::int64_t steps, Doubles* value) {
  const double factor = keys_.type == OptimizerType::kRAdam ? RAdamFactor(keys_.beta2, steps) : 1;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double g = gradient[i] * scale;
    double& m = m_[at[i]];
    double& v = v_[at[i]];
    double& x = (*value)[at[i]];
    if (keys_.type == OptimizerType::kSgd) {
      m = keys_.momentum * m + g + decay_[at[i]] * x;
      x -= rate * m;
    } else if (keys_.type == OptimizerType::kAdaGrad) {
      v += g * g;
      x -= rate * g / (std::sqrt(v) + keys_.epsilon);
    } else if (keys_.type == OptimizerType::kRmsProp) {
      m = keys_.centered ? keys_.decay * m + (1 - keys_.decay) * g : 0;
      v = keys_.decay * v + (1 - keys_.decay) * g * g;
      x -= rate * (decay_[at[i]] * x + g / std::sqrt(v - m * m + keys_.epsilon));
    } else {
      m = keys_.beta1 * m + (1 - keys_.beta1) * g;
      v = keys_.beta2 * v + (1 - keys_.beta2) * g * g;
      const double mean = m / (1 - std::pow(keys_.beta1, double(steps)));
      const double root = std::sqrt(v / (1 - std::pow(keys_.beta2, double(steps))));
      double move = mean / (root + keys_.epsilon);
      if (keys_.type == OptimizerType::kRAdam) move = factor == 0 ? mean : factor * move;
      x -= rate * (decay_[at[i]] * x + move);
    }
  }
}

// Step 1: add the gradient to the residual; step 2: check and decode the payload by codec; step 3:
// subtract what it sends.
Result<Doubles> ReferenceSent(const CodecOptions& options, const CodedGradient& coded,
                              const Doubles& gradient, Doubles* residual) {
  if (coded.codec != options.codec || coded.elements != std::int64_t(gradient.size())) {
    return DataLoss("unexpected payload \"{}\" of {} elements", EnumName(coded.codec),
                    coded.elements);
  }
  Doubles total = *residual;
  double largest = 0;
  for (std::size_t i = 0; i < total.size(); ++i) {
    total[i] += gradient[i];
    largest = std::max(largest, std::abs(total[i]));
  }
  const double slack = 1e-5 * largest + 1e-12;  // f32 rounding of the product's code
  Result<Doubles> sent = total;
  switch (options.codec) {
    case GradientCodec::kNone:
      for (std::size_t i = 0; i < total.size(); ++i) {
        const double decoded = At<float>(coded.payload, i);
        if (std::abs(decoded - total[i]) > slack) {
          return DataLoss("element {} is sent as {}, must be {}", i, decoded, total[i]);
        }
      }
      break;
    case GradientCodec::kFp16:
    case GradientCodec::kBf16:
      sent = SentHalves(coded, total, slack);
      break;
    case GradientCodec::kTopK:
    case GradientCodec::kStrom:
      sent = SentSparse(options, coded, total, slack);
      break;
  }
  if (!sent.ok()) return sent.status();
  for (std::size_t i = 0; i < total.size(); ++i) (*residual)[i] = total[i] - (*sent)[i];
  return sent;
}

}  // namespace troop
