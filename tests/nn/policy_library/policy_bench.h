#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "nn/export/policy_description.h"
#include "nn/io/safetensors.h"
#include "nn/models/model.h"
#include "nn/models/value_head.h"
#include "nn/policy_library/troop_policy.h"

namespace troop {

// A network with drawn parameters: its outputs by Troop's modules, and its exported file.
class PolicyBench {
 public:
  PolicyBench(const ModelSetup& setup, const EnvSpec& env) : setup_(setup), env_(env) {
    auto network = MakeNetwork(setup, env);
    EXPECT_TRUE(network.ok()) << network.status().ToString();
    network_ = std::move(*network);
    value_.resize(std::size_t(ParameterCount(*network_)));
    InitParameters(*network_, 5, value_);
    Rng rng({.run_seed = 8});
    for (float& x : value_) x += float(0.02 * rng.Normal());
    if (setup.network.normalize_observations)
      network_->UpdateStatistics(Observations(50, 3), value_);
  }

  // [rows, ...NetworkInput], with all values of the dtype that the environment may give.
  Tensor Observations(std::int64_t rows, std::uint64_t seed) const {
    const TensorSpec one = NetworkInput(setup_, env_);
    Tensor out(one.dtype, one.shape.Prepend(rows));
    Rng rng({.run_seed = seed});
    if (one.dtype == DType::kU8) {
      for (std::uint8_t& x : out.as<std::uint8_t>()) x = std::uint8_t(rng.Below(256));
    } else if (one.dtype == DType::kI32) {
      for (std::int32_t& x : out.as<std::int32_t>()) x = std::int32_t(rng.Below(7)) - 1;
    } else {
      for (float& x : out.as<float>()) x = float(2 * rng.Normal());
    }
    return out;
  }

  // The q-values or actions [rows, actions] by the module.
  std::vector<float> Reference(const Tensor& observations) const {
    const TensorSpec in = observations.spec();
    const auto plan = network_->MakePlan({&in, 1});
    EXPECT_TRUE(plan.ok()) << plan.status().ToString();
    const auto packed = network_->MakePacked(Precision::kF32);
    network_->Pack(value_, packed.get());
    MutableBuffer workspace = MutableBuffer::Zeros(plan->workspace_bytes);
    const StepContext context{
        .value = value_, .packed = packed.get(), .workspace = workspace.bytes()};
    std::vector<Tensor> out;
    for (const TensorSpec& spec : plan->out) out.emplace_back(spec.dtype, spec.shape);
    const ConstTensor x(observations);
    network_->Forward(context, {&x, 1}, out, {});
    const auto numbers = out[0].as<float>();
    if (!env_.action.discrete()) return {numbers.begin(), numbers.end()};
    std::vector<float> q(std::size_t(observations.dim(0) * env_.action.count));
    ExpectedValues(GetValueHead(setup_), numbers, q);
    return q;
  }

  // The bytes of the exported file.
  Buffer File() const {
    TensorFile file;
    const ConstTensor all(Tensor::View(
        nullptr,
        std::as_writable_bytes(std::span(const_cast<float*>(value_.data()), value_.size())),
        {DType::kF32, {std::int64_t(value_.size())}}));
    for (const ParamSpec& param : network_->params())
      file.tensors[param.name] = all.Range(param.offset, param.shape);
    const auto policy = DescribePolicy(setup_, env_);
    EXPECT_TRUE(policy.ok()) << policy.status().ToString();
    file.metadata = {{kPolicyKey, EncodePolicy(*policy)}};
    return EncodeSafetensors(file);
  }
  const EnvSpec& env() const { return env_; }

 private:
  const ModelSetup setup_;
  const EnvSpec env_;
  std::unique_ptr<Module> network_;
  std::vector<float> value_;
};

// A loaded policy and a session of it.
class LoadedPolicy {
 public:
  explicit LoadedPolicy(const Buffer& file, std::int64_t streams = 1) {
    char message[256] = "";
    const troop_policy_source source{.size = sizeof source,
                                     .abi = TROOP_POLICY_ABI,
                                     .bytes = file.bytes().data(),
                                     .byte_count = file.size(),
                                     .message = message,
                                     .message_bytes = sizeof message};
    code_ = troop_policy_load(&source, &policy_);
    message_ = message;
    if (policy_ != nullptr) {
      EXPECT_EQ(troop_policy_session_create(policy_, streams, &session_), TROOP_POLICY_OK);
    }
  }
  LoadedPolicy(const LoadedPolicy&) = delete;
  LoadedPolicy& operator=(const LoadedPolicy&) = delete;
  ~LoadedPolicy() {
    if (session_ != nullptr) troop_policy_session_destroy(session_);
    troop_policy_unload(policy_);
  }

  int code() const { return code_; }
  const std::string& message() const { return message_; }
  const troop_policy* policy() const { return policy_; }
  troop_policy_session* session() const { return session_; }

  struct Call {
    std::int64_t first = 0, count = 1;
    const void* observations = nullptr;
    const std::uint8_t* mask = nullptr;
    void* actions = nullptr;
    float* values = nullptr;
  };
  int Act(const Call& call) const {
    const std::uint8_t* const masks[] = {call.mask};
    void* const actions[] = {call.actions};
    const troop_policy_call all{.size = sizeof all,
                                .first = call.first,
                                .count = call.count,
                                .observations = &call.observations,
                                .masks = masks,
                                .actions = actions,
                                .values = call.values};
    return troop_policy_act(session_, &all);
  }

 private:
  troop_policy* policy_ = nullptr;
  troop_policy_session* session_ = nullptr;
  int code_ = 0;
  std::string message_;
};

}  // namespace troop
