// Implements Policy and PolicyState for Python: observations from NumPy without a copy, frame
// stacks, exploration, and actions as Stable-Baselines3 returns them.
#include "python/src/policy/policy_binding.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "python/src/policy/policy_session.h"

namespace py = pybind11;

namespace troop {
namespace {

// NumPy's numbers of element types, which are part of its stable interface.
constexpr int kNumpyU8 = 2, kNumpyI32 = 5, kNumpyF32 = 11;

int NumpyTypeOf(std::int32_t dtype) {
  if (dtype == TROOP_POLICY_U8) return kNumpyU8;
  return dtype == TROOP_POLICY_I32 ? kNumpyI32 : kNumpyF32;
}
const char* NameOf(std::int32_t dtype) {
  if (dtype == TROOP_POLICY_U8) return "uint8";
  return dtype == TROOP_POLICY_I32 ? "int32" : "float32";
}

// "[N, 4]".
std::string ShapeText(const std::vector<py::ssize_t>& shape, const char* first = nullptr) {
  std::string text = first == nullptr ? "" : first;
  for (const py::ssize_t dim : shape) text += (text.empty() ? "" : ", ") + std::to_string(dim);
  return "[" + text + "]";
}

// The frame stacks and recurrent states of N environments, which Python passes from call to call.
struct PyPolicyState {
  PolicySession session;
};

// Rows of observations in memory that NumPy owns.
struct Rows {
  py::array array;  // keeps the memory
  std::int64_t count = 1;
  bool vectorized = false;
  const unsigned char* data() const { return static_cast<const unsigned char*>(array.data()); }
};

// The object that Python holds: a loaded policy, its exploration, and buffers that calls share. The
// interpreter's lock protects all of it.
class PyPolicy {
 public:
  PyPolicy(const std::string& path, py::function convert)
      : policy_(LoadSharedPolicy(path)),
        observation_(troop_policy_observation_at(policy_.get(), 0)),
        action_(troop_policy_action_at(policy_.get(), 0)),
        shape_(observation_->shape, observation_->shape + observation_->rank),
        convert_(std::move(convert)) {
    stacked_ = shape_;
    stacked_.insert(stacked_.begin(), py::ssize_t(stack()));
    SetSeed(std::random_device()());
  }

  py::tuple shape() const { return py::tuple(py::cast(shape_)); }
  const char* dtype() const { return NameOf(observation_->dtype); }
  std::int64_t stack() const { return observation_->frame_stack; }
  std::int64_t state_size() const { return std::int64_t(troop_policy_state_size(policy_.get())); }
  bool discrete() const { return action_->kind == TROOP_POLICY_DISCRETE; }
  std::int64_t actions() const { return discrete() ? action_->count : 0; }
  // The bounds of continuous actions; discrete ones have none.
  std::vector<float> Bounds(const float* values) const {
    if (values == nullptr) return {};
    return {values, values + action_->count};
  }
  std::vector<float> low() const { return Bounds(action_->low); }
  std::vector<float> high() const { return Bounds(action_->high); }
  // Probability of a random action where `deterministic` is false.
  double exploration_rate() const { return exploration_rate_; }
  void SetExplorationRate(double rate) {
    // NaN fails both comparisons.
    if (!(rate >= 0 && rate <= 1)) {
      throw py::value_error("exploration_rate is " + std::to_string(rate) + ", must be 0 to 1");
    }
    exploration_rate_ = rate;
  }
  void SetSeed(std::uint64_t seed) { random_.seed(seed); }

