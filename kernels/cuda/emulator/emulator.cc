// Implements the emulator: the threads of a block are fibers of one OS thread.
#include "kernels/cuda/emulator/emulator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/cuda/emulator/fibre_context.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace troop::cuda {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;  // reserved; only touched pages take memory
constexpr std::size_t kSharedBytes = 232448;     // per block at compute capability 9.0
constexpr std::size_t kStaticBytes = 48 * 1024;  // part of it that may be static

constexpr std::size_t kLeftBytes = 4096;  // limit for frames on an abandoned stack

// An asynchronous copy of 16 bytes.
struct Copy {
  void* to;
  const void* from;
  bool valid;
};

// kMeeting: suspended in Meet until the other lanes arrive.
enum class State { kReady, kAtBarrier, kMeeting, kDone };

// A thread of the block. Its stack is the one on which it has started, until it is done.
struct Fibre {
  Context context{};
  void* stack = nullptr;  // nullptr: not started, or done
  void* sanitizer_stack = nullptr;
  State state = State::kDone;
  dim3 index;
  std::vector<Copy> copies;              // not committed yet
  std::deque<std::vector<Copy>> groups;  // committed, not done
};

// A warp function in progress; `here` has the lanes that have arrived.
struct Meeting {
  emulator::Combine combine = nullptr;
  unsigned mask = 0, here = 0;
  const void* in[32] = {};
  void* out[32] = {};
};

// State of an OS thread that runs kernels, one grid at a time.
struct Machine {
  ~Machine() {
    for (void* stack : stacks) {
#if defined(__SANITIZE_ADDRESS__)  // what these pages are used for next has no frames there
      __asan_unpoison_memory_region(stack, kStackBytes);
#endif
      munmap(stack, kStackBytes);
    }
  }
  // The grid that runs: its order of threads, its name for messages, and its code.
  std::uint64_t schedule = 0;
  const char* kernel = "";
  const std::function<void()>* body = nullptr;
  // Threads of the block, their stacks, and a meeting per warp; kept from block to block.
  std::vector<std::unique_ptr<Fibre>> fibres;
  std::vector<void*> stacks, free_stacks;
  std::vector<Meeting> warps;
  // The context that runs blocks; the sanitizer needs the bounds of its stack.
  Context scheduler{};
  const void* scheduler_stack = nullptr;
  std::size_t scheduler_stack_bytes = 0;
  void* scheduler_sanitizer = nullptr;
  int running = -1, threads = 0;
  std::span<const int> turns;  // threads of a RunOnce call; the first `turn` had their turn
  std::size_t turn = 0;
  // Shared memory of the block: the dynamic part, and each static variable by its address.
  std::byte* dynamic = nullptr;
  std::size_t dynamic_bytes = 0;
  std::map<const void*, std::unique_ptr<std::byte[]>> shared;
  std::size_t static_bytes = 0;
};
// Created when an OS thread first runs a kernel. `mine` is a plain pointer, because access to a
// thread_local with a constructor checks for initialization each time.
struct Owner {
  std::unique_ptr<Machine> machine;
};
thread_local Owner owner;
constinit thread_local Machine* mine = nullptr;

// Out of line, so that Mine stays small enough to be inlined.
[[gnu::noinline]] void MakeMine() {
  owner.machine = std::make_unique<Machine>();
  mine = owner.machine.get();
}

// State of the calling OS thread.
inline Machine& Mine() {
  if (mine == nullptr) MakeMine();
  return *mine;
}

