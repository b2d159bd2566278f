// Measures libtroop_policy: one call of troop_policy_act, without any other work.
//
// deploy_bench --files FOLDER [--quick]
//
// Writes each network to FOLDER/NAME.safetensors and NAME.onnx, with parameters drawn from a fixed
// seed, for the peers, and prints one JSON line per network and batch size. Before the clock runs,
// the q-values are compared with those of Troop's own modules. `check`: the q-values of the first
// eight rows, whose observations deploy_python.py computes with the same formula.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "core/storage/storage.h"
#include "nn/export/onnx_policy.h"
#include "nn/export/policy_description.h"
#include "nn/models/model.h"
#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

constexpr int kRepeats = 5;
constexpr std::int64_t kCheckedRows = 8;
constexpr double kTolerance = 1e-5;  // deviation of q, relative to the largest

struct Case {
  std::string name;
  ModelSetup setup;
  EnvSpec env;
};

LayerConfig Linear(std::int64_t units) { return {.type = LayerType::kLinear, .units = units}; }
LayerConfig Conv(std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  return {.type = LayerType::kConv2d, .filters = filters, .kernel = kernel, .stride = stride};
}

// Both networks as in Stable-Baselines3: two layers of 64 units, and Mnih et al. 2015.
std::vector<Case> Cases() {
  std::vector<Case> cases(2);
  Case& cartpole = cases[0];
  cartpole.name = "cartpole";
  cartpole.setup.network.layers = {Linear(64), Linear(64)};
  cartpole.env = {.id = "CartPole-v1", .observation = {DType::kF32, {4}}, .action = {.count = 2}};
  Case& nature = cases[1];
  nature.name = "nature";
  nature.setup.network.layers = {Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1), Linear(512)};
  nature.env = {.id = "Pong",
                .observation = {DType::kU8, {84, 84, 4}},
                .observation_scale = 1.0f / 255,
                .action = {.count = 6}};
  for (Case& c : cases) c.setup.network.dueling = false;
  return cases;
}

// [rows, ...observation]: pixels are i · 7919 mod 251, numbers sin(i), for the element's index i.
Tensor Observations(const Case& c, std::int64_t rows) {
  const TensorSpec& one = c.env.observation;
  Tensor out(one.dtype, one.shape.Prepend(rows));
  if (one.dtype == DType::kU8) {
    std::uint64_t i = 0;
    for (std::uint8_t& x : out.as<std::uint8_t>()) x = std::uint8_t(i++ * 7919 % 251);
  } else {
    double i = 0;
    for (float& x : out.as<float>()) x = float(std::sin(i++));
  }
  return out;
}

// The parameters, and the network that computes the expected q-values from them.
class Network {
 public:
  explicit Network(const Case& c) : case_(c), network_(*MakeNetwork(c.setup, c.env)) {
    value_.resize(std::size_t(ParameterCount(*network_)));
    InitParameters(*network_, 5, value_);
  }

  // q [rows, actions].
  std::vector<float> Reference(const Tensor& observations) const {
    const TensorSpec in = observations.spec();
    const auto plan = network_->MakePlan({&in, 1});
    TROOP_CHECK(plan.ok(), "{}", plan.status().message());
    const auto packed = network_->MakePacked(Precision::kF32);
    network_->Pack(value_, packed.get());
    MutableBuffer workspace = MutableBuffer::Zeros(plan->workspace_bytes);
    std::vector<Tensor> out;
    for (const TensorSpec& spec : plan->out) out.emplace_back(spec.dtype, spec.shape);
    const ConstTensor x(observations);
    network_->Forward({.value = value_, .packed = packed.get(), .workspace = workspace.bytes()},
                      {&x, 1}, out, {});
    const auto q = out[0].as<float>();
    return {q.begin(), q.end()};
  }

