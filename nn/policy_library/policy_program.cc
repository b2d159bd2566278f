// Implements the preparation of a policy from its description, and its computation.
#include "nn/policy_library/policy_program.h"

#include <algorithm>
#include <cstring>

#include "nn/policy_library/policy_layer_reader.h"
#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

using Json = nlohmann::json;

// kVersion: of the description that this library reads. The others bound what a file may ask for.
constexpr std::int64_t kVersion = 1, kStackMax = 1024, kLayersMax = 1000, kStateMax = 1 << 20;

// The only element of a list: later versions allow more.
const Json& OnlyElement(const Json& description, const char* key) {
  const auto list = description.find(key);
  if (list == description.end() || !list->is_array() || list->empty() || !(*list)[0].is_object())
    throw PolicyError(TROOP_POLICY_DATA_LOSS, std::string("the description has no ") + key);
  if (list->size() > 1)
    throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                      std::string("several ") + key + " need a later version of libtroop_policy");
  return (*list)[0];
}

// A list of numbers with 1 to `size_max` elements.
std::vector<float> Floats(const Json& object, const char* key, std::size_t size_max) {
  const auto list = object.find(key);
  std::vector<float> values;
  if (list == object.end() || !list->is_array() || list->empty() || list->size() > size_max)
    throw PolicyError(TROOP_POLICY_DATA_LOSS, std::string("the action has no valid ") + key);
  for (const Json& value : *list) {
    if (!value.is_number())
      throw PolicyError(TROOP_POLICY_DATA_LOSS, std::string("the action has no valid ") + key);
    values.push_back(value.get<float>());
  }
  return values;
}

}  // namespace

// Checks everything, so that Run cannot fail.
PolicyProgram::PolicyProgram(const PolicyFile& file) {
  const Json& description = file.description;
  if (PolicyInteger(description, "version", 1, std::int64_t{1} << 40) > kVersion)
    throw PolicyError(TROOP_POLICY_UNSUPPORTED,
                      "the policy needs a later version of libtroop_policy");
  ReadObservation(OnlyElement(description, "observations"));
  ReadAction(OnlyElement(description, "actions"));
  const auto layers = description.find("layers");
  if (layers == description.end() || !layers->is_array() || layers->empty() ||
      layers->size() > kLayersMax)
    throw PolicyError(TROOP_POLICY_DATA_LOSS, "the description has no layers");
  // The observation's shape flows through the layers.
  std::vector<std::int64_t> whole = shape_;
  if (stack_ > 1) whole.insert(whole.begin(), stack_);
  PolicyElements(whole);
  chain_ = PolicyChain(whole);
  for (const Json& layer : *layers) AddLayer(layer, file);
  if (PolicyElements(chain_.shape()) != count_)
    throw PolicyError(TROOP_POLICY_DATA_LOSS, "the last layer has another size than the action");
  RequirePolicy(chain_.state() <= kStateMax, "recurrent states of more than 1,048,576 elements");
}

// The element type and the shape of one frame, and how many frames the policy sees.
void PolicyProgram::ReadObservation(const Json& observation) {
  observation_name_ = PolicyString(observation, "name");
  const std::string dtype = PolicyString(observation, "dtype");
  if (dtype != "u8" && dtype != "i32" && dtype != "f32")
    throw PolicyError(TROOP_POLICY_UNSUPPORTED, "observations of " + dtype + " are not supported");
  dtype_ = dtype == "u8" ? DType::kU8 : dtype == "i32" ? DType::kI32 : DType::kF32;
  shape_ = PolicyShape(observation, "shape");
  frame_elements_ = PolicyElements(shape_);
  stack_ = PolicyInteger(observation, "stack", 1, kStackMax);
}