// SplitMix64 (Steele et al. 2014): equal schedules give equal orders on every machine.
std::uint64_t NextDraw(std::uint64_t* state) {
  *state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = *state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// Shuffles an order (Fisher-Yates), for schedules from 2 on.
void MakeOrder(std::uint64_t* draws, std::vector<int>* order) {
  if (Mine().schedule < 2) return;
  for (std::size_t i = order->size(); i > 1; --i)
    std::swap((*order)[i - 1], (*order)[NextDraw(draws) % i]);
}

// Ascending, or descending for schedule 1.
std::vector<int> FirstOrder(int n) {
  std::vector<int> order(std::size_t(n), 0);
  std::iota(order.begin(), order.end(), 0);
  if (Mine().schedule == 1) std::reverse(order.begin(), order.end());
  return order;
}

// The next thread in turn that is ready; -1: none.
int NextTurn() {
  Machine& mine = Mine();
  while (mine.turn < mine.turns.size()) {
    const int thread = mine.turns[mine.turn++];
    if (mine.fibres[std::size_t(thread)]->state == State::kReady) return thread;
  }
  return -1;
}

// A stack for a thread that starts; those of finished threads are used again. Pages are reserved
// without memory behind them until they are touched.
void* TakeStack() {
  Machine& mine = Mine();
  if (mine.free_stacks.empty()) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) emulator::Die("out of memory for thread stacks");
    mine.stacks.push_back(stack);
    return stack;
  }
  void* stack = mine.free_stacks.back();
  mine.free_stacks.pop_back();
#if defined(__SANITIZE_ADDRESS__)  // of Run and SwitchTo, which were left and did not return
  __asan_unpoison_memory_region(static_cast<std::byte*>(stack) + kStackBytes - kLeftBytes,
                                kLeftBytes);
#endif
  return stack;
}

// Device code reads its index from threadIdx, a variable of the OS thread.
void SetRunning(int thread) {
  Mine().running = thread;
  threadIdx = Mine().fibres[std::size_t(thread)]->index;
}

void Run();

// Switches from `from` to a thread, or to the scheduler (-1). Returns when another fiber switches
// back; sanitizer_stack is null if none will.
void SwitchTo(int thread, Context* from, [[maybe_unused]] void** sanitizer_stack) {
  Context* to = &Mine().scheduler;
  [[maybe_unused]] const void* stack = Mine().scheduler_stack;
  [[maybe_unused]] std::size_t stack_bytes = Mine().scheduler_stack_bytes;
  if (thread >= 0) {
    SetRunning(thread);
    Fibre& fibre = *Mine().fibres[std::size_t(thread)];
    if (fibre.stack == nullptr) {
      fibre.stack = TakeStack();
      Prepare(&fibre.context, fibre.stack, kStackBytes, &Run);
    }
    to = &fibre.context;
    stack = fibre.stack;
    stack_bytes = kStackBytes;
  }
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(sanitizer_stack, stack, stack_bytes);
#endif
  Switch(from, to);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(*sanitizer_stack, nullptr, nullptr);
#endif
}

// Suspends the running thread and continues another one.
void Yield(State state) {
  Fibre& fibre = *Mine().fibres[std::size_t(Mine().running)];
  fibre.state = state;
  SwitchTo(NextTurn(), &fibre.context, &fibre.sanitizer_stack);
}

// Entry point of a stack: runs threads one after the other on it. Most kernels have no barrier and
// need one stack for all threads of a block.
void Run() {
#if defined(__SANITIZE_ADDRESS__)
  const void* from = nullptr;
  std::size_t from_bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &from, &from_bytes);
  if (Mine().scheduler_stack == nullptr) {  // the first stack of all is left by the scheduler
    Mine().scheduler_stack = from;
    Mine().scheduler_stack_bytes = from_bytes;
  }
#endif
  void* const stack = Mine().fibres[std::size_t(Mine().running)]->stack;
  for (;;) {
    (*Mine().body)();
    Fibre& fibre = *Mine().fibres[std::size_t(Mine().running)];
    if (!fibre.copies.empty() || !fibre.groups.empty())
      emulator::Die("a thread exits with copies in flight: CopyWait<0> is missing");
    fibre.state = State::kDone;
    fibre.stack = nullptr;
    const int next = NextTurn();
    if (next < 0 || Mine().fibres[std::size_t(next)]->stack != nullptr) {
      Mine().free_stacks.push_back(stack);  // not reused before the switch
      SwitchTo(next, &fibre.context, nullptr);
    }
    Mine().fibres[std::size_t(next)]->stack = stack;
    SetRunning(next);
  }
}