  // Actions and state, as BasePolicy.predict of Stable-Baselines3. The result is allocated before
  // the session runs, so that no other Python code runs between the two.
  py::tuple Act(const py::object& observation, const py::object& state,
                const py::object& episode_start, bool deterministic) {
    const Rows rows = RowsOf(observation, shape_);
    const bool explores = discrete() && !deterministic;
    if (explores && exploration_rate_ == 0 && !warned_) Warn();
    py::object next = state;
    PolicySession& session = stack() == 1 && state_size() == 0
                                 ? OwnSession(rows.count)
                                 : KeptSession(rows.count, episode_start, &next);
    if (!discrete()) {
      py::array_t<float> result(ActionShape(rows));
      session.Act(
          {.count = rows.count, .observations = rows.data(), .actions = result.mutable_data()});
      return py::make_tuple(std::move(result), std::move(next));
    }
    py::array_t<std::int64_t> result(ActionShape(rows));
    if (std::int64_t(actions_.size()) < rows.count) actions_.resize(std::size_t(rows.count));
    const bool draws = explores && exploration_rate_ > 0;
    // Exploration needs the values, which show the actions that the observation forbids.
    if (draws) values_.resize(std::size_t(rows.count * action_->count));
    session.Act({.count = rows.count,
                 .observations = rows.data(),
                 .actions = actions_.data(),
                 .values = draws ? values_.data() : nullptr});
    std::int64_t* const out = result.mutable_data();
    std::copy_n(actions_.begin(), rows.count, out);
    if (draws) Explore({out, std::size_t(rows.count)});
    return py::make_tuple(std::move(result), std::move(next));
  }

  // The q-values of whole frame stacks, [stack, ...shape] or [N, stack, ...shape]; forbidden
  // actions have -inf.
  py::array_t<float> Values(const py::object& observation, const py::object& mask) {
    if (!discrete()) throw py::value_error("q_values: the policy has continuous actions, no q");
    if (state_size() > 0) {
      throw py::value_error(
          "q_values: the policy has a recurrent state, which one observation does not determine; "
          "use predict");
    }
    const Rows rows = RowsOf(observation, stack() == 1 ? shape_ : stacked_);
    std::vector<py::ssize_t> dims{py::ssize_t(action_->count)};
    if (rows.vectorized) dims.insert(dims.begin(), py::ssize_t(rows.count));
    const std::optional<py::array> allowed = MaskOf(mask, dims);
    py::array_t<float> result(dims);
    float* const q = result.mutable_data();
    // Each stack is shown to a fresh stream frame by frame; the values of the last frame stay.
    PolicySession one(policy_, 1);
    std::int32_t action = 0;
    for (std::int64_t row = 0; row < rows.count; ++row) {
      one.Reset(0);
      for (std::int64_t frame = 0; frame < stack(); ++frame) {
        one.Act({.observations = rows.data() + (row * stack() + frame) * observation_->bytes,
                 .actions = &action,
                 .values = q + row * action_->count});
      }
    }
    // One value for all forbidden actions, whatever forbids them.
    for (std::int64_t i = 0; i < rows.count * action_->count; ++i) {
      if (IsMasked(q[i])) q[i] = -std::numeric_limits<float>::infinity();
    }
    if (allowed.has_value()) {
      const auto* const flags = static_cast<const std::uint8_t*>(allowed->data());
      for (std::int64_t i = 0; i < rows.count * action_->count; ++i) {
        if (flags[i] == 0) q[i] = -std::numeric_limits<float>::infinity();
      }
    }
    return result;
  }

