// Implements SharedBufferPool and SharedBufferReader: message parts in sealed memfd files that two
// processes map.
#include "net/wire/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "net/wire/frame.h"

namespace troop {
namespace {

constexpr std::uint64_t kMagic = 0x3130545241505254;  // "TRPART01"
constexpr std::size_t kHeaderBytesOfBlock =
    4096;                                  // one page, which keeps the following data aligned
constexpr std::size_t kPartAlignment = 8;  // guaranteed for big parts by net/message.h
constexpr std::size_t kMappingsMax = 256;  // per reader; least recently used are unmapped
// The size is fixed, and F_SEAL_SEAL forbids further seals, such as one against writing.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Header at the start of a block.
struct BlockHeader {
  std::uint64_t magic;
  std::uint64_t id;
  std::atomic<std::uint32_t> readers;  // tickets that are not released yet
};
// Only lock-free atomics work across processes.
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// A memory mapping, unmapped by the destructor.
class Pages {
 public:
  Pages() = default;
  Pages(int fd, std::size_t offset, std::size_t bytes, int rights) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, rights, MAP_SHARED, fd, off_t(offset));
    data_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// A file descriptor, closed by the destructor.
class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

// One memfd file, mapped here for reading and writing: a header page, then the data.
struct SharedBufferPool::Block {
  Block(int fd, std::size_t bytes)
      : file(fd),
        capacity(bytes),
        pages(fd, 0, kHeaderBytesOfBlock + bytes, PROT_READ | PROT_WRITE) {}
  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(pages.data()); }
  std::byte* data() const { return pages.data() + kHeaderBytesOfBlock; }
  // Allocates the pages for `bytes` before they are written. Without memory this returns false,
  // where a write would end the process with SIGBUS.
  bool Reserve(std::size_t bytes) {
    if (bytes <= reserved) return true;
    const auto size = off_t(kHeaderBytesOfBlock + bytes);
    if (posix_fallocate(file.get(), 0, size) != 0) return false;
    reserved = bytes;
    return true;
  }
  // Acquire: the last reads of a released ticket happened before the block is reused.
  bool unread() const { return header().readers.load(std::memory_order_acquire) == 0; }

  const File file;
  const std::size_t capacity;
  const Pages pages;
  std::size_t reserved = 0;
  bool held = false;  // true while a part of it is in use in this process
  Time left{};        // time at which `held` became false
};

SharedBufferPool& SharedBufferPool::Get() {
  // A forked child must not share the blocks of its parent, whose readers it can't track.
  static std::mutex mutex;
  static SharedBufferPool* current = nullptr;
  static pid_t process = 0;
  const std::lock_guard lock(mutex);
  if (process != getpid()) {  // never destroyed, because parts may outlive all other objects
    process = getpid();
    current = new SharedBufferPool({});
  }
  return *current;
}

SharedBufferPool::SharedBufferPool(const Options& options) : options_(options) {}
SharedBufferPool::~SharedBufferPool() = default;

Time SharedBufferPool::Now() const {
  return options_.clock != nullptr ? options_.clock->Now() : SystemClock().Now();
}

std::size_t SharedBufferPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void SharedBufferPool::Drop(Blocks::iterator block) {
  by_address_.erase((*block)->data());
  bytes_ -= (*block)->capacity;
  blocks_.erase(block);
}

// Frees blocks that were idle for a while, and blocks whose readers probably died.
void SharedBufferPool::Sweep() {
  const Time now = Now();
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    const auto next = std::next(block);
    const Block& b = **block;
    if (!b.held && now - b.left > (b.unread() ? options_.idle_after : options_.lost_after)) {
      Drop(block);
    }
    block = next;
  }
}

