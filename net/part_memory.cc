#include "net/part_memory.h"

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

#include "core/check.h"
#include "net/wire.h"

namespace troop {
namespace {

constexpr std::uint64_t kMagic = 0x3130545241505254;  // "TRPART01"
constexpr std::size_t kHeaderBytesOfBlock = 4096;     // a page: the bytes behind it are aligned
constexpr std::size_t kPartAlignment = 8;             // as net/message.h promises of big parts
constexpr std::size_t kMappingsMax = 256;             // of a reader
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// At the start of a block.
struct BlockHeader {
  std::uint64_t magic;
  std::uint64_t id;
  std::atomic<std::uint32_t> readers;  // tickets that were given out and not let go of
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

// Mapped bytes.
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

struct PartMemory::Block {
  Block(int fd, std::size_t bytes)
      : file(fd),
        capacity(bytes),
        pages(fd, 0, kHeaderBytesOfBlock + bytes, PROT_READ | PROT_WRITE) {}
  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(pages.data()); }
  std::byte* data() const { return pages.data() + kHeaderBytesOfBlock; }
  // Pages for so many bytes, asked for before they are written: a machine without memory says no
  // here, where a write would end the process (SIGBUS).
  bool Reserve(std::size_t bytes) {
    if (bytes <= reserved) return true;
    const auto size = off_t(kHeaderBytesOfBlock + bytes);
    if (posix_fallocate(file.get(), 0, size) != 0) return false;
    reserved = bytes;
    return true;
  }
  bool unread() const { return header().readers.load(std::memory_order_acquire) == 0; }

