// Implements the parsing of requests for actions. Bytes are checked before they are converted, and
// nothing is repaired.
#include "apps/serving/act_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "apps/serving/nested_numbers.h"
#include "core/storage/json.h"

namespace troop {
namespace {

static_assert(std::endian::native == std::endian::little, "the binary form is little-endian");

constexpr std::size_t kSessionBytesMax = 64;

// A name that can appear in a header or a log line.
Status CheckSession(std::string_view id) {
  const bool visible =
      std::ranges::all_of(id, [](unsigned char c) { return c > 0x20 && c < 0x7F; });
  if (!id.empty() && id.size() <= kSessionBytesMax && visible) return Status::Ok();
  return InvalidArgument("session must have 1 to {} visible ASCII characters", kSessionBytesMax);
}

// Collects the members of the JSON form.
class ActReader {
 public:
  ActReader(const PolicySignature& policy, std::int64_t rows_max)
      : observations_(rows_max * policy.stack * policy.frame_elements()),
        mask_(rows_max * policy.actions) {}

  // Takes the next event of the body. Errors: kInvalidArgument, which ends the reading.
  Status Take(const JsonEvent& event);
  const NestedNumbers& observations() const { return observations_; }
  const NestedNumbers& mask() const { return mask_; }
  // True if the body has the key.
  bool Has(const std::string& key) const { return seen_.contains(key); }
  // Members of the request that are neither observations nor a mask.
  ActRequest& request() { return request_; }

 private:
  using Kind = JsonEvent::Kind;
  Status Key(std::string_view name);
  Status Value(const JsonEvent& event);
  Status Flag(const JsonEvent& event);

  NestedNumbers observations_, mask_;
  ActRequest request_;
  std::set<std::string> seen_;
  std::string key_;
  NestedNumbers* array_ = nullptr;  // of the present key
  bool begun_ = false;
};

// An unknown key is an error: a misspelled mask that is ignored would give a forbidden action.
Status ActReader::Key(std::string_view name) {
  constexpr std::string_view kKeys[] = {"observations", "mask",     "session",
                                        "reset",        "q_values", "deterministic"};
  if (std::ranges::find(kKeys, name) == std::end(kKeys)) {
    // The name comes from the network, so it is cut and quoted.
    return InvalidArgument(
        "unknown key {}; the keys are observations, mask, session, reset, q_values, deterministic",
        JsonQuote(name.substr(0, 40)));
  }
  key_ = name;
  if (!seen_.insert(key_).second) return InvalidArgument("duplicate key \"{}\"", key_);
  array_ = key_ == "observations" ? &observations_ : key_ == "mask" ? &mask_ : nullptr;
  return Status::Ok();
}

// The scalar members.
Status ActReader::Value(const JsonEvent& event) {
  if (key_ != "session") return Flag(event);
  if (event.kind != Kind::kString) return InvalidArgument("\"session\" must be a string");
  request_.session = event.text;
  return CheckSession(event.text);
}

// The members that are true or false.
Status ActReader::Flag(const JsonEvent& event) {
  if (event.kind != Kind::kBool) return InvalidArgument("\"{}\" must be true or false", key_);
  if (key_ == "reset") request_.reset = event.boolean;
  if (key_ == "q_values") request_.q_values = event.boolean;
  if (key_ == "deterministic" && !event.boolean) {
    return InvalidArgument(
        "\"deterministic\" is false, but the policy is greedy: it does not sample; omit the key");
  }
  return Status::Ok();
}

// The outermost value is an object; arrays are taken by their keys.
Status ActReader::Take(const JsonEvent& event) {
  if (!begun_) {
    begun_ = true;
    if (event.kind == Kind::kBeginObject) return Status::Ok();
    return InvalidArgument("the body must be a JSON object");
  }
  if (array_ != nullptr && array_->open()) return array_->Take(event).WithContext(key_);
  if (event.kind == Kind::kKey) return Key(event.text);
  if (event.kind == Kind::kEndObject) return Status::Ok();
  if (array_ == nullptr) return Value(event);
  if (event.kind != Kind::kBeginArray)
    return InvalidArgument("\"{}\" must be an array of numbers", key_);
  return array_->Take(event).WithContext(key_);
}

// Converts to integers of [low, high].
template <class T>
Status ConvertIntegers(const std::vector<double>& values, std::span<std::byte> out) {
  // Both limits are exact as doubles; NaN fails the comparison.
  constexpr double kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    if (!(x >= kLow && x <= kHigh) || x != std::floor(x)) {
      return InvalidArgument("observations: element {} is {}, must be an integer of {} to {}", i, x,
                             kLow, kHigh);
    }
    const T value = T(x);
    std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
  }
  return Status::Ok();
}

// Numbers that exceed a float would become infinite.
Status ConvertFloats(const std::vector<double>& values, std::span<std::byte> out) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = float(values[i]);
    if (!std::isfinite(value))
      return InvalidArgument("observations: element {} is {}, too large for a float", i, values[i]);
    std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
  }
  return Status::Ok();
}

