// Emulated devices for tests. Work of streams is queued until a caller waits for it. Then the
// streams take turns in a random order drawn from SetSchedule's seed, so that work without an order
// by events runs in any order.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <set>
#include <vector>

#include "kernels/cuda/emulator/emulator.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/cuda/runtime/memory_pool.h"

namespace troop::cuda {
namespace {

// Emulated GPU memory, small enough for tests of its exhaustion.
constexpr std::size_t kMemoryBytes = std::size_t(1) << 30;
std::atomic<std::size_t> memory_in_use = 0;  // of all devices, which may have different threads

// State of an event. Records are numbered (tickets). Records within a capture complete at once,
// while earlier ones may still be queued; so completed tickets are not contiguous.
struct EventState {
  std::uint64_t recorded = 0;
  std::uint64_t all_done = 0;            // all tickets up to this one are done
  std::set<std::uint64_t> done_already;  // later tickets that are done
  bool Done(std::uint64_t ticket) const {
    return ticket <= all_done || done_already.contains(ticket);
  }
  void SetDone(std::uint64_t ticket) {
    done_already.insert(ticket);
    while (done_already.erase(all_done + 1) > 0) ++all_done;
  }
};

// An entry of a stream's queue: work, a record of an event, or a wait for its `ticket`.
struct Task {
  enum class Kind { kWork, kRecord, kWait } kind = Kind::kWork;
  std::function<void()> work;
  EventState* event = nullptr;
  std::uint64_t ticket = 0;
};

struct StreamState {
  std::deque<Task> tasks;
};

// A captured graph: tasks in the order of the capture, with their streams.
struct GraphState {
  StreamState* origin = nullptr;
  std::vector<std::pair<StreamState*, Task>> tasks;
  std::set<StreamState*> members;
  std::set<const EventState*> events;  // recorded by members
};

}  // namespace

struct DeviceState {
  DeviceInfo info;
  std::string error;
  MemoryPool pool{[](std::size_t bytes) -> void* {
                    if (memory_in_use.fetch_add(bytes) + bytes > kMemoryBytes) {
                      memory_in_use -= bytes;
                      return nullptr;
                    }
                    // The size is stored before the block, for the release.
                    auto* at = static_cast<std::byte*>(std::aligned_alloc(256, bytes + 256));
                    std::memcpy(at, &bytes, sizeof bytes);
                    return at + 256;
                  },
                  [](void* memory) {
                    std::byte* at = static_cast<std::byte*>(memory) - 256;
                    std::size_t bytes;
                    std::memcpy(&bytes, at, sizeof bytes);
                    memory_in_use -= bytes;
                    std::free(at);
                  }};
  std::vector<StreamState*> streams;
  GraphState* capturing = nullptr;
  std::uint64_t draws = emulator::Schedule();
};

namespace {

// The handle of an emulated stream is its state.
StreamState* StateOf(const Stream& stream) { return static_cast<StreamState*>(stream.handle()); }

// Runs one task of a random stream that is not blocked; false: there is none.
bool RunOne(const std::vector<StreamState*>& streams, std::uint64_t* draws) {
  if (streams.empty()) return false;
  // An LCG (Knuth's MMIX); its upper bits are random enough here.
  *draws = *draws * 6364136223846793005u + 1442695040888963407u;
  const std::size_t first = (*draws >> 33) % streams.size();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    StreamState& stream = *streams[(first + i) % streams.size()];
    if (stream.tasks.empty()) continue;
    Task& task = stream.tasks.front();
    // A blocked stream; try the next one.
    if (task.kind == Task::Kind::kWait && !task.event->Done(task.ticket)) continue;
    if (task.kind == Task::Kind::kRecord) task.event->SetDone(task.ticket);
    const std::function<void()> work = std::move(task.work);
    stream.tasks.pop_front();
    if (work) work();
    return true;
  }
  return false;
}

// Runs tasks until finished(). Aborts on a deadlock, which CUDA would hang in.
template <class Finished>
void RunUntil(DeviceState* device, const Finished& finished) {
  while (!finished()) {
    if (RunOne(device->streams, &device->draws)) continue;
    std::fprintf(stderr, "deadlock: streams wait for events that no stream records\n");
    std::abort();
  }
}

// Queues a task, or records it if a capture is active. A stream joins a capture by waiting for an
// event of it.
void Add(Device& device, StreamState* stream, Task task) {
  if (!device.ok()) return;
  GraphState* graph = device.state()->capturing;
  // No capture: queue it.
  if (graph == nullptr) {
    stream->tasks.push_back(std::move(task));
    return;
  }
  if (task.kind == Task::Kind::kWait && graph->events.contains(task.event))
    graph->members.insert(stream);
  if (!graph->members.contains(stream)) {
    device.Fail("a stream outside the capture was used during it");
    return;
  }
  if (task.kind == Task::Kind::kRecord) graph->events.insert(task.event);
  graph->tasks.emplace_back(stream, std::move(task));
}

}  // namespace

