// The arithmetic of exported C files, function by function; that of the layers is stated in
// nn/export/policy_description.h.
#include "nn/export/c_policy_text.h"

namespace troop {
namespace {

// A test of the bits, which options such as -ffast-math do not remove.
constexpr std::string_view kFiniteText = R"(
/* 1 if all values are finite. */
static int @_finite(const float* x, int32_t n) {
  int32_t i;
  for (i = 0; i < n; ++i) {
    union {
      float value;
      uint32_t bits;
    } u;
    u.value = x[i];
    if ((u.bits & 0x7f800000u) == 0x7f800000u) return 0;
  }
  return 1;
}
)";

// Input layers read the observation in its own type, which saves a buffer of f32 values.
constexpr std::string_view kScaleText = R"(
/* out = factor * in. */
static void @_scale(float factor, int32_t n, const @@* in, float* out) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = factor * (float)in[i];
}
)";

// NaN cannot occur: the observation has been checked.
constexpr std::string_view kClipText = R"(
/* out = in, clipped to low and high. */
static void @_clip(float low, float high, int32_t n, const float* in, float* out) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = in[i] < low ? low : in[i] > high ? high : in[i];
}
)";

// The deviation is inverted when the file is written.
constexpr std::string_view kNormalizeText = R"(
/* out = (in - mean) / deviation, clipped to +-10. */
static void @_normalize(const float* mean, const float* inverse_deviation, int32_t n,
                        const @@* in, float* out) {
  int32_t i;
  for (i = 0; i < n; ++i) {
    const float x = ((float)in[i] - mean[i]) * inverse_deviation[i];
    out[i] = x < -10.0f ? -10.0f : x > 10.0f ? 10.0f : x;
  }
}
)";

// A comparison with each class costs less code than a check of range and fraction.
constexpr std::string_view kOneHotText = R"(
/* out [n, classes]: 1 at each element's class; zeros for a value that is no class. */
static void @_one_hot(int32_t classes, int32_t n, const @@* in, float* out) {
  int32_t i, c;
  for (i = 0; i < n; ++i) {
    for (c = 0; c < classes; ++c) *out++ = (float)in[i] == (float)c ? 1.0f : 0.0f;
  }
}
)";

// The frames of a stack become channels, the oldest first. The loops follow the output, whose
// writes are then contiguous.
constexpr std::string_view kImagesText = R"(
/* in [stack, pixels, channels], out [pixels, stack * channels], times factor. */
static void @_images(float factor, int32_t stack, int32_t pixels, int32_t channels,
                     const @@* in, float* out) {
  int32_t p, s, c;
  for (p = 0; p < pixels; ++p) {
    for (s = 0; s < stack; ++s) {
      for (c = 0; c < channels; ++c) *out++ = factor * (float)in[(s * pixels + p) * channels + c];
    }
  }
}
)";

// One sum at a time: the weights are read once, in order, which flash memory serves best.
constexpr std::string_view kLinearText = R"(
/* out [units] = weight [units, depth] * in + bias. */
static void @_linear(const float* weight, const float* bias, int32_t units, int32_t depth,
                     const float* in, float* out) {
  int32_t u, i;
  for (u = 0; u < units; ++u, weight += depth) {
    float sum = bias[u];
    for (i = 0; i < depth; ++i) sum += weight[i] * in[i];
    out[u] = sum;
  }
}
)";

// The rows of a kernel are contiguous in the input, too, because channels come last.
constexpr std::string_view kConv2dText = R"(
/* in [.., width, channels], out [rows, columns, filters]; no padding.
   weight [filters, kernel, kernel, channels]; size: kernel, stride, width, channels, rows, columns,
   filters. */
static void @_conv2d(const float* weight, const float* bias, const int32_t* size, const float* in,
                     float* out) {
  const int32_t kernel = size[0], stride = size[1], width = size[2], channels = size[3];
  const int32_t rows = size[4], columns = size[5], filters = size[6], length = kernel * channels;
  int32_t y, x, f, k, i;
  for (y = 0; y < rows; ++y) {
    for (x = 0; x < columns; ++x) {
      const float* const corner = in + (y * stride * width + x * stride) * channels;
      const float* w = weight;
      for (f = 0; f < filters; ++f) {
        float sum = bias[f];
        for (k = 0; k < kernel; ++k, w += length) {
          const float* const row = corner + k * width * channels;
          for (i = 0; i < length; ++i) sum += w[i] * row[i];
        }
        *out++ = sum;
      }
    }
  }
}
)";

// A comparison, and no fmaxf of the C library, which is a call on many targets.
// NaN passes, so that it reaches the check of the results.
constexpr std::string_view kReluText = R"(
static void @_relu(int32_t n, float* x) {
  int32_t i;
  for (i = 0; i < n; ++i) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}
)";