// A request must have 1 to rows_max rows, and with a session one.
Status CheckRows(const ActRequest& request, std::int64_t rows_max) {
  if (request.rows < 1) return InvalidArgument("observations is empty; send at least one row");
  if (request.rows > rows_max) {
    return InvalidArgument("observations has {} rows, must have at most {}; send several requests",
                           request.rows, rows_max);
  }
  if (!request.session.empty() && request.rows != 1) {
    return InvalidArgument("observations has {} rows; a session takes one frame per request",
                           request.rows);
  }
  return Status::Ok();
}

// True if an element of the policy's type is not 0.
bool IsSet(std::span<const std::byte> element, DType dtype) {
  if (dtype != DType::kF32)
    return std::ranges::any_of(element, [](std::byte b) { return b != std::byte{0}; });
  // -0.0 is 0 as well.
  float value;
  std::memcpy(&value, element.data(), sizeof value);
  return value != 0;
}

// The mask of a request must allow an action that the newest frame of each row allows, too, unless
// the frame allows none. libtroop_policy would reject all requests of the batch.
Status CheckBothMasks(const ActRequest& request, const PolicySignature& policy) {
  if (!policy.mask || request.mask.empty()) return Status::Ok();
  const std::size_t size = DTypeSize(policy.dtype), frame = policy.frame_bytes();
  const auto actions = std::size_t(policy.actions);
  // A session sends one frame, all others whole stacks.
  const std::size_t row = request.session.empty() ? policy.stack_bytes() : frame;
  for (std::size_t i = 0; i < std::size_t(request.rows); ++i) {
    const auto newest = std::span(request.observations).subspan((i + 1) * row - frame, frame);
    bool any = false, both = false;
    for (std::size_t a = 0; a < actions; ++a) {
      const std::size_t at = (std::size_t(*policy.mask) + a) * size;
      const bool allowed = IsSet(newest.subspan(at, size), policy.dtype);
      any |= allowed;
      both |= allowed && request.mask[i * actions + a] != 0;
    }
    if (any && !both) {
      return InvalidArgument(
          "mask forbids every action of row {} that its observation allows; allow one of them, or "
          "omit the mask",
          i);
    }
  }
  return Status::Ok();
}

// Each row must allow an action.
Status CheckMask(const ActRequest& request, const PolicySignature& policy) {
  if (!policy.discrete && (!request.mask.empty() || request.q_values))
    return InvalidArgument("mask and q_values are for discrete actions; omit them");
  if (request.reset && request.session.empty())
    return InvalidArgument("reset is for requests with a session; omit it, or add a session");
  for (std::size_t i = 0; i < request.mask.size(); i += std::size_t(policy.actions)) {
    const auto row = std::span(request.mask).subspan(i, std::size_t(policy.actions));
    if (std::ranges::any_of(row, [](std::uint8_t m) { return m > 1; }))
      return InvalidArgument("mask must consist of 0 and 1");
    if (std::ranges::all_of(row, [](std::uint8_t m) { return m == 0; })) {
      return InvalidArgument("mask forbids every action of row {}; allow at least one",
                             i / std::size_t(policy.actions));
    }
  }
  return CheckBothMasks(request, policy);
}

