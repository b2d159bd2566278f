// The extension module troop._native: native environments for the Python package `troop`, and
// trained policies (policy_binding.h). The environments use the buffer protocol instead of NumPy's
// C API, so that they work with every NumPy version. The package passes contiguous arrays; types,
// sizes and ranges are checked here.

#include <fmt/ranges.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/log.h"
#include "core/base/version.h"
#include "core/storage/crc32c.h"
#include "envs/vector/action_check.h"
#include "python/src/env/env_vector.h"
#include "python/src/env/single_env.h"
#include "python/src/policy/policy_binding.h"
#include "python/src/status_error.h"

namespace py = pybind11;

namespace troop {
namespace {

// The exception classes belong to Gymnasium and are chosen in Python.
void RaiseEnvError(const Status& status) {
  const py::object make = py::module_::import("troop.errors").attr("from_code");
  const py::object error = make(std::string(CodeName(status.code())), status.message());
  PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
}

// Marks an environment as in use during a call that releases the GIL. A second thread gets an error
// instead of waiting: neither order of the two steps would be right. A lock would also stay locked
// forever in a process that was forked during a step.
class InUse {
 public:
  InUse(std::atomic_flag* flag, const std::string& id) : flag_(flag) {
    if (flag_->test_and_set(std::memory_order_acquire)) {
      throw StatusError(Aborted(
          "{}: another thread is in a call of this environment; use one environment per thread",
          id));
    }
  }
  ~InUse() { flag_->clear(std::memory_order_release); }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic_flag* const flag_;
};

// A contiguous buffer of a known kind, held during the call.
class EnvBuffer {
 public:
  enum class Access : std::uint8_t { kRead, kWrite };
  EnvBuffer(const py::handle& array, Access access) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
    const bool write = access == Access::kWrite;
    if (PyObject_GetBuffer(array.ptr(), &view_, write ? flags | PyBUF_WRITABLE : flags) != 0) {
      throw py::error_already_set();
    }
  }
  ~EnvBuffer() { PyBuffer_Release(&view_); }
  EnvBuffer(const EnvBuffer&) = delete;
  EnvBuffer& operator=(const EnvBuffer&) = delete;

  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), std::size_t(view_.len)};
  }
  // Element type as a character of Python's struct module, in native byte order.
  char format() const {
    const std::string_view text = view_.format == nullptr ? "B" : view_.format;
    return text.size() == 1 ? text[0] : '?';
  }
  // A signed integer of this size; struct has several characters for one size.
  bool integer(std::size_t size) const {
    return std::string_view("ilq").find(format()) != std::string_view::npos &&
           std::size_t(view_.itemsize) == size;
  }
  template <class T>
  std::span<const T> as() const {
    return {static_cast<const T*>(view_.buf), std::size_t(view_.len) / sizeof(T)};
  }
  // Sizes of the axes.
  std::vector<std::int64_t> shape() const { return {view_.shape, view_.shape + view_.ndim}; }
  bool shaped(std::span<const std::int64_t> dims) const {
    return std::ranges::equal(std::span(view_.shape, std::size_t(view_.ndim)), dims);
  }

 private:
  Py_buffer view_{};
};

// Read-only part of a batch as a buffer for NumPy; keeps the environments alive.
struct EnvArray {
  std::shared_ptr<const void> owner;
  ConstTensor tensor;
  std::string format;
};

// "?" is Python's bool: flags are bytes with 0 or 1.
std::string FormatOf(DType dtype, bool flags) {
  if (flags) return "?";
  return dtype == DType::kF32 ? "f" : "B";
}

py::buffer_info BufferOf(EnvArray& array) {
  const auto dims = array.tensor.shape().dims();
  const std::vector<py::ssize_t> shape(dims.begin(), dims.end());
  const auto item = py::ssize_t(DTypeSize(array.tensor.dtype()));
  // pybind11 takes a plain pointer; the last argument makes the buffer read-only.
  return py::buffer_info(const_cast<std::byte*>(array.tensor.bytes().data()), item, array.format,
                         py::ssize_t(shape.size()), shape, py::detail::c_strides(shape, item),
                         true);
}

// The [env] keys that apply to native environments.
EnvOptions EnvOptionsOf(std::int64_t max_episode_steps, double sticky_actions, double reward_scale,
                        int action_repeat, bool difficulty_ramping) {
  return {.max_episode_steps = max_episode_steps,
          .sticky_actions = sticky_actions,
          .reward_scale = reward_scale,
          .action_repeat = action_repeat,
          .difficulty_ramping = difficulty_ramping};
}