// Prepares a thread of a new block; x is the fastest index, as in CUDA.
void StartFibre(int thread, dim3 block) {
  Fibre& fibre = *Mine().fibres[std::size_t(thread)];
  const auto i = unsigned(thread);
  fibre.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  fibre.state = State::kReady;
  fibre.copies.clear();
  fibre.groups.clear();
}

// Fibers are created once for the largest block so far.
void AddFibres(int threads) {
  while (int(Mine().fibres.size()) < threads) Mine().fibres.push_back(std::make_unique<Fibre>());
}

// Releases the barrier if all remaining threads have reached it; false otherwise.
bool Release() {
  int at_barrier = 0, done = 0;
  for (int t = 0; t < Mine().threads; ++t) {
    at_barrier += Mine().fibres[std::size_t(t)]->state == State::kAtBarrier;
    done += Mine().fibres[std::size_t(t)]->state == State::kDone;
  }
  if (at_barrier == 0 || at_barrier + done < Mine().threads) return false;
  for (int t = 0; t < Mine().threads; ++t) {
    State& state = Mine().fibres[std::size_t(t)]->state;
    if (state == State::kAtBarrier) state = State::kReady;
  }
  return true;
}

// Some threads are suspended and none can continue.
void ReportStuck() {
  for (int t = 0; t < Mine().threads; ++t) {
    const State state = Mine().fibres[std::size_t(t)]->state;
    if (state == State::kMeeting) {
      Mine().running = t;
      threadIdx = Mine().fibres[std::size_t(t)]->index;
      emulator::Die("not all lanes of its mask reach a warp function");
    }
  }
  emulator::Die("not all threads of the block reach a barrier");
}

// Runs each ready thread of `order` once; false: none was ready.
bool RunOnce(std::span<const int> order) {
  Mine().turns = order;
  Mine().turn = 0;
  const int first = NextTurn();
  if (first < 0) return false;
  SwitchTo(first, &Mine().scheduler, &Mine().scheduler_sanitizer);
  Mine().running = -1;
  return true;
}

// Runs one block: all threads up to the next barrier, in a new random order each time.
void RunBlock(dim3 block, std::uint64_t* draws) {
  Mine().shared.clear();
  Mine().static_bytes = 0;
  std::fill_n(Mine().dynamic, Mine().dynamic_bytes, std::byte{0xff});
  const int warps = (Mine().threads + 31) / 32;
  Mine().warps.assign(std::size_t(warps), Meeting{});
  for (int t = 0; t < Mine().threads; ++t) StartFibre(t, block);
  std::vector<int> order = FirstOrder(Mine().threads), warp_order = FirstOrder(warps);
  std::vector<std::vector<int>> lanes{std::size_t(warps)};
  const bool fair = Mine().schedule > 2 && Mine().schedule % 2 == 1;
  do {
    MakeOrder(draws, &order);
    MakeOrder(draws, &warp_order);
    if (fair) {  // all threads in turn
      while (RunOnce(order)) {
      }
      continue;
    }
    for (std::vector<int>& warp : lanes) warp.clear();
    for (const int t : order) lanes[std::size_t(t / 32)].push_back(t);
    for (const int w : warp_order) {  // each warp as far as possible: it may overwrite data that
                                      // other warps have not read yet
      while (RunOnce(lanes[std::size_t(w)])) {
      }
    }
  } while (Release());
  for (int t = 0; t < Mine().threads; ++t)
    if (Mine().fibres[std::size_t(t)]->state != State::kDone) ReportStuck();
}

// Executes asynchronous copies.
void Perform(const std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.valid) {
      std::memcpy(copy.to, copy.from, 16);
    } else {
      std::memset(copy.to, 0, 16);
    }
  }
}

// The running thread of the emulated block.
Fibre& Running() {
  if (Mine().running < 0) emulator::Die("device code outside a kernel");
  return *Mine().fibres[std::size_t(Mine().running)];
}

float Element(std::uint32_t pair, int i) { return ToFloat(BF16{std::uint16_t(pair >> (16 * i))}); }