// The shape of the array is that of the policy, after the number of rows.
Status TakeObservations(const NestedNumbers& given, const PolicySignature& policy,
                        ActRequest* request) {
  // 1. The expected shape: a session sends one frame, all others whole stacks.
  std::vector<std::int64_t> want = policy.shape;
  if (policy.stack > 1 && request->session.empty()) want.insert(want.begin(), policy.stack);
  // 2. The number of rows is free, all other sizes must be equal.
  const std::vector<std::int64_t>& shape = given.shape();
  request->rows = shape.empty() ? 0 : shape[0];
  if (request->rows == 0) return Status::Ok();  // CheckRows has the message
  if (!std::equal(shape.begin() + 1, shape.end(), want.begin(), want.end())) {
    want.insert(want.begin(), request->rows);
    return InvalidArgument("observations has the shape {}, must be {} ([rows, {}…])",
                           ShapeText(shape), ShapeText(want),
                           want.size() == policy.shape.size() + 2 ? "stack, " : "");
  }
  // 3. The numbers in the type of the policy.
  request->observations.resize(given.values().size() * DTypeSize(policy.dtype));
  switch (policy.dtype) {
    case DType::kU8:
      return ConvertIntegers<std::uint8_t>(given.values(), request->observations);
    case DType::kI32:
      return ConvertIntegers<std::int32_t>(given.values(), request->observations);
    default:
      return ConvertFloats(given.values(), request->observations);
  }
}

// Values are checked after the whole body is read, because keys may come in any order.
Result<ActRequest> ParseJsonForm(const HttpRequest& request, const PolicySignature& policy,
                                 std::int64_t rows_max) {
  ActReader reader(policy, rows_max);
  const Status read =
      ReadJson(request.body, [&](const JsonEvent& event) { return reader.Take(event); });
  if (!read.ok()) return InvalidArgument("{}", read.message());
  if (!reader.Has("observations"))
    return InvalidArgument("the key \"observations\" is missing: an array of numbers");
  ActRequest act = std::move(reader.request());
  TROOP_RETURN_IF_ERROR(TakeObservations(reader.observations(), policy, &act));
  TROOP_RETURN_IF_ERROR(CheckRows(act, rows_max));
  // The mask of a continuous policy is rejected by CheckMask, whatever its shape is.
  if (reader.Has("mask")) {
    const std::vector<std::int64_t> want{act.rows, policy.actions};
    if (policy.discrete && reader.mask().shape() != want) {
      return InvalidArgument("mask has the shape {}, must be {}", ShapeText(reader.mask().shape()),
                             ShapeText(want));
    }
    // A fraction would pass as 0: it becomes 2, which CheckMask rejects.
    for (const double m : reader.mask().values()) act.mask.push_back(m == 0 ? 0 : m == 1 ? 1 : 2);
  }
  TROOP_RETURN_IF_ERROR(CheckMask(act, policy));
  return act;
}

