// The extension module troop_replay._native, the base of the Python package. It uses the buffer
// protocol instead of NumPy's C API, so that it works with every NumPy version. The package passes
// contiguous arrays of the right element type; sizes are checked here.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/version.h"
#include "core/config/enum_names.h"
#include "python/src/local_replay.h"
#include "python/src/replay_ends.h"
#include "python/src/service_client.h"
#include "python/src/service_server.h"
#include "python/src/status_error.h"
#include "python/src/step_writer.h"
#include "python/src/trajectory_cutter.h"

namespace py = pybind11;

namespace troop {
namespace {

void RaiseStatus(const Status& status) {
  // The exception classes are defined in Python.
  const py::object make = py::module_::import("troop_replay.errors").attr("from_code");
  const py::object error = make(std::string(CodeName(status.code())), status.message());
  // An exception translator sets Python's error indicator instead of throwing.
  PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
}

// Calls attempt(until) without the GIL, in slices, so that a signal (Ctrl-C) ends a wait.
template <class Attempt>
auto Wait(double timeout_s, Attempt attempt) {
  const SystemClock clock;
  // 1e9 s keeps the deadline within the range of Time.
  const Time deadline = clock.Now() + Seconds(std::clamp(timeout_s, 0.0, 1e9));
  while (true) {
    // A slice of 100 ms bounds the delay of Ctrl-C, and the cost of taking the GIL is negligible.
    const Time until = std::min(deadline, clock.Now() + Milliseconds(100));
    auto result = [&] {
      const py::gil_scoped_release release;
      return attempt(until);
    }();
    Status status;
    if constexpr (std::is_same_v<decltype(result), Status>) {
      status = result;
    } else {
      status = result.status();
    }
    // The end of a slice is not the caller's deadline. Sinks and sources allow a repeated attempt.
    if (status.code() != Code::kDeadlineExceeded || clock.Now() >= deadline) return result;
    // Ctrl-C raises KeyboardInterrupt between two slices.
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

// ---- Arrays in and out ------------------------------------------------------------------------

// Buffer of a contiguous array, held during the call.
class Input {
 public:
  explicit Input(const py::handle& array) {
    // None is an argument that was not given; its bytes are empty.
    if (array.is_none()) return;
    // An array with gaps fails here; the package makes arrays contiguous first.
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0) {
      throw py::error_already_set();
    }
  }
  ~Input() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), std::size_t(view_.len)};
  }
  template <class T>
  std::span<const T> as() const {
    const auto length = std::size_t(view_.len);
    // The element type was checked in Python; sizes are not.
    if (length % sizeof(T) != 0) {
      throw StatusError(
          InvalidArgument("an array of {} bytes is not a whole number of values", length));
    }
    return {static_cast<const T*>(view_.buf), length / sizeof(T)};
  }

 private:
  Py_buffer view_{};
};

// Part of a batch as a buffer for NumPy; keeps the whole batch alive.
struct Array {
  BatchSlot owner;
  void* data;
  std::string format;
  py::ssize_t item_bytes;
  std::vector<py::ssize_t> shape;
};

// Format characters of Python's struct module. There is none for bf16, whose bits become uint16.
const char* FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f";
    case DType::kF64:
      return "d";
    case DType::kU8:
      return "B";
    case DType::kI32:
      return "i";
    case DType::kI64:
      return "q";
    case DType::kU64:
      return "Q";
    case DType::kU32:
      return "I";
    case DType::kBF16:
      return "H";
  }
  return "B";
}

// Views of a column without a copy. While one exists, the batch does not return to its pool.
template <class T>
py::object ArrayOf(const BatchSlot& batch, std::vector<T>* column) {
  return py::cast(Array{batch,
                        column->data(),
                        py::format_descriptor<T>::format(),
                        sizeof(T),
                        {py::ssize_t(column->size())}});
}
py::object ArrayOf(const BatchSlot& batch, const Tensor& tensor) {
  // A column that this table does not have (state, for example) is None.
  if (tensor.empty()) return py::none();
  const auto dims = tensor.shape().dims();
  return py::cast(Array{batch,
                        tensor.bytes().data(),
                        FormatOf(tensor.dtype()),
                        py::ssize_t(DTypeSize(tensor.dtype())),
                        {dims.begin(), dims.end()}});
}