// (height, width, bytes): NumPy looks into the bytearray without another copy.
py::object PictureOf(const Environment::Picture& picture) {
  return py::make_tuple(
      picture.height, picture.width,
      py::bytearray(reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()));
}

// Description of an environment, from which Python makes the spaces.
// "actions" is 0 for continuous actions, which have "low" and "high" instead.
py::dict SpecOf(const EnvSpec& spec) {
  const auto dims = spec.observation.shape.dims();
  py::dict fields;
  fields["id"] = spec.id;
  fields["dtype"] = std::string(DTypeName(spec.observation.dtype));
  fields["shape"] = py::tuple(py::cast(std::vector<std::int64_t>(dims.begin(), dims.end())));
  fields["max_episode_steps"] = spec.max_episode_steps;
  fields["actions"] = spec.action.discrete() ? spec.action.count : 0;
  fields["low"] = spec.action.low;
  fields["high"] = spec.action.high;
  return fields;
}

// Array of actions with the wrong element type or shape.
Status WrongActions(const EnvSpec& spec, const EnvBuffer& actions, const Shape& want) {
  return InvalidArgument("{}: actions have shape [{}] and element type '{}', must be {} {}",
                         spec.id, fmt::join(actions.shape(), ", "), actions.format(),
                         spec.action.discrete() ? "int64 or int32" : "float32", want.ToString());
}

// ---- One environment --------------------------------------------------------------------------

// The object that Python holds. Its observations are written to arrays that the package allocates,
// one for each step, since Gymnasium's rules forbid to reuse them.
struct PySingleEnv {
  std::unique_ptr<SingleEnv> env;
  std::atomic_flag busy{};

  void Reset(std::optional<std::uint64_t> seed, const py::object& observation) {
    const EnvBuffer out = Observation(observation);
    const InUse use(&busy, env->spec().id);
    const py::gil_scoped_release release;
    env->Reset(seed, out.bytes());
  }
  // The range is checked before the value is narrowed to the 32 bits of an environment.
  py::tuple StepDiscrete(std::int64_t action, const py::object& observation) {
    std::int32_t checked = 0;
    const ActionSpec& spec = Kind(true);
    if (action < 0 || action >= spec.count) {
      throw StatusError(InvalidArgument("{}: action is {}, must be 0 to {}", env->spec().id, action,
                                        spec.count - 1));
    }
    checked = std::int32_t(action);
    return Step(std::as_bytes(std::span(&checked, 1)), observation);
  }
  // The bounds are checked on a copy, which Python cannot change without the GIL.
  py::tuple StepContinuous(const py::object& action, const py::object& observation) {
    const ActionSpec& spec = Kind(false);
    const EnvBuffer in(action, EnvBuffer::Access::kRead);
    std::vector<float> checked(spec.low.size());
    if (in.format() != 'f' || !in.shaped(spec.tensor().shape.dims())) {
      throw StatusError(WrongActions(env->spec(), in, spec.tensor().shape));
    }
    Ensure(CopyContinuousActions(in.as<float>(), spec, checked));
    return Step(std::as_bytes(std::span(checked)), observation);
  }
  py::object Render() {
    const InUse use(&busy, env->spec().id);
    return PictureOf(Ensure(env->Render()));
  }

 private:
  const ActionSpec& Kind(bool discrete) const {
    const ActionSpec& spec = env->spec().action;
    if (spec.discrete() == discrete) return spec;
    throw StatusError(InvalidArgument("{}: actions are {}", env->spec().id,
                                      spec.discrete() ? "integers" : "arrays of float32"));
  }
  // The package allocates it by the spec, so another size is a fault of the package.
  EnvBuffer Observation(const py::object& array) const {
    return EnvBuffer(array, EnvBuffer::Access::kWrite);
  }
  // The buffer is declared before the GIL is released, so that it is returned with the GIL held.
  py::tuple Step(std::span<const std::byte> action, const py::object& observation) {
    const EnvBuffer out = Observation(observation);
    const InUse use(&busy, env->spec().id);
    const StepResult step = Ensure([&] {
      const py::gil_scoped_release release;
      return env->Step(action, out.bytes());
    }());
    return py::make_tuple(step.reward, step.terminated, step.truncated);
  }
};

// ---- Many environments ------------------------------------------------------------------------

// The object that Python holds, and that each of its arrays keeps alive: an array may outlive the
// environment in Python, but not the memory that it looks into.
struct PyEnvVector {
  std::unique_ptr<EnvVector> env;
  std::atomic_flag busy{};

