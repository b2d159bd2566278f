// Fails a test that starts a thread of our code if its file is not among those that run under the
// thread sanitizer. The linker redirects std::thread starts to this file (--wrap in
// tests/CMakeLists.txt); threads of libraries do not count.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <regex>
#include <string>

// void std::thread::_M_start_thread(std::unique_ptr<_State>, void (*)()) of libstdc++; the
// unique_ptr is passed by address.
#define TROOP_START_THREAD \
  ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE
#define TROOP_JOIN(a, b) a##b
#define TROOP_NAME(a, b) TROOP_JOIN(a, b)

namespace {
std::atomic<int> threads_started = 0;
}  // namespace

extern "C" void TROOP_NAME(__real__, TROOP_START_THREAD)(void*, void*, void (*)());
extern "C" void TROOP_NAME(__wrap__, TROOP_START_THREAD)(void* self, void* state, void (*link)()) {
  ++threads_started;
  TROOP_NAME(__real__, TROOP_START_THREAD)(self, state, link);
}

namespace troop {
namespace {

class ThreadCheck final : public testing::EmptyTestEventListener {
 public:
  explicit ThreadCheck(const char* files) : files_(files) {}

 private:
  void OnTestStart(const testing::TestInfo&) override { before_ = threads_started; }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (threads_started == before_ || std::regex_search(test.file(), files_)) return;
    ADD_FAILURE() << test.file()
                  << " starts a thread: add it to troop_tsan_tests in tests/selection.cmake, or "
                     "with a reason to troop_tsan_left_out";
  }

  const std::regex files_;
  int before_ = 0;
};

// TROOP_THREADED_TESTS: regular expression of files that may start threads. Unset if a program is
// run by hand.
const bool installed = [] {
  const char* const files = std::getenv("TROOP_THREADED_TESTS");
  if (files == nullptr) return false;
  testing::UnitTest::GetInstance()->listeners().Append(new ThreadCheck(files));
  return true;
}();

}  // namespace
}  // namespace troop
