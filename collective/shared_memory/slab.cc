// Implements shared memory between the ranks of a host: setup over the control connections, phases
// by atomics, sleeping by futex.
#include "collective/shared_memory/slab.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "collective/socket/handshake.h"

namespace troop {
namespace {

constexpr int kSpins = 100;  // a few microseconds
// Time of yielding before a rank sleeps. Yielding lets other ranks run if there are more than
// cores; but if other programs want the cores, a yield takes one of their time slices, and being
// woken is faster.
constexpr Duration kYieldFor = std::chrono::microseconds(50);
constexpr std::size_t kPage = 4096;

using SharedWord = std::atomic<std::uint32_t>;
static_assert(SharedWord::is_always_lock_free, "ranks of several processes share it");

// Shared between processes, hence without FUTEX_PRIVATE_FLAG.
long Futex(SharedWord* word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

// Reads one control message, up to the deadline.
Result<ControlWord> ReadWord(const Socket& control, Time deadline) {
  ControlBytes bytes;
  for (std::size_t got = 0; got < bytes.size();) {
    const Duration left = deadline - SystemClock().Now();
    pollfd polled{control.fd(), POLLIN, 0};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    if (left <= Duration::zero() ||
        (poll(&polled, 1, int(std::min<std::int64_t>(wait, 1000))) < 0 && errno != EINTR)) {
      return DeadlineExceeded("a rank of this host did not set up shared memory in time");
    }
    const ssize_t n = recv(control.fd(), bytes.data() + got, bytes.size() - got, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      return Unavailable("a rank of this host exited during the setup of shared memory");
    }
    got += std::size_t(std::max<ssize_t>(n, 0));
  }
  TROOP_ASSIGN_OR_RETURN(const ControlWord word, DecodeControl(bytes));
  if (word.type == ControlWord::Type::kAbort) return Status(word.code, word.text);
  return word;
}

// Control messages are smaller than any socket buffer, so sending never blocks.
Status SendWord(const Socket& control, const ControlWord& word) {
  const ControlBytes bytes = EncodeControl(word);
  const ssize_t n = send(control.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n == ssize_t(bytes.size())) return Status::Ok();
  return Unavailable("a rank of this host exited during the setup of shared memory");
}

}  // namespace

// Layout of the segment: Control, one Row per rank, then from the end the halves of all ranks.
struct alignas(128) Slab::Control {
  std::uint64_t mark;
  alignas(64) SharedWord bell;  // futex; incremented by each post while a rank sleeps
  alignas(64) SharedWord sleepers;
};
// One rank's phase and headers; aligned so that no two ranks share a cache line.
struct alignas(128) Slab::Row {
  SharedWord phase;
  OpHeaderBytes headers[2];
};

Slab::Control& Slab::control() const { return *reinterpret_cast<Control*>(bytes_); }
Slab::Row& Slab::row(int place) const {
  return reinterpret_cast<Row*>(bytes_ + sizeof(Control))[place];
}

std::size_t Slab::SizeFor(int count) {
  const std::size_t head = sizeof(Control) + std::size_t(count) * sizeof(Row);
  return (head + kPage - 1) / kPage * kPage + kHalfBytes * std::size_t(2 * count + 1);
}

std::span<std::byte> Slab::Staging(int place, std::uint32_t phase) const {
  const std::size_t half = std::size_t(2 * place) + phase % 2;
  return {bytes_ + size_ - kHalfBytes * (half + 1), kHalfBytes};
}
std::span<std::byte> Slab::Shared() const {
  return {bytes_ + size_ - kHalfBytes * std::size_t(2 * count_ + 1), kHalfBytes};
}
OpHeaderBytes& Slab::Header(int place, std::uint32_t phase) const {
  return row(place).headers[phase % 2];
}

Slab::~Slab() { munmap(bytes_, size_); }

// Maps the segment; the descriptor may be closed afterwards.
Result<std::unique_ptr<Slab>> Slab::Map(int fd, std::size_t size, int count, int self) {
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED) {
    return Unavailable("cannot map {} bytes of shared memory: {}", size, std::strerror(errno));
  }
  return std::unique_ptr<Slab>(new Slab(static_cast<std::byte*>(bytes), size, count, self));
}

// The first rank creates the segment and offers it over the control connections; the others open it
// through /proc, map it, check the mark and confirm. The random mark proves that both see the same
// memory.
Result<std::unique_ptr<Slab>> Slab::Make(std::span<const int> local, int self,
                                         std::span<const Link> links, Time deadline) {
  const int count = int(local.size());
  const std::size_t size = SizeFor(count);
  const auto control = [&](int place) -> const Socket& {
    return links[std::size_t(local[std::size_t(place)])].control;
  };
  using Type = ControlWord::Type;
  // Other ranks: open the offered segment.
  if (self > 0) {
    TROOP_ASSIGN_OR_RETURN(const ControlWord word, ReadWord(control(0), deadline));
    if (word.type != Type::kSlab || word.numbers[3] != size) {
      return DataLoss("another rank offers shared memory of another layout");
    }
    const std::string path = fmt::format("/proc/{}/fd/{}", word.numbers[0], word.numbers[1]);
    const Socket fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat found {};
    if (!fd.open() || fstat(fd.fd(), &found) != 0 || std::size_t(found.st_size) != size) {
      return Unavailable(
          "cannot open the shared memory of rank {}: {}; if it runs in another container "
          "or as another user, give the ranks different hosts",
          local[0], std::strerror(errno));
    }
    TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Slab> slab, Map(fd.fd(), size, count, self));
    if (slab->control().mark != word.numbers[2]) {
      return Unavailable(
          "the segment that rank {} offers is not its shared memory; check that it has the same "
          "PID namespace",
          local[0]);
    }
    TROOP_RETURN_IF_ERROR(SendWord(control(0), {.type = Type::kSlabOpen}));
    return slab;
  }
  // First rank: create the segment and wait for the others.
  const Socket fd(memfd_create("troop_collective", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed: no rank can truncate the segment under the others (SIGBUS).
  if (!fd.open() || ftruncate(fd.fd(), off_t(size)) != 0 ||
      fcntl(fd.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Unavailable("cannot create {} bytes of shared memory: {}", size, std::strerror(errno));
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Slab> slab, Map(fd.fd(), size, count, self));
  std::uint64_t mark = 0;
  if (getrandom(&mark, sizeof mark, 0) != ssize_t(sizeof mark)) mark = std::uint64_t(getpid());
  slab->control().mark = mark;
  const ControlWord offer{.type = Type::kSlab,
                          .numbers = {std::uint64_t(getpid()), std::uint64_t(fd.fd()), mark, size}};
  for (int place = 1; place < count; ++place) {
    TROOP_RETURN_IF_ERROR(SendWord(control(place), offer));
  }
  for (int place = 1; place < count; ++place) {
    TROOP_ASSIGN_OR_RETURN(const ControlWord word, ReadWord(control(place), deadline));
    if (word.type != Type::kSlabOpen) return DataLoss("a rank of this host mapped no memory");
  }
  return slab;
}

// The phase is stored before `sleepers` is read, and a sleeper increments `sleepers` before it
// reads the phases, so one of the two sees the other. All four accesses must be sequentially
// consistent: an acquire of the phases may be ordered before the increment (AArch64 with LDAPR).
void Slab::Post(std::uint32_t phase) {
  row(self_).phase.store(phase, std::memory_order_seq_cst);
  if (control().sleepers.load(std::memory_order_seq_cst) == 0) return;
  control().bell.fetch_add(1, std::memory_order_seq_cst);
  Futex(&control().bell, FUTEX_WAKE, INT_MAX, nullptr);
}

// `order`: at least acquire, so that the data of a posted phase is visible.
int Slab::FirstUnposted(std::uint32_t phase, std::memory_order order) const {
  for (int place = 0; place < count_; ++place) {
    // Phases wrap around; the difference of two ranks is small.
    const std::uint32_t posted = row(place).phase.load(order);
    if (std::int32_t(posted - phase) < 0) return place;
  }
  return -1;
}

// Spinning helps only if every rank has a core.
int Slab::SpinsFor(int count) {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) >= count ? kSpins : 0;
}

// The value of `bell` is read before the last check of the phases, so that a post in between makes
// the futex return at once.
bool Slab::Idle(std::uint32_t phase, Duration most) {
  for (int i = 0; i < spins_; ++i) {
    if (FirstUnposted(phase) < 0) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  const SystemClock clock;
  // Yield first; sleeping and waking cost more than a short wait.
  for (const Time end = clock.Now() + kYieldFor; clock.Now() < end; sched_yield()) {
    if (FirstUnposted(phase) < 0) return true;
  }
  control().sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t bell = control().bell.load(std::memory_order_seq_cst);
  if (FirstUnposted(phase, std::memory_order_seq_cst) >= 0) {
    const timespec timeout{.tv_sec = most.count() / 1'000'000'000,
                           .tv_nsec = most.count() % 1'000'000'000};
    Futex(&control().bell, FUTEX_WAIT, bell, &timeout);
  }
  control().sleepers.fetch_sub(1, std::memory_order_seq_cst);
  return FirstUnposted(phase) < 0;
}

}  // namespace troop