struct Fragments {
  float d[4];
  std::uint32_t a[4], b[2];
};

}  // namespace

namespace emulator {

void SetSchedule(std::uint64_t seed) { Mine().schedule = seed; }
std::uint64_t Schedule() { return Mine().schedule; }

void Die(const char* what) {
  std::fprintf(stderr, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s\n", Mine().kernel,
               blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
  std::abort();
}

void RunGrid(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes,
             const std::function<void()>& body) {
  Mine().kernel = name;
  Mine().body = &body;
  blockDim = block;
  gridDim = grid;
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024) Die("a block must have 1 to 1,024 threads");
  if (grid.y > 65535 || grid.z > 65535) Die("a grid can have at most 65,535 blocks along y and z");
  if (shared_bytes > kSharedBytes) Die("more shared memory requested than a block has");
  Mine().threads = int(threads);
  AddFibres(Mine().threads);
  // Allocated exactly, so that the address sanitizer detects accesses past the end.
  void* memory = nullptr;
  if (posix_memalign(&memory, 128, std::max<std::size_t>(shared_bytes, 1)) != 0)
    Die("out of memory for a block's shared memory");
  const auto dynamic =
      std::unique_ptr<std::byte, decltype(&std::free)>(static_cast<std::byte*>(memory), &std::free);
  Mine().dynamic = dynamic.get();
  Mine().dynamic_bytes = shared_bytes;
  std::uint64_t draws = Mine().schedule;
  std::vector<int> blocks = FirstOrder(int(grid.x * grid.y * grid.z));
  MakeOrder(&draws, &blocks);
  for (const int i : blocks) {
    const auto at = unsigned(i);
    blockIdx = {at % grid.x, at / grid.x % grid.y, at / (grid.x * grid.y)};
    RunBlock(block, &draws);
  }
  Mine().shared.clear();
  Mine().kernel = "";
}

std::byte* SharedArray(const void* tag, std::size_t bytes) {
  if (tag == nullptr) return Mine().dynamic;
  auto& array = Mine().shared[tag];
  if (array == nullptr) {
    Mine().static_bytes += bytes;
    if (Mine().static_bytes > kStaticBytes) Die("more than 48 KiB of static shared memory");
    array = std::make_unique<std::byte[]>(bytes);
    std::fill_n(array.get(), bytes, std::byte{0xff});
  }
  return array.get();
}

int Lane() {
  Running();
  return Mine().running % 32;
}

void Meet(unsigned mask, Combine combine, const void* in, void* out) {
  const int lane = Lane();
  Meeting& warp = Mine().warps[std::size_t(Mine().running) / 32];
  if ((mask >> lane & 1) == 0) Die("the mask of a warp function lacks the calling lane");
  if (warp.here == 0) {
    warp.combine = combine;
    warp.mask = mask;
  } else if (warp.combine != combine || warp.mask != mask) {
    Die("lanes of a warp call different functions, or one with different masks");
  }
  warp.here |= 1u << lane;
  warp.in[lane] = in;
  warp.out[lane] = out;
  // The last lane to arrive computes for all lanes of the mask.
  if (warp.here != mask) {
    Yield(State::kMeeting);
    return;
  }
  combine(warp.in, warp.out, mask);
  warp.here = 0;
  const int first = Mine().running / 32 * 32;
  for (int i = 0; i < 32; ++i) {
    if ((mask >> i & 1) != 0 && i != lane)
      Mine().fibres[std::size_t(first + i)]->state = State::kReady;
  }
}

void CopyAsync(void* to, const void* from, bool valid) {
  const auto at = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  if (at(to) % 16 != 0 || (valid && at(from) % 16 != 0))
    Die("CopyAsync16 with an address that is not 16-byte aligned");
  Running().copies.push_back({to, from, valid});
  // A GPU may copy this early and overwrite data that other threads still read.
  if (Mine().schedule >= 2 && Mine().schedule % 2 == 0) Perform({Running().copies.back()});
}

void CopyGroup() {
  Fibre& fibre = Running();
  fibre.groups.push_back(std::move(fibre.copies));
  fibre.copies.clear();
}

void CopyWaitFor(int under_way) {
  Fibre& fibre = Running();
  while (int(fibre.groups.size()) > under_way) {
    Perform(fibre.groups.front());
    fibre.groups.pop_front();
  }
}

}  // namespace emulator