 private:
  // [shape] is one observation, [N, shape] are N. Arrays of another type or layout are converted
  // in Python, which raises for what is not convertible without loss of meaning.
  Rows RowsOf(const py::object& observation, const std::vector<py::ssize_t>& one) const {
    Rows rows{.array = Ready(observation) ? py::reinterpret_borrow<py::array>(observation)
                                          : Converted(observation)};
    const auto rank = py::ssize_t(one.size());
    const py::ssize_t* const dims = rows.array.shape();
    rows.vectorized = rows.array.ndim() == rank + 1;
    if ((!rows.vectorized && rows.array.ndim() != rank) ||
        !std::equal(one.begin(), one.end(), dims + (rows.vectorized ? 1 : 0))) {
      throw py::value_error("observation has shape " + ShapeText({dims, dims + rows.array.ndim()}) +
                            ", must be " + ShapeText(one) + ", or " + ShapeText(one, "N") +
                            " for N observations");
    }
    if (rows.vectorized) rows.count = dims[0];
    if (rows.count == 0) throw py::value_error("observation has 0 rows, must be 1 or more");
    return rows;
  }
  // An array that the library can read in place.
  bool Ready(const py::object& observation) const {
    if (!py::isinstance<py::array>(observation)) return false;
    const auto array = py::reinterpret_borrow<py::array>(observation);
    using Api = py::detail::npy_api;
    constexpr int kLayout = Api::NPY_ARRAY_C_CONTIGUOUS_ | Api::NPY_ARRAY_ALIGNED_;
    const py::dtype type = array.dtype();
    return type.num() == NumpyTypeOf(observation_->dtype) && type.byteorder() != '>' &&
           (array.flags() & kLayout) == kLayout;
  }
  py::array Converted(const py::object& observation) const {
    py::object array = convert_(observation, dtype());
    if (!Ready(array)) throw py::value_error("observation cannot be converted");
    return py::reinterpret_steal<py::array>(array.release());
  }

  // A mask as bytes of the shape of the values.
  static std::optional<py::array> MaskOf(const py::object& mask,
                                         const std::vector<py::ssize_t>& dims) {
    if (mask.is_none()) return std::nullopt;
    auto flags = py::array_t<bool, py::array::c_style | py::array::forcecast>::ensure(mask);
    if (!flags) throw py::error_already_set();
    if (flags.ndim() != py::ssize_t(dims.size()) ||
        !std::equal(dims.begin(), dims.end(), flags.shape())) {
      throw py::value_error("mask has shape " +
                            ShapeText({flags.shape(), flags.shape() + flags.ndim()}) +
                            ", must be " + ShapeText(dims));
    }
    const py::ssize_t actions = dims.back();
    const bool* const begin = flags.data();
    for (py::ssize_t row = 0; row < flags.size(); row += actions) {
      if (std::none_of(begin + row, begin + row + actions, [](bool b) { return b; }))
        throw py::value_error("mask forbids every action; one of each row must be allowed");
    }
    return py::array(std::move(flags));
  }

  // Shape of the actions: without the axis of the rows for one observation.
  std::vector<py::ssize_t> ActionShape(const Rows& rows) const {
    std::vector<py::ssize_t> dims;
    if (rows.vectorized) dims.push_back(py::ssize_t(rows.count));
    if (!discrete()) dims.push_back(py::ssize_t(action_->count));
    return dims;
  }

  // Without stacks and states a session keeps nothing between calls: one serves all of them, and
  // grows.
  PolicySession& OwnSession(std::int64_t rows) {
    if (!own_ || own_->streams() < rows) own_ = std::make_unique<PolicySession>(policy_, rows);
    return *own_;
  }

  // The session in the caller's state. An omitted state would silently stand for zeros, so it is
  // accepted only where episodes begin.
  PolicySession& KeptSession(std::int64_t rows, const py::object& episode_start,
                             py::object* state) const {
    const std::optional<std::vector<bool>> begins = Begins(rows, episode_start);
    if (state->is_none()) {
      if (!begins || std::find(begins->begin(), begins->end(), false) != begins->end()) {
        throw py::value_error(
            (state_size() > 0 ? std::string("the policy has a recurrent state")
                              : "the policy sees the last " + std::to_string(stack()) + " frames") +
            ": pass the state that the previous call returned; at the start of all episodes pass "
            "state=None with episode_start=True for each observation");
      }
      *state = py::cast(std::shared_ptr<PyPolicyState>(new PyPolicyState{{policy_, rows}}));
    } else if (!py::isinstance<PyPolicyState>(*state)) {
      throw py::value_error("state is not one that predict() of this policy returned");
    }
    PolicySession& session = state->cast<PyPolicyState&>().session;
    if (session.policy() != policy_)
      throw py::value_error("state belongs to another policy; begin with state=None");
    if (session.streams() != rows) {
      throw py::value_error("state is of " + std::to_string(session.streams()) +
                            " environments, but there are " + std::to_string(rows) +
                            " observations; begin with state=None");
    }
    for (std::int64_t i = 0; begins && i < rows; ++i) {
      if ((*begins)[std::size_t(i)]) session.Reset(i);
    }
    return session;
  }
  // One flag for each row; nullopt: not given, so that all episodes continue.
  static std::optional<std::vector<bool>> Begins(std::int64_t rows, const py::object& given) {
    if (given.is_none()) return std::nullopt;
    const auto flags = py::array_t<bool, py::array::c_style | py::array::forcecast>::ensure(given);
    if (!flags) throw py::error_already_set();
    if (flags.size() != rows) {
      throw py::value_error("episode_start has " + std::to_string(flags.size()) +
                            " elements, must have one for each of the " + std::to_string(rows) +
                            " observations");
    }
    return std::vector<bool>(flags.data(), flags.data() + rows);
  }