// Creates a block. Seals fix its size, so that no mapping of it can become invalid.
SharedBufferPool::Block* SharedBufferPool::Create(std::size_t capacity) {
  const int fd = memfd_create("troop_part", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  auto block = ftruncate(fd, off_t(kHeaderBytesOfBlock + capacity)) == 0 &&
                       fcntl(fd, F_ADD_SEALS, kSeals) == 0
                   ? std::make_unique<Block>(fd, capacity)
                   : nullptr;
  // From its construction on, the block owns the descriptor.
  if (block == nullptr) {
    close(fd);
    return nullptr;
  }
  // Descriptor numbers are reused; readers recognize a block by its random id.
  std::uint64_t id = 0;
  if (!block->pages || !block->Reserve(1) || getrandom(&id, sizeof id, 0) != sizeof id)
    return nullptr;
  block->header().magic = kMagic;
  block->header().id = id;
  bytes_ += capacity;
  by_address_.emplace(block->data(), block.get());
  blocks_.push_front(std::move(block));
  return blocks_.front().get();
}

// Returns a free block of the same power-of-two capacity, or creates one within the limits.
SharedBufferPool::Block* SharedBufferPool::Take(std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max(bytes, kBigPartBytes));
  Sweep();
  const auto free = [](const std::unique_ptr<Block>& b) { return !b->held && b->unread(); };
  auto found = std::ranges::find_if(
      blocks_, [&](const auto& b) { return b->capacity == capacity && free(b); });
  if (found != blocks_.end()) {
    blocks_.splice(blocks_.begin(), blocks_, found);
  } else {
    // Makes room by freeing unused blocks, least recently used first.
    const auto full = [&] {
      return bytes_ + capacity > options_.bytes_max || blocks_.size() >= options_.blocks_max;
    };
    for (auto b = blocks_.end(); full() && b != blocks_.begin();) {
      const auto last = std::prev(b);
      if (free(*last)) {
        Drop(last);
      } else {
        b = last;
      }
    }
    if (full() || Create(capacity) == nullptr) return nullptr;
  }
  Block* const block = blocks_.front().get();
  if (!block->Reserve(bytes)) return nullptr;
  block->held = true;
  return block;
}

void SharedBufferPool::Release(Block* block) {
  const std::lock_guard lock(mutex_);
  block->held = false;
  block->left = Now();
}

// The block returns to the pool when the last slice of the part is released.
std::optional<MutableBuffer> SharedBufferPool::Make(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block* const block = Take(bytes);
  if (block == nullptr) return std::nullopt;
  return MutableBuffer(
      std::shared_ptr<std::byte>(block->data(), [this, block](std::byte*) { Release(block); }),
      bytes);
}

// A part in a block of this pool is shared without a copy; others are copied into a block.
std::optional<BufferHandle> SharedBufferPool::Share(const Buffer& part) {
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  Block* block = Find(part.data(), &offset);
  if (block == nullptr || offset % kPartAlignment != 0) {
    offset = 0;
    block = Take(part.size());
    if (block == nullptr) return std::nullopt;
    std::memcpy(block->data(), part.data(), part.size());
    // The reader's count keeps the copy from now on.
    block->held = false;
    block->left = Now();
  }
  // Counted here for the reader, which decrements the counter in the shared header.
  block->header().readers.fetch_add(1, std::memory_order_release);
  return BufferHandle{kMagic, block->header().id, std::uint32_t(getpid()), block->file.get(),
                      offset, part.size()};
}

// The last block that starts at or before the address is the only candidate.
SharedBufferPool::Block* SharedBufferPool::Find(const void* part, std::size_t* offset) const {
  const auto above = by_address_.upper_bound(static_cast<const std::byte*>(part));
  if (above == by_address_.begin()) return nullptr;
  Block* const block = std::prev(above)->second;
  const auto at = std::size_t(static_cast<const std::byte*>(part) - block->data());
  if (at >= block->capacity) return nullptr;
  *offset = at;
  return block;
}

bool SharedBufferPool::IsShared(const void* part) const {
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  const Block* const block = Find(part, &offset);
  return block != nullptr && !block->unread();
}

// The reader never received the ticket, so its count is undone here.
void SharedBufferPool::RevokeHandle(const BufferHandle& ticket) {
  const std::lock_guard lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->header().id == ticket.id) {
      block->header().readers.fetch_sub(1, std::memory_order_release);
    }
  }
}

// Small parts, and parts that exceed the pool's limits, are in private memory.
MutableBuffer MakeSharedBuffer(std::size_t bytes) {
  if (IsBigPart(bytes)) {
    if (auto part = SharedBufferPool::Get().Make(bytes)) return std::move(*part);
  }
  return MutableBuffer(bytes);
}