// The tanh of a C library may be missing, or take a thousand cycles without an f64 unit.
// The approximation is that of libtroop_policy (nn/policy_library/policy_kernels.cc).
constexpr std::string_view kTanhText = R"(
/* Relative error below 4e-7. */
static float @_tanh(float x) {
  const float c = x < -7.90531111f ? -7.90531111f : x > 7.90531111f ? 7.90531111f : x;
  const float s = c * c;
  float p = -2.76076847742355e-16f, q = 1.19825839466702e-06f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s - 8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return x > -4e-4f && x < 4e-4f ? x : x != x ? x : c * p / q;
}
)";

// A layer's activation, in place.
constexpr std::string_view kTanhAllText = R"(
static void @_tanh_all(int32_t n, float* x) {
  int32_t i;
  for (i = 0; i < n; ++i) x[i] = @_tanh(x[i]);
}
)";

// No square root of a C library: the exponent is halved in the bits of the first approximation, and
// each Newton step doubles the number of correct digits.
constexpr std::string_view kInverseRootText = R"(
/* 1 / sqrt(x) for a normal x > 0, with a relative error below 3e-7. */
static float @_inverse_root(float x) {
  union {
    float value;
    uint32_t bits;
  } y;
  int i;
  y.value = x;
  y.bits = 0x5f3759dfu - (y.bits >> 1);
  for (i = 0; i < 4; ++i) y.value = y.value * (1.5f - 0.5f * x * y.value * y.value);
  return y.value;
}
)";

// Ba et al. 2016. Squared deviations from the mean lose no digits when the mean is large.
constexpr std::string_view kLayerNormText = R"(
/* x [rows, n]: each row less its mean, over its deviation, times weight [n], plus bias [n]. */
static void @_layer_norm(const float* weight, const float* bias, int32_t rows, int32_t n,
                         float* x) {
  int32_t r, i;
  for (r = 0; r < rows; ++r, x += n) {
    float mean = 0.0f, squares = 0.0f, inverse;
    for (i = 0; i < n; ++i) mean += x[i];
    mean /= (float)n;
    for (i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    inverse = @_inverse_root(squares / (float)n + 1e-5f);
    for (i = 0; i < n; ++i) x[i] = weight[i] * ((x[i] - mean) * inverse) + bias[i];
  }
}
)";

// The equation applies to each of the `numbers` outputs of an action separately.
constexpr std::string_view kDuelingText = R"(
/* q [actions, numbers] += value - mean over the actions (Wang et al. 2016, eq. 9). */
static void @_dueling(const float* value, int32_t actions, int32_t numbers, float* q) {
  int32_t a, k;
  for (k = 0; k < numbers; ++k) {
    float sum = 0.0f;
    for (a = 0; a < actions; ++a) sum += q[a * numbers + k];
    for (a = 0; a < actions; ++a) q[a * numbers + k] += value[k] - sum / (float)actions;
  }
}
)";

// x = n ln 2 + r, with ln 2 in two parts; the series of e^r ends where a term is below 2^-26.
constexpr std::string_view kExpText = R"(
/* e^x for x <= 0, with a relative error below 3e-7; 0 below -87. */
static float @_exp(float x) {
  union {
    float value;
    uint32_t bits;
  } scale;
  int32_t n;
  float r, sum;
  if (x != x) return x;
  if (x < -87.0f) return 0.0f;
  n = (int32_t)(x * 1.44269504f - 0.5f);
  r = x - (float)n * 0.693359375f + (float)n * 2.12194440e-4f;
  sum = 1.0f + r / 7.0f;
  sum = 1.0f + r / 6.0f * sum;
  sum = 1.0f + r / 5.0f * sum;
  sum = 1.0f + r / 4.0f * sum;
  sum = 1.0f + r / 3.0f * sum;
  sum = 1.0f + r / 2.0f * sum;
  sum = 1.0f + r * sum;
  scale.bits = (uint32_t)(n + 127) << 23;
  return sum * scale.value;
}
)";

// Bellemare et al. 2017: a categorical distribution over equidistant atoms. The mean of the indices
// is scaled once, which keeps its rounding error below that of the atoms.
// The largest logit is subtracted, so that no exponential overflows.
constexpr std::string_view kCategoricalMeanText = R"(
/* out [actions]: mean of the atoms low, low + step, .. under softmax(in [actions, atoms]). */
static void @_categorical_mean(float low, float step, int32_t actions, int32_t atoms,
                               const float* in, float* out) {
  int32_t a, i;
  for (a = 0; a < actions; ++a, in += atoms) {
    float largest = in[0], sum = 0.0f, weighted = 0.0f;
    for (i = 1; i < atoms; ++i) largest = in[i] > largest ? in[i] : largest;
    for (i = 0; i < atoms; ++i) {
      const float e = @_exp(in[i] - largest);
      sum += e;
      weighted += e * (float)i;
    }
    out[a] = low + step * (weighted / sum);
  }
}
)";