int Device::Count() { return 1; }

std::unique_ptr<Device> Device::Open(int ordinal, std::string* error) {
  if (ordinal != 0) {
    *error = "GPU " + std::to_string(ordinal) + " does not exist; the only emulated GPU is 0";
    return nullptr;
  }
  // Properties of a Hopper GPU with 4 multiprocessors.
  auto state = std::make_unique<DeviceState>();
  state->info = {"emulated", 9, 0, 4, kMemoryBytes, std::size_t(50) << 20, 232448, true};
  return std::unique_ptr<Device>(new Device(std::move(state)));
}
Device::Device(std::unique_ptr<DeviceState> state) : state_(std::move(state)) {}
Device::~Device() = default;

const DeviceInfo& Device::info() const { return state_->info; }
std::size_t Device::FreeBytes() const { return kMemoryBytes - memory_in_use; }
const std::string& Device::error() const { return state_->error; }
void Device::Fail(std::string why) {
  if (state_->error.empty()) state_->error = std::move(why);
}
// Waiting is what runs the queued work.
void Device::Synchronize() {
  RunUntil(state_.get(), [&] {
    return std::ranges::all_of(state_->streams, [](const auto* s) { return s->tasks.empty(); });
  });
}

void* Device::Allocate(std::size_t bytes, std::string_view what) {
  if (!ok()) return nullptr;
  void* memory = state_->pool.Allocate(bytes);
  if (memory == nullptr) {
    Fail(OutOfMemory("GPU", what, bytes, FreeBytes(), kMemoryBytes));
    return nullptr;
  }
  // 0xff bytes are NaN in f32 and bf16: use of uninitialized memory shows in results.
  std::memset(memory, 0xff, MemoryPool::Rounded(bytes));
  return memory;
}
void Device::Free(void* memory) {
  Synchronize();
  // Use after free shows as NaN; 256 bytes is the smallest block.
  std::memset(memory, 0xff, 256);
  state_->pool.Free(memory);
}
void* Device::AllocatePinned(std::size_t bytes, std::string_view) {
  return ok() ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
}
void Device::FreePinned(void* memory) {
  Synchronize();
  std::free(memory);
}
std::int64_t Device::driver_allocations() const { return state_->pool.taken(); }

Stream::Stream(Device& device) : device_(device), handle_(new StreamState) {
  device.state()->streams.push_back(StateOf(*this));
}
Stream::~Stream() {
  Synchronize();
  std::erase(device_.state()->streams, StateOf(*this));
  delete StateOf(*this);
}
// Host and device memory are the same; only the order of copies is emulated.
void Stream::CopyToDevice(void* to, const void* from, std::size_t bytes) {
  emulator::Enqueue(*this, [=] { std::memcpy(to, from, bytes); });
}
void Stream::CopyToHost(void* to, const void* from, std::size_t bytes) {
  emulator::Enqueue(*this, [=] { std::memcpy(to, from, bytes); });
}
void Stream::CopyOnDevice(void* to, const void* from, std::size_t bytes) {
  emulator::Enqueue(*this, [=] { std::memcpy(to, from, bytes); });
}
void Stream::Fill(void* to, std::uint8_t byte, std::size_t bytes) {
  emulator::Enqueue(*this, [=] { std::memset(to, byte, bytes); });
}
void Stream::Wait(const Event& event) {
  auto* state = static_cast<EventState*>(event.handle());
  Add(device_, StateOf(*this), {Task::Kind::kWait, {}, state, state->recorded});
}
void Stream::Synchronize() {
  if (device_.state()->capturing != nullptr)
    device_.Fail("a stream must not be synchronized during a capture");
  RunUntil(device_.state(), [&] { return StateOf(*this)->tasks.empty(); });
}