Buffer CopyToSharedBuffer(std::span<const std::byte> bytes) {
  MutableBuffer part = MakeSharedBuffer(bytes.size());
  if (!bytes.empty()) std::memcpy(part.data(), bytes.data(), bytes.size());
  return std::move(part).Freeze();
}

bool IsShared(const void* part) { return SharedBufferPool::Get().IsShared(part); }

// A block of another process: its header writable for the reader count, its data read-only.
struct SharedBufferReader::Mapping {
  std::uint32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t id = 0;
  std::size_t capacity = 0;
  Pages header, data;
  BlockHeader& head() const { return *reinterpret_cast<BlockHeader*>(header.data()); }
};

// Ordinary big parts are never as small as a ticket.
std::optional<BufferHandle> SharedBufferReader::ParseHandle(std::span<const std::byte> frame) {
  BufferHandle ticket;
  if (frame.size() != sizeof ticket) return std::nullopt;
  std::memcpy(&ticket, frame.data(), sizeof ticket);
  if (ticket.magic != kMagic) return std::nullopt;
  return ticket;
}

// Steps: find or create the mapping, check the range of the ticket, return a Buffer that releases
// the ticket.
Result<Buffer> SharedBufferReader::Open(const BufferHandle& ticket) {
  auto found = std::ranges::find_if(mappings_, [&](const auto& m) {
    return m->id == ticket.id && m->process == ticket.process && m->descriptor == ticket.descriptor;
  });
  if (found != mappings_.end()) {
    mappings_.splice(mappings_.begin(), mappings_, found);
  } else {
    // The kernel permits this only for processes of the same user.
    const std::string path = fmt::format("/proc/{}/fd/{}", ticket.process, ticket.descriptor);
    const File file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file.get() < 0) {
      return Unavailable("can't read memory of process {}: {}", ticket.process,
                         std::strerror(errno));
    }
    struct stat about {};
    // Seals are required: otherwise the sender could shrink the file while it is mapped here.
    if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
        fcntl(file.get(), F_GET_SEALS) != kSeals ||
        std::size_t(about.st_size) <= kHeaderBytesOfBlock) {
      return Unavailable("{} is not a shared-memory buffer for message parts", path);
    }
    auto mapping = std::make_shared<Mapping>();
    mapping->process = ticket.process;
    mapping->descriptor = ticket.descriptor;
    mapping->id = ticket.id;
    mapping->capacity = std::size_t(about.st_size) - kHeaderBytesOfBlock;
    mapping->header = Pages(file.get(), 0, kHeaderBytesOfBlock, PROT_READ | PROT_WRITE);
    mapping->data = Pages(file.get(), kHeaderBytesOfBlock, mapping->capacity, PROT_READ);
    if (!mapping->header || !mapping->data) {
      return Unavailable("can't map {}: {}", path, std::strerror(errno));
    }
    // The descriptor number may have been reused for another file.
    if (mapping->head().magic != kMagic || mapping->head().id != ticket.id) {
      return Unavailable("{} no longer contains the sent data", path);
    }
    mappings_.push_front(std::move(mapping));
    // Buffers in use keep their mapping until they are released.
    if (mappings_.size() > kMappingsMax) mappings_.pop_back();
  }
  const std::shared_ptr<Mapping>& mapping = mappings_.front();
  // Without a sum, which could overflow.
  if (ticket.offset > mapping->capacity || ticket.bytes > mapping->capacity - ticket.offset ||
      ticket.offset % kPartAlignment != 0) {
    return DataLoss("{} bytes at offset {} are outside a block of {} bytes", ticket.bytes,
                    ticket.offset, mapping->capacity);
  }
  std::byte* const at = mapping->data.data() + ticket.offset;
  // The deleter releases the ticket and keeps the mapping alive until then.
  return Buffer(std::shared_ptr<const void>(at,
                                            [mapping](const void*) {
                                              mapping->head().readers.fetch_sub(
                                                  1, std::memory_order_release);
                                            }),
                {at, ticket.bytes});
}

}  // namespace troop