  // True for the value of an action that the observation forbids (troop_policy.h: -1e30).
  static bool IsMasked(float value) { return value <= -5e29f; }
  // Each row explores on its own, among the actions that its observation allows; values_ has the
  // values of all rows.
  void Explore(std::span<std::int64_t> actions) {
    std::uniform_real_distribution<double> chance;
    const float* values = values_.data();
    for (std::int64_t& action : actions) {
      const std::span<const float> row(values, std::size_t(action_->count));
      values += action_->count;
      if (chance(random_) >= exploration_rate_) continue;
      const auto masked = std::int64_t(std::count_if(row.begin(), row.end(), IsMasked));
      if (masked == action_->count) continue;
      std::uniform_int_distribution<std::int64_t> any(0, action_->count - masked - 1);
      // The number of allowed actions before the drawn one.
      std::int64_t skipped = any(random_);
      for (action = 0; IsMasked(row[std::size_t(action)]) || skipped-- > 0; ++action) {
      }
    }
  }
  // A filter of the module warnings may turn the warning into an exception.
  void Warn() {
    warned_ = true;
    if (PyErr_WarnEx(PyExc_UserWarning,
                     "predict(deterministic=False) acts greedily, because exploration_rate of the "
                     "policy is 0; set it (DQN of Stable-Baselines3 keeps 0.05 after training), or "
                     "pass deterministic=True",
                     1) != 0) {
      throw py::error_already_set();
    }
  }

  const SharedPolicy policy_;
  const troop_policy_observation* const observation_;
  const troop_policy_action* const action_;
  const std::vector<py::ssize_t> shape_;
  std::vector<py::ssize_t> stacked_;  // [stack, ...shape]
  const py::function convert_;        // (observation, dtype) → an array that is Ready
  std::unique_ptr<PolicySession> own_;
  std::vector<std::int32_t> actions_;
  std::vector<float> values_;
  double exploration_rate_ = 0;
  bool warned_ = false;
  std::mt19937_64 random_;
};

}  // namespace

void BindPolicy(py::module_& module) {
  py::class_<PyPolicyState, std::shared_ptr<PyPolicyState>>(module, "PolicyState",
                                                            py::module_local())
      .def_property_readonly("environments",
                             [](const PyPolicyState& state) { return state.session.streams(); });
  py::class_<PyPolicy>(module, "Policy", py::module_local())
      .def(py::init<const std::string&, py::function>())
      .def_property_readonly("shape", &PyPolicy::shape)
      .def_property_readonly("dtype", &PyPolicy::dtype)
      .def_property_readonly("frame_stack", &PyPolicy::stack)
      .def_property_readonly("state_size", &PyPolicy::state_size)
      .def_property_readonly("actions", &PyPolicy::actions)
      .def_property_readonly("low", &PyPolicy::low)
      .def_property_readonly("high", &PyPolicy::high)
      .def_property("exploration_rate", &PyPolicy::exploration_rate, &PyPolicy::SetExplorationRate)
      .def("set_seed", &PyPolicy::SetSeed)
      .def("act", &PyPolicy::Act)
      .def("q_values", &PyPolicy::Values);
}

}  // namespace troop