void* Stream::Share() {
  Synchronize();
  return reinterpret_cast<void*>(std::uintptr_t{1});
}

namespace emulator {
void Enqueue(Stream& stream, std::function<void()> work) {
  Add(stream.device(), StateOf(stream), {Task::Kind::kWork, std::move(work), nullptr, 0});
}
}  // namespace emulator

Event::Event(Device& device) : device_(device), handle_(new EventState) {}
Event::~Event() {
  device_.Synchronize();
  delete static_cast<EventState*>(handle_);
}
void Event::Record(Stream& stream) {
  auto* state = static_cast<EventState*>(handle_);
  Add(device_, StateOf(stream), {Task::Kind::kRecord, {}, state, ++state->recorded});
}
void Event::Synchronize() {
  const auto* state = static_cast<EventState*>(handle_);
  RunUntil(device_.state(), [&] { return state->Done(state->recorded) || !device_.ok(); });
}
bool Event::Done() const {
  const auto* state = static_cast<EventState*>(handle_);
  return state->Done(state->recorded);
}
// Emulated time is meaningless.
float Event::MillisecondsSince(const Event&) const { return 0; }

Graph::Graph(Device& device) : device_(device) {}
Graph::~Graph() {
  device_.Synchronize();
  delete static_cast<GraphState*>(handle_);
}
void Graph::Begin(Stream& stream) {
  if (!device_.ok()) return;
  if (device_.state()->capturing != nullptr)
    return device_.Fail("a capture began while another is active");
  auto* graph = new GraphState;
  graph->origin = StateOf(stream);
  graph->members.insert(graph->origin);
  device_.state()->capturing = graph;
}
void Graph::End(Stream& stream) {
  GraphState* graph = device_.state()->capturing;
  device_.state()->capturing = nullptr;
  if (graph == nullptr) return;
  // CUDA refuses a capture with unjoined streams. Backwards from the end: a stream is joined if a
  // joined stream waits for a record that is its last task.
  std::set<StreamState*> joined = {StateOf(stream)};
  std::set<std::pair<const EventState*, std::uint64_t>> awaited;
  std::set<StreamState*> ended;
  for (auto at = graph->tasks.rbegin(); at != graph->tasks.rend(); ++at) {
    const auto& [owner, task] = *at;
    if (task.kind == Task::Kind::kRecord && awaited.contains({task.event, task.ticket}) &&
        !ended.contains(owner)) {
      joined.insert(owner);
    }
    if (task.kind == Task::Kind::kWait && joined.contains(owner))
      awaited.insert({task.event, task.ticket});
    ended.insert(owner);
  }
  if (joined.size() < graph->members.size())
    device_.Fail("a captured stream was not joined to the stream that began the capture");
  // Outside the capture, its events count as done.
  for (auto& [owner, task] : graph->tasks) {
    if (task.kind == Task::Kind::kRecord) task.event->SetDone(task.ticket);
  }
  delete static_cast<GraphState*>(handle_);
  handle_ = graph;
}
void Graph::Launch(Stream& stream) {
  const auto* graph = static_cast<const GraphState*>(handle_);
  emulator::Enqueue(stream, [this, graph] {
    // Each launch has its own copies of streams and events.
    std::map<StreamState*, StreamState> streams;
    std::map<std::pair<EventState*, std::uint64_t>, EventState> events;
    for (const auto& [owner, task] : graph->tasks) {
      Task mine = task;
      if (task.event != nullptr) {
        mine.event = &events[{task.event, task.ticket}];
        mine.ticket = 1;
      }
      streams[owner].tasks.push_back(std::move(mine));
    }
    std::vector<StreamState*> all;
    for (auto& [owner, copy] : streams) all.push_back(&copy);
    while (RunOne(all, &device_.state()->draws)) {
    }
    // Tasks that are left wait for events outside the graph.
    for (const StreamState* s : all) {
      if (!s->tasks.empty()) device_.Fail("a graph waits for an event that it does not record");
    }
  });
}

}  // namespace troop::cuda