// A number of choices, or the bounds of each element.
void PolicyProgram::ReadAction(const Json& action) {
  constexpr std::int64_t kCountMax = 1 << 20;
  action_name_ = PolicyString(action, "name");
  const std::string kind = PolicyString(action, "kind");
  if (kind != "discrete" && kind != "continuous")
    throw PolicyError(TROOP_POLICY_UNSUPPORTED, "actions of kind " + kind + " are not supported");
  discrete_ = kind == "discrete";
  if (discrete_) {
    count_ = PolicyInteger(action, "count", 1, kCountMax);
    return;
  }
  low_ = Floats(action, "low", kCountMax);
  high_ = Floats(action, "high", kCountMax);
  bool valid = low_.size() == high_.size();
  for (std::size_t i = 0; valid && i < low_.size(); ++i) valid = low_[i] <= high_[i];
  if (!valid) throw PolicyError(TROOP_POLICY_DATA_LOSS, "the bounds of the action are invalid");
  count_ = std::int64_t(low_.size());
}

// The mask is not an operation, because it reads the observation itself.
void PolicyProgram::AddLayer(const Json& layer, const PolicyFile& file) {
  RequirePolicy(mask_ < 0, "a layer after action_mask");
  if (!layer.is_object() || PolicyString(layer, "kind") != "action_mask")
    return chain_.Add(layer, {file, low_, high_});
  RequirePolicy(discrete_ && chain_.shape() == std::vector{count_} && chain_.width() > 0,
                "action_mask needs a value for each discrete action");
  RequirePolicy(
      PolicyShape(layer, "in") == chain_.shape() && PolicyShape(layer, "out") == chain_.shape(),
      "action_mask changes the shape");
  mask_ = PolicyInteger(layer, "first", 0, frame_elements_);
  RequirePolicy(mask_ + count_ <= frame_elements_, "action_mask exceeds the observation");
}

// A frame of the caller may be at any address.
bool PolicyProgram::IsSet(const unsigned char* frame, std::int64_t i) const {
  if (dtype_ == DType::kU8) return frame[i] != 0;
  frame += 4 * i;
  // -0.0 is 0 as well, which its bits are not.
  if (dtype_ == DType::kF32) {
    float value;
    std::memcpy(&value, frame, sizeof value);
    return value != 0;
  }
  std::int32_t value;
  std::memcpy(&value, frame, sizeof value);
  return value != 0;
}

bool PolicyProgram::AllowsAny(const unsigned char* frame) const {
  for (std::int64_t a = 0; a < count_; ++a) {
    if (IsSet(frame, mask_ + a)) return true;
  }
  return false;
}

bool PolicyProgram::Forbids(const void* frame, const unsigned char* mask) const {
  const auto* const bytes = static_cast<const unsigned char*>(frame);
  if (mask_ < 0 || !AllowsAny(bytes)) return false;
  for (std::int64_t a = 0; a < count_; ++a) {
    if (mask[a] != 0 && IsSet(bytes, mask_ + a)) return false;
  }
  return true;
}

// The newest frame is the last one of a stack. The value is kMaskedOutput of nn/layers/layers.h.
void PolicyProgram::HideForbidden(std::int64_t rows, const void* observations, float* q) const {
  constexpr float kMaskedOutput = -1e30F;
  const auto* frame = static_cast<const unsigned char*>(observations);
  frame += (stack_ - 1) * frame_bytes();
  for (std::int64_t r = 0; r < rows; ++r, frame += stack_ * frame_bytes(), q += count_) {
    if (!AllowsAny(frame)) continue;
    for (std::int64_t a = 0; a < count_; ++a) {
      if (!IsSet(frame, mask_ + a)) q[a] = kMaskedOutput;
    }
  }
}

// Observations become f32 first. The layers alternate between both buffers.
const float* PolicyProgram::Run(std::int64_t rows, const void* observations, const Buffers& buffers,
                                float* states) const {
  const std::int64_t elements = rows * stack_ * frame_elements_;
  float* const from = buffers.first.data();
  switch (dtype_) {
    case DType::kU8:
      ScaleToFloat(isa_, static_cast<const std::uint8_t*>(observations), elements, 1, from);
      break;
    case DType::kI32:
      std::copy_n(static_cast<const std::int32_t*>(observations), elements, from);
      break;
    case DType::kF32:
      std::memcpy(from, observations, std::size_t(elements) * sizeof(float));
      break;
  }
  float* const out = chain_.Run(isa_, rows, from, {buffers.second.data(), from}, {states, state()});
  if (mask_ >= 0) HideForbidden(rows, observations, out);
  return out;
}

}  // namespace troop
