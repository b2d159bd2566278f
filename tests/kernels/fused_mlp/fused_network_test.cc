#include "kernels/fused_mlp/fused_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/philox.h"
#include "tests/kernels/small_net_reference.h"

namespace troop {
namespace {

struct Case {
  std::string name;
  FusedNet net;
  std::int64_t parameters = 0;
};

struct Widths {
  std::vector<std::int64_t> trunk;
  std::int64_t stream_hidden = 0;  // 0: none
  std::int64_t actions = 2;
};

// Lays a trunk and a head on top of what net holds already.
Case Complete(std::string name, FusedNet net, const Widths& widths, bool dueling,
              Activation activation) {
  std::int64_t features =
      net.has_conv ? net.conv.out_height() * net.conv.out_width() * net.conv.filters : net.inputs;
  for (std::int64_t width : widths.trunk) {
    net.trunk[net.trunk_count++] = {features, width, activation, 0, 0};
    features = width;
  }
  net.dueling = dueling;
  net.stream_count = widths.stream_hidden > 0 ? 2 : 1;
  for (auto [stream, out] :
       {std::pair{net.value, std::int64_t{1}}, std::pair{net.advantage, widths.actions}}) {
    const std::int64_t hidden = widths.stream_hidden;
    if (hidden > 0) *stream++ = {features, hidden, activation, 0, 0};
    *stream = {hidden > 0 ? hidden : features, out, Activation::kNone, 0, 0};
  }
  Case c{std::move(name), net, 0};
  c.parameters = PlaceParameters(&c.net);
  return c;
}

Case Mlp(std::string name, std::int64_t inputs, const Widths& widths, bool dueling,
         Activation activation, float scale = 1) {
  FusedNet net;
  net.inputs = inputs;
  net.input_scale = scale;
  return Complete(std::move(name), net, widths, dueling, activation);
}

Case ConvNet(std::string name, const FusedConv& conv, const Widths& widths, bool dueling, bool u8) {
  FusedNet net;
  net.inputs = conv.height * conv.width * conv.channels;
  net.input_u8 = u8;
  net.input_scale = u8 ? 1.0f / 255 : 1;
  net.has_conv = true;
  net.conv = conv;
  return Complete(std::move(name), net, widths, dueling, conv.activation);
}

std::vector<Case> Cases() {
  const auto relu = Activation::kRelu;
  const auto tanh = Activation::kTanh;
  return {
      Mlp("cartpole", 4, {{64, 64}, 0, 2}, false, relu),
      Mlp("dueling", 4, {{64, 64}, 0, 3}, true, relu),
      Mlp("dueling_streams", 5, {{33}, 17, 7}, true, tanh),
      Mlp("head_alone", 9, {{}, 0, 4}, false, relu),
      Mlp("head_alone_dueling", 3, {{}, 0, 5}, true, relu, 0.5f),
      Mlp("odd_widths", 7, {{1, 2, 3, 19, 130}, 0, 18}, true, tanh, 0.1f),
      Mlp("linear_hidden", 6, {{16, 16}, 0, 2}, false, Activation::kNone),
      Mlp("wide_input", 300, {{65}, 21, 6}, true, relu),
      ConvNet("minatar", {10, 10, 4, 16, 3, 1, relu, 0, 0}, {{128}, 0, 6}, false, true),
      ConvNet("minatar_dueling", {10, 10, 7, 16, 3, 1, relu, 0, 0}, {{40}, 24, 6}, true, true),
      ConvNet("conv_stride", {9, 7, 3, 32, 3, 2, tanh, 0, 0}, {{20}, 0, 3}, true, false),
      ConvNet("conv_to_head", {5, 6, 1, 16, 2, 1, Activation::kNone, 0, 0}, {{}, 0, 4}, false,
              false),
      ConvNet("conv_whole_image", {4, 4, 10, 16, 4, 1, relu, 0, 0}, {{12}, 0, 4}, false, true),
  };
}

// The memory of one call, aligned as fused_network.h asks for.
struct Memory {
  Memory(const Case& c, std::int64_t batch)
      : transposed(Floats(c.parameters)),
        activations(Floats(SmallNetActivations(c.net, batch))),
        scratch(Floats(SmallNetScratch(c.net, batch))) {}
  static MutableBuffer Floats(std::int64_t count) {
    MutableBuffer buffer(std::size_t(count) * sizeof(float));
    // NaN: whatever is read before it is written shows.
    for (float& f : buffer.as<float>()) f = std::numeric_limits<float>::quiet_NaN();
    return buffer;
  }
  MutableBuffer transposed, activations, scratch;
};

struct Problem {
  Problem(const Case& c, std::int64_t batch, std::uint64_t seed) {
    Rng rng({seed, Purpose::kTest});
    value.resize(std::size_t(c.parameters));
    for (float& v : value) v = float(rng.Uniform(-0.3, 0.3));
    const std::size_t inputs = std::size_t(batch * c.net.inputs);
    for (std::size_t i = 0; i < inputs; ++i) {
      bytes.push_back(std::uint8_t(rng.Below(256)));
      floats.push_back(float(rng.Uniform(-2, 2)));
    }
    dq.resize(std::size_t(batch * c.net.actions()));
    for (float& d : dq) d = float(rng.Uniform(-1, 1));
  }
  const void* input(const Case& c) const {
    return c.net.input_u8 ? static_cast<const void*>(bytes.data()) : floats.data();
  }
  Doubles Item(const Case& c, std::int64_t i) const {
    Doubles x;
    for (std::int64_t j = i * c.net.inputs; j < (i + 1) * c.net.inputs; ++j) {
      x.push_back(c.net.input_u8 ? double(bytes[std::size_t(j)]) : double(floats[std::size_t(j)]));
    }
    return x;
  }
  std::vector<float> value, floats, dq;
  std::vector<std::uint8_t> bytes;
};

std::vector<float> RunForward(const Case& c, const Problem& p, std::int64_t batch, CpuLevel level,
                              bool transposed, Memory* memory) {
  const FusedNetKernels& kernels = SmallNetKernelsFor(level);
  std::vector<float> q(p.dq.size());
  FusedNetForward call;
  call.batch = batch;
  call.value = p.value.data();
  if (transposed) {
    kernels.transpose(c.net, p.value.data(), memory->transposed.as<float>().data());
    call.transposed = memory->transposed.as<float>().data();
  }
  call.input = p.input(c);
  call.activations = memory->activations.as<float>().data();
  call.scratch = memory->scratch.as<float>().data();
  call.q = q.data();
  kernels.forward(c.net, call);
  return q;
}

std::vector<float> RunBackward(const Case& c, const Problem& p, std::int64_t batch, CpuLevel level,
                               bool accumulate, float start, Memory* memory) {
  std::vector<float> gradient(p.value.size(), start);
  FusedNetBackward call;
  call.batch = batch;
  call.value = p.value.data();
  call.input = p.input(c);
  call.activations = memory->activations.as<float>().data();
  call.scratch = memory->scratch.as<float>().data();
  call.dq = p.dq.data();
  call.gradient = gradient.data();
  call.accumulate = accumulate;
  SmallNetKernelsFor(level).backward(c.net, call);
  return gradient;
}

// Sums of up to ~2000 products of values below 1: rounding stays below a few 1e-6 of the sum of
// magnitudes, which is at most some tens here.
void ExpectClose(float got, double want, const std::string& what) {
  EXPECT_NEAR(double(got), want, 2e-5 * (1 + std::abs(want))) << what;
}

class SmallNetTest : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Levels, SmallNetTest, testing::ValuesIn(SupportedCpuLevels()),
                         [](const auto& p) { return std::string(CpuLevelName(p.param)); });

TEST_P(SmallNetTest, ForwardMatchesReferenceForAnyBatchSize) {
  for (const Case& c : Cases()) {
    for (std::int64_t batch : {1, 2, 3, 5, 6, 7, 16, 19}) {
      const Problem p(c, batch, 7);
      for (bool transposed : {false, true}) {
        Memory memory(c, batch);
        const std::vector<float> q = RunForward(c, p, batch, GetParam(), transposed, &memory);
        SmallNetReference reference(c.net, Doubles(p.value.begin(), p.value.end()));
        for (std::int64_t i = 0; i < batch; ++i) {
          const Doubles want = reference.Forward(p.Item(c, i));
          for (std::size_t a = 0; a < want.size(); ++a) {
            ExpectClose(q[std::size_t(i) * want.size() + a], want[a],
                        c.name + " of " + std::to_string(batch));
          }
        }
      }
    }
  }
}

TEST_P(SmallNetTest, BackwardMatchesReference) {
  for (const Case& c : Cases()) {
    for (std::int64_t batch : {1, 4, 13}) {
      const Problem p(c, batch, 11);
      Memory memory(c, batch);
      RunForward(c, p, batch, GetParam(), false, &memory);
      const std::vector<float> g = RunBackward(c, p, batch, GetParam(), true, 0, &memory);
      SmallNetReference reference(c.net, Doubles(p.value.begin(), p.value.end()));
      const std::size_t actions = std::size_t(c.net.actions());
      for (std::int64_t i = 0; i < batch; ++i) {
        reference.Forward(p.Item(c, i));
        const auto dq = p.dq.begin() + i * std::int64_t(actions);
        reference.Backward(Doubles(dq, dq + std::int64_t(actions)));
      }
      for (std::size_t j = 0; j < p.value.size(); ++j) {
        ExpectClose(g[j], reference.gradient[j], c.name + " parameter");
      }
    }
  }
}

TEST_P(SmallNetTest, AccumulatesOrOverwritesGradientAndKeepsPadding) {
  for (const Case& c : Cases()) {
    const Problem p(c, 3, 5);
    Memory memory(c, 3);
    RunForward(c, p, 3, GetParam(), true, &memory);
    const std::vector<float> fresh = RunBackward(c, p, 3, GetParam(), true, 0, &memory);
    const std::vector<float> added = RunBackward(c, p, 3, GetParam(), true, 2, &memory);
    const std::vector<float> written = RunBackward(c, p, 3, GetParam(), false, 2, &memory);
    std::int64_t padding = 0;
    for (std::size_t j = 0; j < p.value.size(); ++j) {
      ASSERT_FLOAT_EQ(added[j], fresh[j] + 2) << c.name;
      const bool untouched = written[j] == 2 && fresh[j] == 0;
      if (untouched) ++padding;
      if (!untouched) {
        ASSERT_EQ(written[j], fresh[j]) << c.name;
      }
    }
    std::int64_t used =
        c.net.has_conv
            ? c.net.conv.filters * (1 + c.net.conv.kernel * c.net.conv.kernel * c.net.conv.channels)
            : 0;
    const auto count = [&used](const FusedLinear& l) { used += l.out * (l.in + 1); };
    for (int i = 0; i < c.net.trunk_count; ++i) count(c.net.trunk[i]);
    for (int i = 0; i < c.net.stream_count; ++i) {
      if (c.net.dueling) count(c.net.value[i]);
      count(c.net.advantage[i]);
    }
    EXPECT_EQ(padding, c.parameters - used) << c.name;
  }
}

TEST_P(SmallNetTest, RepeatedCallsMatchBitwise) {
  for (const Case& c : Cases()) {
    const Problem p(c, 6, 3);
    Memory first(c, 6), second(c, 6);
    EXPECT_EQ(RunForward(c, p, 6, GetParam(), true, &first),
              RunForward(c, p, 6, GetParam(), true, &second));
    EXPECT_EQ(RunBackward(c, p, 6, GetParam(), false, 0, &first),
              RunBackward(c, p, 6, GetParam(), false, 0, &second));
  }
}

TEST_P(SmallNetTest, PropagatesNanFromInputToQ) {
  for (const Case& c : Cases()) {
    if (c.net.input_u8) continue;
    Problem p(c, 2, 3);
    p.floats[0] = std::numeric_limits<float>::quiet_NaN();
    Memory memory(c, 2);
    const std::vector<float> q = RunForward(c, p, 2, GetParam(), true, &memory);
    EXPECT_TRUE(std::isnan(q[0])) << c.name;
    EXPECT_FALSE(std::isnan(q[std::size_t(c.net.actions())])) << c.name;
  }
}

TEST_P(SmallNetTest, TanhIsWithinThreeUlp) {
  const Case c = Mlp("tanh", 1, {{1}, 0, 1}, false, Activation::kTanh);
  Problem p(c, 1, 1);
  std::ranges::fill(p.value, 0.0f);
  p.value[std::size_t(c.net.trunk[0].weight)] = 1;
  p.value[std::size_t(c.net.advantage[0].weight)] = 1;
  Memory memory(c, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> inputs = {0.0f, -0.0f,  0.625f,   -0.625f,   9.9f,  10.1f,
                               88,   -1e30f, infinity, -infinity, 1e-30f};
  for (float x = -11; x < 11; x += 0.00371f) inputs.push_back(x);
  for (float x : inputs) {
    p.floats[0] = x;
    const float got = RunForward(c, p, 1, GetParam(), false, &memory)[0];
    const double want = std::tanh(double(x));
    const float near = float(std::abs(want));
    const double ulp = double(std::nextafter(near, 2.0f)) - double(near);
    EXPECT_LE(std::abs(double(got) - want), 3 * ulp) << x;
  }
}

// Central differences of the oracle itself in f64: its own gradient is right.
TEST(SmallNetReferenceTest, GradientMatchesFiniteDifferences) {
  for (const Case& c :
       {Mlp("streams", 3, {{6}, 4, 3}, true, Activation::kTanh, 0.7f),
        ConvNet("conv", {4, 4, 2, 16, 2, 1, Activation::kTanh, 0, 0}, {{5}, 0, 2}, true, false)}) {
    const Problem p(c, 1, 2);
    const Doubles dq(p.dq.begin(), p.dq.end());
    Doubles value(p.value.begin(), p.value.end());
    const auto loss = [&](const Doubles& at) {
      const Doubles q = SmallNetReference(c.net, at).Forward(p.Item(c, 0));
      double sum = 0;
      for (std::size_t a = 0; a < q.size(); ++a) sum += q[a] * dq[a];
      return sum;
    };
    SmallNetReference reference(c.net, value);
    reference.Forward(p.Item(c, 0));
    reference.Backward(dq);
    for (std::size_t j = 0; j < value.size(); ++j) {
      const double step = 1e-5, at = value[j];
      value[j] = at + step;
      const double up = loss(value);
      value[j] = at - step;
      const double down = loss(value);
      value[j] = at;
      EXPECT_NEAR((up - down) / (2 * step), reference.gradient[j], 1e-8) << c.name << " " << j;
    }
  }
}

}  // namespace
}  // namespace troop