// Description for the buffer protocol: row-major, without padding between rows.
py::buffer_info BufferOf(Array& array) {
  return py::buffer_info(array.data, array.item_bytes, array.format,
                         py::ssize_t(array.shape.size()), array.shape,
                         py::detail::c_strides(array.shape, array.item_bytes));
}

// ---- Options ----------------------------------------------------------------------------------

// Element types that Python may declare; bf16 is missing, because NumPy has no such type.
DType DTypeOfFormat(const std::string& name) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kU8, DType::kI32, DType::kI64, DType::kU64, DType::kU32}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  throw StatusError(
      InvalidArgument("element type is {}, must be f32, f64, u8, u32, i32, i64 or u64", name));
}

// Observation, action or state as Python passes it: (element type, sizes of one row).
TensorSpec SpecOf(const py::handle& pair) {
  const auto [name, dims] = pair.cast<std::pair<std::string, std::vector<std::int64_t>>>();
  if (dims.size() > std::size_t(Shape::kMaxRank) ||
      !std::ranges::all_of(dims, [](std::int64_t dim) { return dim > 0 && dim < (1 << 30); })) {
    throw StatusError(
        InvalidArgument("a shape must have up to {} positive sizes", Shape::kMaxRank));
  }
  return {DTypeOfFormat(name), Shape(std::span<const std::int64_t>(dims))};
}

// Absent keys keep the defaults of Table::Options. Keys without a default are always set by the
// package; without them the lookup raises KeyError.
Table::Options TableOptionsOf(const py::dict& fields) {
  Table::Options options;
  const auto take = [&fields](const char* name, auto* value) {
    if (fields.contains(name)) *value = fields[name].cast<std::remove_pointer_t<decltype(value)>>();
  };
  take("name", &options.name);
  options.trajectory.observation = SpecOf(fields["observation"]);
  options.trajectory.action = SpecOf(fields["action"]);
  if (fields.contains("state")) options.trajectory.state = SpecOf(fields["state"]);
  const bool sequence = fields["sequence"].cast<bool>();
  options.view.kind = sequence ? ViewSpec::Kind::kSequence : ViewSpec::Kind::kTransition;
  take("length", &options.view.length_max);
  take("stack", &options.view.stack);
  take("burn_in", &options.view.burn_in);
  options.codec = Ensure(ParseCodec(fields["codec"].cast<std::string>()));
  take("capacity", &options.capacity_items);
  take("min_items", &options.min_items);
  options.sampler.kind = Ensure(ParseSelector(fields["sampler"].cast<std::string>()));
  options.remover.kind = Ensure(ParseSelector(fields["remover"].cast<std::string>()));
  take("alpha", &options.sampler.alpha);
  take("remover_alpha", &options.remover.alpha);
  take("reservoir", &options.reservoir);
  take("priority_epsilon", &options.priority_epsilon);
  take("max_times_sampled", &options.max_times_sampled);
  take("max_policy_age", &options.max_policy_age);
  take("bytes_max", &options.bytes_max);
  take("seed", &options.seed);
  return options;
}

// ---- Ends -------------------------------------------------------------------------------------

// Python threads may share a writer or sampler: the mutex serializes calls.
struct Writer {
  std::mutex mutex;
  StepWriter writer;

