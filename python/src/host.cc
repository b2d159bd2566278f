// Event loop of the Python package's network thread.

#include "python/src/host.h"

#include <utility>

#include "net/security/keys.h"

namespace troop {

Result<std::shared_ptr<Host>> Host::Make(const std::string& key, bool insecure) {
  std::shared_ptr<const KeyRing> keys;
  if (!key.empty()) {
    TROOP_ASSIGN_OR_RETURN(keys, LoadKeys(key));
  }
  TROOP_ASSIGN_OR_RETURN(std::unique_ptr<Network> network,
                         MakeZmqNetwork({.keys = keys, .insecure = insecure}));
  return std::shared_ptr<Host>(new Host(std::move(network), std::move(keys)));
}

// The thread is the last member, so that it starts after all others exist.
Host::Host(std::unique_ptr<Network> network, std::shared_ptr<const KeyRing> keys)
    : network_(std::move(network)), keys_(std::move(keys)), thread_([this] { Loop(); }) {}

Host::~Host() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  // The loop may be waiting for the rest of its turn.
  network_->Wake();
  thread_.join();
}

void Host::Run(const std::function<void(Network*)>& work) {
  // `work` lives on the caller's stack: the caller blocks until the thread has run it.
  bool done = false;
  std::unique_lock lock(mutex_);
  tasks_.push_back({&work, &done});
  network_->Wake();
  done_.wait(lock, [&done] { return done; });
}

// Changes are made on the thread itself, between two steps: steps_ needs no lock.
std::uint64_t Host::Add(Step step) {
  std::uint64_t id = 0;
  Run([&](Network*) {
    id = next_id_++;
    steps_.emplace(id, std::move(step));
  });
  return id;
}

void Host::Remove(std::uint64_t id) {
  Run([&](Network*) { steps_.erase(id); });
}

void Host::Loop() {
  // Deadlines and slow shards send no message that would wake the thread.
  constexpr Duration kTurn = Milliseconds(10);
  const SystemClock clock;
  while (true) {
    // One turn: messages, posted work, registered steps.
    bool busy = network_->Pump(clock.Now());
    busy |= RunTasks();
    for (auto& [id, step] : steps_) busy |= step(clock.Now());
    // Checked after a turn, so that work posted before the end has been done.
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    const Time now = clock.Now();
    if (!busy) network_->Wait(now, now + kTurn);
  }
  // Steps own objects of this thread: destroy them here.
  steps_.clear();
}

bool Host::RunTasks() {
  // Swap under the lock, run without it: work may post more work.
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) {
    (*task.work)(network_.get());
    // From here on the caller may return and destroy its `work`.
    const std::lock_guard lock(mutex_);
    *task.done = true;
    done_.notify_all();
  }
  return !tasks.empty();
}

}  // namespace troop
