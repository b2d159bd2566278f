// Preloaded into a program (LD_PRELOAD): lets the disk be full, read-only or slow for the files
// below TROOP_DISK_FAULT_FOLDER, or its folders unreadable after three entries, while the file
// TROOP_DISK_FAULT_FILE says "full", "readonly", "slow" or "unlisted". The program's own calls of
// the C library are what it sees, as a disk's errors would come.

// Its inline versions of what is defined here would be in the way.
#undef _FORTIFY_SOURCE

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

namespace {

enum class Fault { kNone, kFull, kReadOnly, kSlow, kUnlisted };

template <class F>
F* Next(F*, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
// The C library's function of the same name, behind this one.
#define NEXT(name) static decltype(::name)* const next = Next(::name, #name)

Fault Now() {
  static const char* const file = getenv("TROOP_DISK_FAULT_FILE");
  static decltype(::open)* const open_file = Next(::open, "open");
  if (file == nullptr) return Fault::kNone;
  const int kept = errno;
  const int fd = open_file(file, O_RDONLY | O_CLOEXEC);
  char text[16] = {};
  if (fd >= 0) {
    if (read(fd, text, sizeof text - 1) < 0) text[0] = '\0';
    close(fd);
  }
  errno = kept;
  if (strcmp(text, "full") == 0) return Fault::kFull;
  if (strcmp(text, "readonly") == 0) return Fault::kReadOnly;
  if (strcmp(text, "unlisted") == 0) return Fault::kUnlisted;
  return strcmp(text, "slow") == 0 ? Fault::kSlow : Fault::kNone;
}

bool Below(const char* path) {
  static const char* const folder = getenv("TROOP_DISK_FAULT_FOLDER");
  return folder != nullptr && path != nullptr && strncmp(path, folder, strlen(folder)) == 0;
}

bool Below(int fd) {
  char link[64], path[4096] = {};
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const int kept = errno;
  const bool found = readlink(link, path, sizeof path - 1) > 0;
  errno = kept;
  return found && Below(path);
}

// The error that a call has now, or 0; a slow disk takes its time for what reaches it.
template <class Place>
int ErrorOf(Place place, bool takes_room, bool changes, bool reaches_disk) {
  const Fault fault = Now();
  if (fault == Fault::kNone || !Below(place)) return 0;
  if (fault == Fault::kFull && takes_room) return ENOSPC;
  if (fault == Fault::kReadOnly && changes) return EROFS;
  if (fault == Fault::kSlow && reaches_disk) {
    const timespec wait{.tv_sec = 0, .tv_nsec = 60'000'000};
    nanosleep(&wait, nullptr);
  }
  return 0;
}

int Fail(int error) {
  errno = error;
  return -1;
}

// The first three entries of an unlisted folder, "." and ".." among them, are read, no more.
template <class F>
auto ReadEntry(F* next, DIR* folder) -> decltype(next(folder)) {
  static thread_local int entries = 0;
  if (telldir(folder) == 0) entries = 0;
  if (++entries <= 3 || Now() != Fault::kUnlisted || !Below(dirfd(folder))) return next(folder);
  errno = EIO;
  return nullptr;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  NEXT(open);
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = mode_t(va_arg(rest, int));
    va_end(rest);
  }
  const bool changes = (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0;
  if (changes) {
    if (const int error = ErrorOf(path, false, true, false)) return Fail(error);
  }
  return next(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  NEXT(write);
  if (const int error = ErrorOf(fd, true, true, false)) return Fail(error);
  return next(fd, bytes, count);
}

int fsync(int fd) {
  NEXT(fsync);
  if (const int error = ErrorOf(fd, false, false, true)) return Fail(error);
  return next(fd);
}

int fdatasync(int fd) {
  NEXT(fdatasync);
  if (const int error = ErrorOf(fd, false, false, true)) return Fail(error);
  return next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  if (const int error = ErrorOf(to, false, true, false)) return Fail(error);
  return next(from, to);
}

int mkdir(const char* path, mode_t mode) {
  NEXT(mkdir);
  if (const int error = ErrorOf(path, false, true, false)) return Fail(error);
  return next(path, mode);
}

int unlink(const char* path) {
  NEXT(unlink);
  if (const int error = ErrorOf(path, false, true, false)) return Fail(error);
  return next(path);
}

int unlinkat(int folder, const char* path, int flags) {
  NEXT(unlinkat);
  if (const int error = ErrorOf(folder, false, true, false)) return Fail(error);
  return next(folder, path, flags);
}

dirent* readdir(DIR* folder) {
  NEXT(readdir);
  return ReadEntry(next, folder);
}

dirent64* readdir64(DIR* folder) {
  NEXT(readdir64);
  return ReadEntry(next, folder);
}

}  // extern "C"