  // Writes both files, and loads the policy from the first one.
  troop_policy* Export(const std::string& folder) const {
    const auto policy = DescribePolicy(case_.setup, case_.env);
    TROOP_CHECK(policy.ok(), "{}", policy.status().message());
    TensorFile file;
    for (const ParamSpec& param : network_->params()) {
      const Tensor tensor(DType::kF32, param.shape);
      std::copy_n(value_.begin() + param.offset, tensor.elements(), tensor.as<float>().begin());
      file.tensors[param.name] = tensor;
    }
    const auto onnx = EncodeOnnxPolicy(*policy, file);
    TROOP_CHECK(onnx.ok(), "{}", onnx.status().message());
    file.metadata = {{kPolicyKey, EncodePolicy(*policy)}};
    const auto disk = MakeDiskStorage(folder);
    TROOP_CHECK(disk.ok(), "{}", disk.status().message());
    const Buffer tensors = EncodeSafetensors(file);
    TROOP_CHECK((*disk)->WriteAtomic(case_.name + ".onnx", onnx->bytes()).ok(), "can't write");
    TROOP_CHECK((*disk)->WriteAtomic(case_.name + ".safetensors", tensors.bytes()).ok(),
                "can't write");
    char message[256] = "";
    const std::string path = fmt::format("{}/{}.safetensors", folder, case_.name);
    const troop_policy_source source = {.size = sizeof source,
                                        .abi = TROOP_POLICY_ABI,
                                        .path = path.c_str(),
                                        .message = message,
                                        .message_bytes = sizeof message};
    troop_policy* loaded = nullptr;
    TROOP_CHECK(troop_policy_load(&source, &loaded) == TROOP_POLICY_OK, "{}", message);
    return loaded;
  }

 private:
  const Case& case_;
  const std::unique_ptr<Module> network_;
  std::vector<float> value_;
};

double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Microseconds per call, one value per repetition.
template <class Call>
std::vector<double> Times(const Call& call, double seconds) {
  std::int64_t calls = 1;
  for (double elapsed = 0; elapsed < seconds / 10; calls *= 2) {
    const double begin = Seconds();
    for (std::int64_t i = 0; i < calls; ++i) call();
    elapsed = Seconds() - begin;
  }
  std::vector<double> values;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin = Seconds();
    std::int64_t done = 0;
    for (; Seconds() - begin < seconds; done += calls) {
      for (std::int64_t i = 0; i < calls; ++i) call();
    }
    values.push_back(1e6 * (Seconds() - begin) / double(done));
  }
  return values;
}

void CheckEqual(const std::vector<float>& q, const std::vector<float>& expected, const Case& c) {
  float largest = 0;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < q.size(); ++i) {
    TROOP_CHECK(std::abs(q[i] - expected[i]) <= kTolerance * largest,
                "{}: q[{}] is {}, and {} by the module", c.name, i, q[i], expected[i]);
  }
}

void Print(const Case& c, std::int64_t rows, const std::vector<double>& times,
           const std::vector<float>& q) {
  JsonArray values, check;
  for (const double time : times) values.Add(JsonText::Rounded(time, 4));
  const std::int64_t checked = std::min(rows, kCheckedRows) * c.env.action.count;
  for (std::int64_t i = 0; i < checked; ++i) check.Add(double(q[std::size_t(i)]));
  JsonObject row;
  row.Add("case", fmt::format("{}-b{}", c.name, rows))
      .Add("metric", "time")
      .Add("unit", "us")
      .Add("values", values)
      .Add("check", check)
      .Add("check_tolerance", 1e-4);
  std::printf("%s\n", row.str().c_str());
  std::fflush(stdout);
}

void Measure(const Case& c, const std::string& folder, double seconds) {
  const Network network(c);
  troop_policy* const policy = network.Export(folder);
  for (const std::int64_t rows : {1, 64}) {
    troop_policy_session* session = nullptr;
    TROOP_CHECK(troop_policy_session_create(policy, rows, &session) == TROOP_POLICY_OK,
                "no session");
    const Tensor observations = Observations(c, rows);
    std::vector<float> q(std::size_t(rows * c.env.action.count));
    std::vector<std::int32_t> chosen(std::size_t(rows), 0);
    const void* const parts[] = {observations.bytes().data()};
    void* const heads[] = {chosen.data()};
    troop_policy_call call = {.size = sizeof call,
                              .count = rows,
                              .observations = parts,
                              .actions = heads,
                              .values = q.data()};
    const auto act = [&] {
      TROOP_CHECK(troop_policy_act(session, &call) == TROOP_POLICY_OK, "{}",
                  troop_policy_session_message(session));
    };
    act();
    CheckEqual(q, network.Reference(observations), c);
    const std::vector<float> computed = q;
    call.values = nullptr;
    Print(c, rows, Times(act, seconds), computed);
    troop_policy_session_destroy(session);
  }
  troop_policy_unload(policy);
}

}  // namespace
}  // namespace troop

int main(int argc, char** argv) {
  std::string folder;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      quick = true;
    } else if (word == "--files" && i + 1 < argc) {
      folder = argv[++i];
    } else {
      std::fprintf(stderr, "usage: deploy_bench --files FOLDER [--quick]\n");
      return 2;
    }
  }
  if (folder.empty()) {
    std::fprintf(stderr, "deploy_bench: --files is missing\n");
    return 2;
  }
  for (const troop::Case& c : troop::Cases()) troop::Measure(c, folder, quick ? 0.1 : 0.5);
}