// Dabney et al. 2017: all quantiles have the same weight.
constexpr std::string_view kQuantileMeanText = R"(
/* out [actions]: mean of in [actions, quantiles]. */
static void @_quantile_mean(int32_t actions, int32_t quantiles, const float* in, float* out) {
  int32_t a, i;
  for (a = 0; a < actions; ++a, in += quantiles) {
    float sum = 0.0f;
    for (i = 0; i < quantiles; ++i) sum += in[i];
    out[a] = sum / (float)quantiles;
  }
}
)";

// Rounding must not leave the bounds; NaN passes.
constexpr std::string_view kActionBoundsText = R"(
/* x = low + (high - low) * (1 + tanh x) / 2. */
static void @_action_bounds(const float* low, const float* high, int32_t n, float* x) {
  int32_t i;
  for (i = 0; i < n; ++i) {
    const float y = low[i] + (high[i] - low[i]) * ((1.0f + @_tanh(x[i])) / 2.0f);
    x[i] = y < low[i] ? low[i] : y > high[i] ? high[i] : y;
  }
}
)";

// Clipping instead of tanh; NaN passes here too.
constexpr std::string_view kClippedBoundsText = R"(
/* x = low + (high - low) * (1 + clip(x, -1, 1)) / 2. */
static void @_clipped_bounds(const float* low, const float* high, int32_t n, float* x) {
  int32_t i;
  for (i = 0; i < n; ++i) {
    const float share = x[i] < -1.0f ? -1.0f : x[i] > 1.0f ? 1.0f : x[i];
    const float y = low[i] + (high[i] - low[i]) * ((1.0f + share) / 2.0f);
    x[i] = y < low[i] ? low[i] : y > high[i] ? high[i] : y;
  }
}
)";

// Zeros first: the rows of the image are then one loop.
constexpr std::string_view kPadText = R"(
/* out [rows + 2 padding, width + 2 padding, channels]: in [rows, width, channels] among zeros. */
static void @_pad(int32_t padding, int32_t rows, int32_t width, int32_t channels, const float* in,
                  float* out) {
  const int32_t length = width * channels, outer = length + 2 * padding * channels;
  int32_t y, i;
  for (i = 0; i < (rows + 2 * padding) * outer; ++i) out[i] = 0.0f;
  out += padding * (outer + channels);
  for (y = 0; y < rows; ++y, in += length, out += outer) {
    for (i = 0; i < length; ++i) out[i] = in[i];
  }
}
)";

// NaN replaces a number and stays, so that it reaches the check of the results.
constexpr std::string_view kMaxPoolText = R"(
/* in [height, width, channels], out [rows, columns, channels]: largest elements of windows.
   size: kernel, stride, padding, height, width, channels, rows, columns. */
static void @_max_pool(const int32_t* size, const float* in, float* out) {
  const int32_t kernel = size[0], stride = size[1], padding = size[2], height = size[3];
  const int32_t width = size[4], channels = size[5], rows = size[6], columns = size[7];
  int32_t row, column, c, y, x;
  for (row = 0; row < rows; ++row) {
    for (column = 0; column < columns; ++column) {
      const int32_t top = row * stride - padding, left = column * stride - padding;
      const int32_t y0 = top > 0 ? top : 0, x0 = left > 0 ? left : 0;
      for (c = 0; c < channels; ++c) {
        float most = in[(y0 * width + x0) * channels + c];
        for (y = y0; y < top + kernel && y < height; ++y) {
          for (x = x0; x < left + kernel && x < width; ++x) {
            const float value = in[(y * width + x) * channels + c];
            if (most == most && !(value <= most)) most = value;
          }
        }
        *out++ = most;
      }
    }
  }
}
)";

// The sum of a residual block.
constexpr std::string_view kAddText = R"(
/* sum += x. */
static void @_add(int32_t n, const float* x, float* sum) {
  int32_t i;
  for (i = 0; i < n; ++i) sum[i] += x[i];
}
)";

// The frames of an image become channels, as in kImagesText; a vector is an image of one pixel. The
// observation is already f32 here.
constexpr std::string_view kPartText = R"(
/* in: frames of `width` elements, [pixels, channels] at the beginning of each; out [pixels,
   stack * channels], times factor. */
static void @_part(float factor, int32_t stack, int32_t width, int32_t pixels, int32_t channels,
                   const float* in, float* out) {
  int32_t p, s, c;
  for (p = 0; p < pixels; ++p) {
    for (s = 0; s < stack; ++s) {
      for (c = 0; c < channels; ++c) *out++ = factor * in[s * width + p * channels + c];
    }
  }
}
)";