// A flag of the query: 1 or 0.
Result<bool> QueryFlag(const HttpRequest& request, const std::string& name) {
  const std::string& value = request.Query(name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return InvalidArgument("{} in the query must be 0 or 1", name);
}

// The bytes are divided into rows by the known size of a row.
Result<ActRequest> ParseBinaryForm(const HttpRequest& request, const PolicySignature& policy,
                                   std::int64_t rows_max) {
  ActRequest act{.binary = true};
  // 1. The options; an unknown one is an error, as an unknown key is.
  for (const auto& [name, value] : request.query) {
    if (name != "mask" && name != "q_values" && name != "reset" && name != "session") {
      return InvalidArgument(
          "unknown name {} in the query; the names are mask, q_values, reset, "
          "session",
          JsonQuote(name.substr(0, 40)));
    }
  }
  TROOP_ASSIGN_OR_RETURN(act.q_values, QueryFlag(request, "q_values"));
  TROOP_ASSIGN_OR_RETURN(act.reset, QueryFlag(request, "reset"));
  TROOP_ASSIGN_OR_RETURN(const bool masked, QueryFlag(request, "mask"));
  if (request.query.contains("session")) {
    act.session = request.Query("session");
    TROOP_RETURN_IF_ERROR(CheckSession(act.session));
  }
  // 2. The number of rows.
  const std::size_t row = act.session.empty() ? policy.stack_bytes() : policy.frame_bytes();
  const std::size_t all = row + (masked ? std::size_t(policy.actions) : 0);
  if (request.body.size() % all != 0) {
    return InvalidArgument("the body has {} bytes, must be a multiple of {} (one row)",
                           request.body.size(), all);
  }
  act.rows = std::int64_t(request.body.size() / all);
  TROOP_RETURN_IF_ERROR(CheckRows(act, rows_max));
  // 3. The observations, and after them the mask.
  const auto bytes = std::as_bytes(std::span(request.body));
  const auto observations = bytes.first(row * std::size_t(act.rows));
  act.observations.assign(observations.begin(), observations.end());
  for (const std::byte m : bytes.subspan(observations.size())) act.mask.push_back(std::uint8_t(m));
  // 4. Any bytes are valid integers, but not every pattern is a finite float.
  for (std::size_t i = 0; policy.dtype == DType::kF32 && i < observations.size(); i += 4) {
    float value;
    std::memcpy(&value, observations.data() + i, sizeof value);
    if (!std::isfinite(value)) {
      return InvalidArgument("observations: element {} is NaN or infinite", i / 4);
    }
  }
  TROOP_RETURN_IF_ERROR(CheckMask(act, policy));
  return act;
}

}  // namespace

// Only members that a client sees: layers and weights are left out.
PolicySignature::PolicySignature(const PolicyDescription& policy)
    : dtype(policy.observation.dtype),
      stack(policy.frame_stack),
      discrete(policy.action.discrete()),
      actions(discrete ? policy.action.count : std::int64_t(policy.action.low.size())),
      low(policy.action.low),
      high(policy.action.high),
      parts(policy.parts),
      state(policy.state_size()) {
  const PolicyLayer& last = policy.layers.back();
  if (last.kind == PolicyLayerKind::kActionMask) mask = last.first;
  for (int i = 0; i < policy.observation.shape.rank(); ++i)
    shape.push_back(policy.observation.shape[i]);
}

// The product of an empty shape is one: a scalar.
std::int64_t PolicySignature::frame_elements() const {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements *= size;
  return elements;
}

// Media types are case-insensitive (RFC 9110, section 8.3.1).
bool HasContentType(const HttpRequest& request, std::string_view type) {
  std::string_view given = request.Header("content-type");
  given = given.substr(0, given.find(';'));
  while (given.ends_with(' ')) given.remove_suffix(1);
  return std::ranges::equal(
      given, type, [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

// The type decides about the form; any other type than the binary one is read as JSON.
Result<ActRequest> ParseActRequest(const HttpRequest& request, const PolicySignature& policy,
                                   std::int64_t rows_max) {
  const bool binary = HasContentType(request, "application/octet-stream");
  if (!binary && !request.query.empty())
    return InvalidArgument("the JSON form takes no query; set its keys in the body");
  TROOP_ASSIGN_OR_RETURN(ActRequest act, binary ? ParseBinaryForm(request, policy, rows_max)
                                                : ParseJsonForm(request, policy, rows_max));
  // An action from a state of zeros would be wrong without an error.
  if (policy.state == 0 || !act.session.empty()) return act;
  return InvalidArgument(
      "the policy has a recurrent state, which the server keeps per session; add a session");
}

}  // namespace troop