  void Append(const py::object& observation, const py::object& action, const py::object& reward,
              const py::object& terminated, const py::object& truncated,
              const py::object& next_observation, const py::object& state,
              const py::object& priority, const py::object& skip, std::uint64_t policy_version,
              double timeout_s) {
    // The buffers are held until the writer has copied the step, over all slices of Wait.
    const Input in_observation(observation), in_action(action), in_reward(reward),
        in_terminated(terminated), in_truncated(truncated), in_next(next_observation),
        in_state(state), in_priority(priority), in_skip(skip);
    const TrajectoryCutter::Steps steps{.observation = in_observation.bytes(),
                                        .action = in_action.bytes(),
                                        .next_observation = in_next.bytes(),
                                        .state = in_state.bytes(),
                                        .reward = in_reward.as<float>(),
                                        .priority = in_priority.as<float>(),
                                        .terminated = in_terminated.as<std::uint8_t>(),
                                        .truncated = in_truncated.as<std::uint8_t>(),
                                        .skip = in_skip.as<std::uint8_t>(),
                                        .policy_version = policy_version};
    // The mutex is taken without the GIL, so that a thread that waits for room does not stop
    // Python.
    Ensure(Wait(timeout_s, [&](Time until) {
      const std::lock_guard lock(mutex);
      return writer.Append(steps, until);
    }));
  }
  void Flush(double timeout_s) {
    Ensure(Wait(timeout_s, [&](Time until) {
      const std::lock_guard lock(mutex);
      return writer.Flush(until);
    }));
  }
  void Break(int environment) {
    if (environment < 0 || environment >= writer.options().environments) {
      throw StatusError(InvalidArgument("environment {} of {} does not exist", environment,
                                        writer.options().environments));
    }
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex);
    writer.Break(environment);
  }
};

// Sampler of a local or a remote table. `mutex` protects the source, which one thread at a time may
// use.
struct Sampler {
  std::mutex mutex;
  std::unique_ptr<BatchSource> source;

  BatchSlot Sample(double timeout_s) {
    return Ensure(Wait(timeout_s, [&](Time until) {
      const std::lock_guard lock(mutex);
      return source->Sample(until);
    }));
  }
  void Update(const py::object& key, const py::object& priority) {
    // Declared before `release`, so that the buffers are returned with the GIL held.
    const Input in_key(key), in_priority(priority);
    const auto keys = in_key.as<std::uint64_t>();
    const auto priorities = in_priority.as<float>();
    const py::gil_scoped_release release;
    const std::lock_guard lock(mutex);
    Ensure(source->Update(keys, priorities));
  }
};

// Checks the numbers from Python, for which StepWriter and TrajectoryCutter would abort.
std::unique_ptr<Writer> MakeWriter(const TrajectorySpec& spec, const ViewSpec& view,
                                   int environments, int period, std::uint64_t first_stream,
                                   int steps_per_push, std::unique_ptr<ExperienceSink> sink) {
  // Environment numbers take the low 16 bits of a stream id (NewStreams).
  constexpr int kMost = 1 << 16;
  if (environments < 1 || environments > kMost || period < 1 || period > kMost ||
      steps_per_push < 1 || steps_per_push > kMost) {
    throw StatusError(
        InvalidArgument("environments ({}), period ({}) and steps_per_push ({}) must be 1 to {}",
                        environments, period, steps_per_push, kMost));
  }
  const TrajectoryCutter::Options options{.spec = spec,
                                          .view = view,
                                          .environments = environments,
                                          .period = period,
                                          .first_stream = first_stream};
  return std::unique_ptr<Writer>(
      new Writer{{}, StepWriter(options, steps_per_push, std::move(sink))});
}

void BindBatch(py::module_& module) {
  py::class_<Array>(module, "Array", py::buffer_protocol()).def_buffer(&BufferOf);
  // Batch properties do not copy: each gives an Array that keeps the batch alive.
  py::class_<KeyedBatch, BatchSlot>(module, "Batch")
      .def("__len__", [](const KeyedBatch& b) { return b.size(); })
      .def_property_readonly("key", [](const BatchSlot& b) { return ArrayOf(b, &b->code); })
      .def_property_readonly("probability",
                             [](const BatchSlot& b) { return ArrayOf(b, &b->probability); })
      .def_property_readonly("weight", [](const BatchSlot& b) { return ArrayOf(b, &b->weight); })
      .def_property_readonly("length", [](const BatchSlot& b) { return ArrayOf(b, &b->length); })
      .def_property_readonly("policy_version",
                             [](const BatchSlot& b) { return ArrayOf(b, &b->policy_version); })
      .def_property_readonly("observation",
                             [](const BatchSlot& b) { return ArrayOf(b, b->observation); })
      .def_property_readonly("next_observation",
                             [](const BatchSlot& b) { return ArrayOf(b, b->next_observation); })
      .def_property_readonly("action", [](const BatchSlot& b) { return ArrayOf(b, b->action); })
      .def_property_readonly("reward", [](const BatchSlot& b) { return ArrayOf(b, b->reward); })
      .def_property_readonly("burn_in", [](const BatchSlot& b) { return ArrayOf(b, &b->burn_in); })
      .def_property_readonly("state", [](const BatchSlot& b) { return ArrayOf(b, b->state); })
      .def_property_readonly("discount",
                             [](const BatchSlot& b) { return ArrayOf(b, b->discount); });
}