void __syncthreads() {
  Running();
  Yield(State::kAtBarrier);
}

void __syncwarp(unsigned mask) {
  emulator::Meet(
      mask, [](const void* const(&)[32], void* const(&)[32], unsigned) {}, nullptr, nullptr);
}

unsigned __ballot_sync(unsigned mask, bool predicate) {
  unsigned out = 0;
  emulator::Meet(
      mask,
      [](const void* const(&in)[32], void* const(&results)[32], unsigned lanes) {
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i)
          if ((lanes >> i & 1) != 0 && *static_cast<const bool*>(in[i])) bits |= 1u << i;
        for (int i = 0; i < 32; ++i)
          if ((lanes >> i & 1) != 0) *static_cast<unsigned*>(results[i]) = bits;
      },
      &predicate, &out);
  return out;
}

namespace {

// Tensor core instructions on the fragments of all lanes (layouts: device_code.h).
template <bool kTransposed>
void LoadMatrices(const void* const (&in)[32], void* const (&out)[32], unsigned) {
  std::uint16_t matrix[4][8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const void* row = *static_cast<const void* const*>(in[lane]);
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
      emulator::Die("LoadMatrix4 of a row that is not 16-byte aligned");
    std::memcpy(matrix[lane / 8][lane % 8], row, 16);
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* r = static_cast<std::uint32_t*>(out[lane]);
    for (int m = 0; m < 4; ++m) {
      const int i = lane / 4, j = lane % 4 * 2;
      const std::uint16_t low = kTransposed ? matrix[m][j][i] : matrix[m][i][j];
      const std::uint16_t high = kTransposed ? matrix[m][j + 1][i] : matrix[m][i][j + 1];
      r[m] = low | std::uint32_t(high) << 16;
    }
  }
}

template <int kDepth>
void Multiply(const void* const (&in)[32], void* const (&out)[32], unsigned) {
  float a[16][kDepth], b[kDepth][8], d[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& f = *static_cast<const Fragments*>(in[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) {
      d[g + i / 2 * 8][2 * t + i % 2] = f.d[i];
      if constexpr (kDepth == 8) {
        // TF32 has 10 bits of mantissa: the hardware ignores the lower 13 bits of an f32.
        a[g + i % 2 * 8][t + i / 2 * 4] = __uint_as_float(f.a[i] & 0xffffe000u);
      } else {
        for (int j = 0; j < 2; ++j) a[g + i % 2 * 8][2 * t + j + i / 2 * 8] = Element(f.a[i], j);
      }
    }
    for (int i = 0; i < 2; ++i) {
      if constexpr (kDepth == 8) {
        b[t + 4 * i][g] = __uint_as_float(f.b[i] & 0xffffe000u);
      } else {
        for (int j = 0; j < 2; ++j) b[2 * t + j + 8 * i][g] = Element(f.b[i], j);
      }
    }
  }
  for (auto i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < kDepth; ++k) d[i][j] += a[i][k] * b[k][j];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    auto* r = static_cast<float*>(out[lane]);
    for (int i = 0; i < 4; ++i) r[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace

void LoadMatrix4(std::uint32_t (&r)[4], const void* row) {
  emulator::Meet(0xffffffffu, &LoadMatrices<false>, &row, r);
}
void LoadMatrix4Transposed(std::uint32_t (&r)[4], const void* row) {
  emulator::Meet(0xffffffffu, &LoadMatrices<true>, &row, r);
}
void MultiplyBF16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const Fragments in{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emulator::Meet(0xffffffffu, &Multiply<16>, &in, d);
}
void MultiplyTF32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const Fragments in{{d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  emulator::Meet(0xffffffffu, &Multiply<8>, &in, d);
}

}  // namespace troop::cuda