  // seeds: (index, seed) of the environments that get one. indices: None means all.
  void Reset(const std::vector<std::pair<int, std::uint64_t>>& seeds,
             const std::optional<std::vector<int>>& indices) {
    const InUse use(&busy, env->spec().id);
    const py::gil_scoped_release release;
    for (const auto& [index, seed] : seeds) env->Seed(index, seed);
    if (!indices.has_value()) return env->Reset();
    Ensure(env->Restart(*indices));
  }
  // The only call per step. True: an episode ended, so that Python makes its infos.
  bool Step(const py::object& actions) {
    const EnvBuffer in(actions, EnvBuffer::Access::kRead);
    const EnvSpec& spec = env->spec();
    const Shape want = spec.action.tensor().shape.Prepend(env->size());
    const bool discrete = spec.action.discrete();
    const bool wide = in.integer(sizeof(std::int64_t));
    const bool typed = discrete ? wide || in.integer(sizeof(std::int32_t)) : in.format() == 'f';
    if (!typed || !in.shaped(want.dims())) throw StatusError(WrongActions(spec, in, want));
    const InUse use(&busy, spec.id);
    return Ensure([&] {
      const py::gil_scoped_release release;
      if (!discrete) return env->Step(in.as<float>());
      return wide ? env->Step(in.as<std::int64_t>()) : env->Step(in.as<std::int32_t>());
    }());
  }
  py::object Render(int index) {
    const InUse use(&busy, env->spec().id);
    return PictureOf(Ensure(env->Render(index)));
  }
};

// A property that gives one tensor of the batch without a copy.
template <ConstTensor StepBatch::*kTensor, bool kFlags>
EnvArray TensorOf(const std::shared_ptr<PyEnvVector>& vector) {
  const ConstTensor& tensor = vector->env->batch().*kTensor;
  return {vector, tensor, FormatOf(tensor.dtype(), kFlags)};
}

void BindSingle(py::module_& module) {
  py::class_<PySingleEnv>(module, "SingleEnv", py::module_local())
      .def(py::init([](const std::string& id, const EnvOptions& options) {
        return std::unique_ptr<PySingleEnv>(new PySingleEnv{Ensure(SingleEnv::Make(id, options))});
      }))
      .def_property_readonly("spec", [](const PySingleEnv& e) { return SpecOf(e.env->spec()); })
      .def("reset", &PySingleEnv::Reset)
      .def("step_discrete", &PySingleEnv::StepDiscrete)
      .def("step_continuous", &PySingleEnv::StepContinuous)
      .def("render", &PySingleEnv::Render);
}

void BindVector(py::module_& module) {
  py::class_<EnvArray>(module, "EnvArray", py::buffer_protocol(), py::module_local())
      .def_buffer(&BufferOf);
  py::class_<PyEnvVector, std::shared_ptr<PyEnvVector>>(module, "EnvVector", py::module_local())
      .def(py::init([](const std::string& id, const EnvOptions& options, int size, int threads) {
        return std::shared_ptr<PyEnvVector>(new PyEnvVector{
            Ensure(EnvVector::Make(id, {.env = options, .size = size, .threads = threads}))});
      }))
      .def_property_readonly("spec", [](const PyEnvVector& v) { return SpecOf(v.env->spec()); })
      .def("reset", &PyEnvVector::Reset)
      .def("step", &PyEnvVector::Step)
      .def("render", &PyEnvVector::Render)
      .def_property_readonly("observation", &TensorOf<&StepBatch::observation, false>)
      .def_property_readonly("final_observation", &TensorOf<&StepBatch::final_observation, false>)
      .def_property_readonly("reward", &TensorOf<&StepBatch::reward, false>)
      .def_property_readonly("terminated", &TensorOf<&StepBatch::terminated, true>)
      .def_property_readonly("truncated", &TensorOf<&StepBatch::truncated, true>);
}

}  // namespace
}  // namespace troop

PYBIND11_MODULE(_native, module) {
  // Warnings and errors only, as in troop_replay.
  troop::InitLog({.role = "troop", .level = troop::LogLevel::kWarning});
  module.attr("version") = std::string(troop::kTroopVersion);
  module.def("ids", &troop::EnvironmentIds);
  module.def("has_pictures", &troop::HasPictures);
  module.def("crc32c", [](const py::buffer& bytes) {
    return troop::Crc32c(troop::EnvBuffer(bytes, troop::EnvBuffer::Access::kRead).bytes());
  });
  py::class_<troop::EnvOptions>(module, "EnvOptions", py::module_local())
      .def(py::init(&troop::EnvOptionsOf));
  // Exceptions of other types keep the translation of pybind11.
  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const troop::StatusError& e) {
      troop::RaiseEnvError(e.status);
    }
  });
  troop::BindSingle(module);
  troop::BindVector(module);
  troop::BindPolicy(module);
}