void BindEnds(py::module_& module) {
  py::class_<Writer>(module, "Writer")
      .def("append", &Writer::Append)
      .def("flush", &Writer::Flush)
      .def("break_episode", &Writer::Break)
      .def_property_readonly("steps", [](const Writer& w) { return w.writer.steps(); })
      .def_property_readonly("items", [](const Writer& w) { return w.writer.items(); });
  py::class_<Sampler>(module, "Sampler")
      .def("sample", &Sampler::Sample)
      .def("update_priorities", &Sampler::Update);
}

void BindLocalReplay(py::module_& module) {
  py::class_<LocalReplay>(module, "LocalReplay")
      .def(py::init([](const py::dict& table) {
        // Python objects are read before the GIL is released.
        const Table::Options options = TableOptionsOf(table);
        const py::gil_scoped_release release;
        return Ensure(LocalReplay::Make(options));
      }))
      .def("writer",
           [](LocalReplay& replay, int environments, int period, std::uint64_t first_stream,
              int steps_per_push) {
             const Table::Options& options = replay.options();
             return MakeWriter(options.trajectory, options.view, environments, period, first_stream,
                               steps_per_push, replay.MakeSink());
           })
      .def("sampler",
           [](LocalReplay& replay, std::int64_t batch_size, double beta, int decode_threads) {
             auto source = Ensure(replay.MakeSource({batch_size, beta, decode_threads}));
             return std::unique_ptr<Sampler>(new Sampler{{}, std::move(source)});
           })
      .def("counts", [](const LocalReplay& replay) {
        const LocalReplay::Counts counts = replay.counts();
        py::dict out;
        out["items"] = counts.items;
        out["frames"] = counts.frames;
        out["evicted"] = counts.evicted;
        out["bytes"] = counts.bytes;
        return out;
      });
}

// Deadline of a call that is not cut into slices: Ctrl-C takes effect only after its end.
Time After(double timeout_s) {
  return SystemClock().Now() + Seconds(std::clamp(timeout_s, 0.0, 1e9));
}

// Inverse of SpecOf.
py::object ToPython(const TensorSpec& spec) {
  const auto dims = spec.shape.dims();
  return py::make_tuple(std::string(DTypeName(spec.dtype)),
                        std::vector<std::int64_t>(dims.begin(), dims.end()));
}

// Table as its server describes it. Keys are those of TableOptionsOf where both have them.
py::dict ToPython(const TableInfo& info) {
  const TableDescription table = Ensure(ParseTableInfo(info));
  py::dict out;
  out["name"] = table.name;
  out["observation"] = ToPython(table.trajectory.observation);
  out["action"] = ToPython(table.trajectory.action);
  if (table.trajectory.state) out["state"] = ToPython(*table.trajectory.state);
  out["sequence"] = table.view.kind == ViewSpec::Kind::kSequence;
  out["length"] = table.view.length_max;
  out["stack"] = table.view.stack;
  out["burn_in"] = table.view.burn_in;
  out["codec"] = std::string(EnumName(table.codec));
  out["capacity"] = info.capacity_items;
  out["min_items"] = info.min_items;
  out["items"] = info.items;
  out["samples_per_insert"] = info.samples_per_insert;
  out["durable"] = info.durable;
  return out;
}