// Joins the outputs of parts.
constexpr std::string_view kCopyText = R"(
static void @_copy(int32_t n, const float* in, float* out) {
  int32_t i;
  for (i = 0; i < n; ++i) out[i] = in[i];
}
)";

// The value is kMaskedOutput of nn/layers/layers.h.
constexpr std::string_view kHideText = R"(
/* Replaces the values of actions that the observation forbids; if it allows none, it hides none. */
static void @_hide(int32_t n, const @@* allowed, float* q) {
  int32_t i, any = 0;
  for (i = 0; i < n; ++i) any |= allowed[i] != 0;
  for (i = 0; i < n; ++i) {
    if (any && allowed[i] == 0) q[i] = -1e30f;
  }
}
)";

// A tanh cannot overflow, unlike an exponential.
constexpr std::string_view kSigmoidText = R"(
/* 1 / (1 + exp(-x)). */
static float @_sigmoid(float x) { return 0.5f + 0.5f * @_tanh(0.5f * x); }
)";

// Each unit reads its own c before it is replaced, and h is not read: the sums contain it.
constexpr std::string_view kLstmText = R"(
/* One step of an LSTM. x and u: the sums of the gates i, f, g, o; state: h, then c, [units]. */
static void @_lstm(int32_t units, const float* x, const float* u, float* state, float* out) {
  float* const c = state + units;
  int32_t i;
  for (i = 0; i < units; ++i) {
    const float keep = @_sigmoid(x[units + i] + u[units + i]);
    const float add = @_sigmoid(x[i] + u[i]) * @_tanh(x[2 * units + i] + u[2 * units + i]);
    c[i] = keep * c[i] + add;
    state[i] = @_sigmoid(x[3 * units + i] + u[3 * units + i]) * @_tanh(c[i]);
    out[i] = state[i];
  }
}
)";

// The form of PyTorch: the reset gate scales the sum of h, with its bias.
constexpr std::string_view kGruText = R"(
/* One step of a GRU. x and u: the sums of the gates r, z, n; state: h [units]. */
static void @_gru(int32_t units, const float* x, const float* u, float* state, float* out) {
  int32_t i;
  for (i = 0; i < units; ++i) {
    const float reset = @_sigmoid(x[i] + u[i]);
    const float keep = @_sigmoid(x[units + i] + u[units + i]);
    const float fresh = @_tanh(x[2 * units + i] + reset * u[2 * units + i]);
    state[i] = (1.0f - keep) * fresh + keep * state[i];
    out[i] = state[i];
  }
}
)";

}  // namespace

// One entry for each function; the compiler warns about a missing one.
std::string_view TextOf(CFunction function) {
  switch (function) {
    case CFunction::kFinite:
      return kFiniteText;
    case CFunction::kClip:
      return kClipText;
    case CFunction::kScale:
      return kScaleText;
    case CFunction::kNormalize:
      return kNormalizeText;
    case CFunction::kOneHot:
      return kOneHotText;
    case CFunction::kImages:
      return kImagesText;
    case CFunction::kLinear:
      return kLinearText;
    case CFunction::kConv2d:
      return kConv2dText;
    case CFunction::kRelu:
      return kReluText;
    case CFunction::kTanh:
      return kTanhText;
    case CFunction::kTanhAll:
      return kTanhAllText;
    case CFunction::kInverseRoot:
      return kInverseRootText;
    case CFunction::kLayerNorm:
      return kLayerNormText;
    case CFunction::kDueling:
      return kDuelingText;
    case CFunction::kExp:
      return kExpText;
    case CFunction::kCategoricalMean:
      return kCategoricalMeanText;
    case CFunction::kQuantileMean:
      return kQuantileMeanText;
    case CFunction::kActionBounds:
      return kActionBoundsText;
    case CFunction::kClippedBounds:
      return kClippedBoundsText;
    case CFunction::kPad:
      return kPadText;
    case CFunction::kMaxPool:
      return kMaxPoolText;
    case CFunction::kAdd:
      return kAddText;
    case CFunction::kPart:
      return kPartText;
    case CFunction::kCopy:
      return kCopyText;
    case CFunction::kHide:
      return kHideText;
    case CFunction::kSigmoid:
      return kSigmoidText;
    case CFunction::kLstm:
      return kLstmText;
    case CFunction::kGru:
      return kGruText;
  }
  return {};
}

// Texts have no other use of the character: C has no @.
std::string FillPlaceholders(std::string_view text, std::string_view name, std::string_view type) {
  std::string out;
  for (std::size_t at; (at = text.find('@')) != text.npos;) {
    const bool is_type = text.substr(at).starts_with("@@");
    out.append(text.substr(0, at)).append(is_type ? type : name);
    text.remove_prefix(at + (is_type ? 2 : 1));
  }
  return out.append(text);
}

}  // namespace troop