  const File file;
  const std::size_t capacity;
  const Pages pages;
  std::size_t reserved = 0;
  bool held = false;  // a part of it is here
  Time left{};        // since when not
};

PartMemory& PartMemory::Get() {
  static std::mutex mutex;
  static PartMemory* current = nullptr;
  static pid_t process = 0;
  const std::lock_guard lock(mutex);
  if (process != getpid()) {  // parts may outlive everything else: it is never destroyed
    process = getpid();
    current = new PartMemory({});
  }
  return *current;
}

PartMemory::PartMemory(const Options& options) : options_(options) {}
PartMemory::~PartMemory() = default;

Time PartMemory::Now() const {
  return options_.clock != nullptr ? options_.clock->Now() : SystemClock().Now();
}

std::size_t PartMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void PartMemory::Drop(Blocks::iterator block) {
  by_address_.erase((*block)->data());
  bytes_ -= (*block)->capacity;
  blocks_.erase(block);
}

// Gives up what readers lost, and back what nobody used for a while.
void PartMemory::Sweep() {
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

PartMemory::Block* PartMemory::Create(std::size_t capacity) {
  const int fd = memfd_create("troop_part", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  auto block = ftruncate(fd, off_t(kHeaderBytesOfBlock + capacity)) == 0 &&
                       fcntl(fd, F_ADD_SEALS, kSeals) == 0
                   ? std::make_unique<Block>(fd, capacity)
                   : nullptr;
  if (block == nullptr) {
    close(fd);
    return nullptr;
  }
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

PartMemory::Block* PartMemory::Take(std::size_t bytes) {
  const std::size_t capacity = std::bit_ceil(std::max(bytes, kBigPartBytes));
  Sweep();
  const auto free = [](const std::unique_ptr<Block>& b) { return !b->held && b->unread(); };
  auto found = std::ranges::find_if(
      blocks_, [&](const auto& b) { return b->capacity == capacity && free(b); });
  if (found != blocks_.end()) {
    blocks_.splice(blocks_.begin(), blocks_, found);
  } else {
    // Room, from the block that was unused the longest on.
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

void PartMemory::Release(Block* block) {
  const std::lock_guard lock(mutex_);
  block->held = false;
  block->left = Now();
}

std::optional<MutableBuffer> PartMemory::Make(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  Block* const block = Take(bytes);
  if (block == nullptr) return std::nullopt;
  return MutableBuffer(
      std::shared_ptr<std::byte>(block->data(), [this, block](std::byte*) { Release(block); }),
      bytes);
}

std::optional<PartTicket> PartMemory::Share(const Buffer& part) {
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  Block* block = Find(part.data(), &offset);
  if (block == nullptr || offset % kPartAlignment != 0) {
    offset = 0;
    block = Take(part.size());
    if (block == nullptr) return std::nullopt;
    std::memcpy(block->data(), part.data(), part.size());
    block->held = false;
    block->left = Now();
  }
  block->header().readers.fetch_add(1, std::memory_order_release);
  return PartTicket{kMagic, block->header().id, std::uint32_t(getpid()), block->file.get(),
                    offset, part.size()};
}

PartMemory::Block* PartMemory::Find(const void* part, std::size_t* offset) const {
  const auto above = by_address_.upper_bound(static_cast<const std::byte*>(part));
  if (above == by_address_.begin()) return nullptr;
  Block* const block = std::prev(above)->second;
  const auto at = std::size_t(static_cast<const std::byte*>(part) - block->data());
  if (at >= block->capacity) return nullptr;
  *offset = at;
  return block;
}

bool PartMemory::IsReadByOthers(const void* part) const {
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  const Block* const block = Find(part, &offset);
  return block != nullptr && !block->unread();
}

void PartMemory::TakeBack(const PartTicket& ticket) {
  const std::lock_guard lock(mutex_);
  for (const auto& block : blocks_) {
    if (block->header().id == ticket.id) {
      block->header().readers.fetch_sub(1, std::memory_order_release);
    }
  }
}

MutableBuffer MakePart(std::size_t bytes) {
  if (IsBigPart(bytes)) {
    if (auto part = PartMemory::Get().Make(bytes)) return std::move(*part);
  }
  return MutableBuffer(bytes);
}

Buffer CopyPart(std::span<const std::byte> bytes) {
  MutableBuffer part = MakePart(bytes.size());
  if (!bytes.empty()) std::memcpy(part.data(), bytes.data(), bytes.size());
  return std::move(part).Freeze();
}

bool IsReadByOthers(const void* part) { return PartMemory::Get().IsReadByOthers(part); }

struct PartReader::Mapping {
  std::uint32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint64_t id = 0;
  std::size_t capacity = 0;
  Pages header, data;
  BlockHeader& head() const { return *reinterpret_cast<BlockHeader*>(header.data()); }
};

std::optional<PartTicket> PartReader::TicketOf(std::span<const std::byte> frame) {
  PartTicket ticket;
  if (frame.size() != sizeof ticket) return std::nullopt;
  std::memcpy(&ticket, frame.data(), sizeof ticket);
  if (ticket.magic != kMagic) return std::nullopt;
  return ticket;
}

Result<Buffer> PartReader::Open(const PartTicket& ticket) {
  auto found = std::ranges::find_if(mappings_, [&](const auto& m) {
    return m->id == ticket.id && m->process == ticket.process && m->descriptor == ticket.descriptor;
  });
  if (found != mappings_.end()) {
    mappings_.splice(mappings_.begin(), mappings_, found);
  } else {
    const std::string path = fmt::format("/proc/{}/fd/{}", ticket.process, ticket.descriptor);
    const File file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (file.get() < 0) {
      return Unavailable("memory of process {} can't be read here: {}", ticket.process,
                         std::strerror(errno));
    }
    struct stat about {};
    // Sealed: else the other side could take the bytes away under our feet.
    if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
        fcntl(file.get(), F_GET_SEALS) != kSeals ||
        std::size_t(about.st_size) <= kHeaderBytesOfBlock) {
      return Unavailable("{} is no memory for parts of messages", path);
    }
    auto mapping = std::make_shared<Mapping>();
    mapping->process = ticket.process;
    mapping->descriptor = ticket.descriptor;
    mapping->id = ticket.id;
    mapping->capacity = std::size_t(about.st_size) - kHeaderBytesOfBlock;
    mapping->header = Pages(file.get(), 0, kHeaderBytesOfBlock, PROT_READ | PROT_WRITE);
    mapping->data = Pages(file.get(), kHeaderBytesOfBlock, mapping->capacity, PROT_READ);
    if (!mapping->header || !mapping->data) {
      return Unavailable("{} can't be mapped: {}", path, std::strerror(errno));
    }
    if (mapping->head().magic != kMagic || mapping->head().id != ticket.id) {
      return Unavailable("{} holds no longer what was sent", path);
    }
    mappings_.push_front(std::move(mapping));
    if (mappings_.size() > kMappingsMax) mappings_.pop_back();
  }
  const std::shared_ptr<Mapping>& mapping = mappings_.front();
  if (ticket.offset > mapping->capacity || ticket.bytes > mapping->capacity - ticket.offset ||
      ticket.offset % kPartAlignment != 0) {
    return DataLoss("{} bytes at {} are not within a block of {}", ticket.bytes, ticket.offset,
                    mapping->capacity);
  }
  std::byte* const at = mapping->data.data() + ticket.offset;
  return Buffer(std::shared_ptr<const void>(at,
                                            [mapping](const void*) {
                                              mapping->head().readers.fetch_sub(
                                                  1, std::memory_order_release);
                                            }),
                {at, ticket.bytes});
}

}  // namespace troop