// Stream ids, unique over all writers of all clients: 48 random bits above the environment's
// number.
std::uint64_t NewStreams() {
  // Birthday bound: among 1,000 writers two ids are equal with a probability of 2e-9.
  std::random_device random;
  return std::uint64_t{random()} << 32 | std::uint64_t{random() & 0xFFFFu} << 16;
}

void BindService(py::module_& module) {
  // For bodies that touch no Python object: the GIL is free while they wait for the network.
  // Arguments and results are converted outside this guard.
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<ServiceClient>(module, "Client")
      .def(py::init(
          [](std::vector<std::string> endpoints, const std::string& key, double timeout_s) {
            const py::gil_scoped_release release;
            return Ensure(ServiceClient::Make(std::move(endpoints), key, After(timeout_s)));
          }))
      .def("tables",
           [](ServiceClient& client, double timeout_s) {
             {
               const py::gil_scoped_release release;
               Ensure(client.Refresh(After(timeout_s)));
             }
             py::list tables;
             for (const TableInfo& info : client.tables()) tables.append(ToPython(info));
             return tables;
           })
      .def(
          "stats",
          [](ServiceClient& client, double timeout_s) {
            return Ensure(client.Stats(After(timeout_s)));
          },
          Release())
      .def(
          "reconfigure",
          [](ServiceClient& client, const std::string& table, double samples_per_insert,
             double samples_per_insert_tolerance_rate, std::int64_t min_items, double timeout_s) {
            // A table has the same number on every shard (ServiceClient::Refresh).
            const std::uint32_t number = Ensure(client.Find(table)).number;
            Ensure(client.Reconfigure(
                {number, samples_per_insert, samples_per_insert_tolerance_rate, min_items},
                After(timeout_s)));
          },
          Release())
      .def(
          "writer",
          [](ServiceClient& client, const std::string& table, int environments, int period,
             int steps_per_push, int window) {
            const auto found = Ensure(client.Find(table));
            return MakeWriter(found.description.trajectory, found.description.view, environments,
                              period, NewStreams(), steps_per_push,
                              Ensure(client.MakeSink(found, window)));
          },
          Release())
      .def(
          "sampler",
          [](ServiceClient& client, const std::string& table, std::int64_t batch_size, double beta,
             int prefetch, int decode_threads) {
            auto source = Ensure(client.MakeSource(Ensure(client.Find(table)),
                                                   {batch_size, beta, prefetch, decode_threads}));
            return std::unique_ptr<Sampler>(new Sampler{{}, std::move(source)});
          },
          Release());
  py::class_<ServiceServer>(module, "Server")
      .def(py::init([](const py::list& tables, const std::string& endpoint,
                       const std::string& folder, bool ack_on_disk, const std::string& key,
                       bool insecure) {
        ServiceServer::Options options{.endpoint = endpoint,
                                       .folder = folder,
                                       .ack_on_disk = ack_on_disk,
                                       .key = key,
                                       .insecure = insecure};
        for (const py::handle& table : tables) {
          const auto fields = table.cast<py::dict>();
          // The rate limiter has its own keys, which tables of a LocalReplay lack.
          options.tables.push_back({TableOptionsOf(fields),
                                    fields["samples_per_insert"].cast<double>(),
                                    fields["samples_per_insert_tolerance_rate"].cast<double>()});
        }
        const py::gil_scoped_release release;
        return Ensure(ServiceServer::Make(options));
      }))
      .def_property_readonly("endpoint", &ServiceServer::endpoint);
}

}  // namespace
}  // namespace troop

PYBIND11_MODULE(_native, module) {
  // Warnings and errors only: reconnects are not for a user's terminal.
  troop::InitLog({.role = "troop_replay", .level = troop::LogLevel::kWarning});
  module.attr("version") = std::string(troop::kTroopVersion);
  // Exceptions of other types keep the translation of pybind11.
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const troop::StatusError& e) {
      troop::RaiseStatus(e.status);
    }
  });
  troop::BindBatch(module);
  troop::BindEnds(module);
  troop::BindLocalReplay(module);
  troop::BindService(module);
}
