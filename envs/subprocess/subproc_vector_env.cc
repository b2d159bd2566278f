// Vector over worker processes: rounds of steps and resets, restarts with backoff, faults.

#include "envs/subprocess/subproc_vector_env.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/utf8.h"
#include "envs/subprocess/worker.h"

namespace troop {
namespace {

constexpr Duration kFarewell = Milliseconds(100);  // for workers to exit before they are killed
// Maximum time between two checks of the deadlines.
constexpr Duration kPollEvery = Milliseconds(100);
// Seconds. With these, a hundred deaths (env.faults_max) end a run within two minutes.
constexpr double kBackoffFirst = 0.05, kBackoffMax = 1;

// No delay after the first failure, then 50 ms that double up to a second. The exponent is bounded,
// so that pow stays finite.
Duration Backoff(int failures) {
  if (failures <= 1) return {};
  return Seconds(std::min(kBackoffMax, kBackoffFirst * std::pow(2, std::min(failures - 2, 20))));
}

class ProcessVectorEnv final : public VectorEnv {
 public:
  ProcessVectorEnv(std::string_view id, const EnvOptions& options, int size, EpisodeSeeder seeder)
      : id_(id), options_(options), seeder_(std::move(seeder)), rows_(std::size_t(size)) {}
  ~ProcessVectorEnv() override;
  Status Open();

  const EnvSpec& spec() const override { return spec_; }
  int size() const override { return int(rows_.size()); }
  void SubmitReset() override;
  void Submit(ConstTensor action) override;
  const StepBatch* Poll() override;
  void SubmitRestart(std::span<const int> indices) override;
  std::span<const EnvFault> faults() const override { return faults_; }
  int fd() const override { return epoll_; }
  Status status() const override { return status_; }
  int seeds_ahead() const override { return 1; }
  Environment::Picture Render(int index) const override;
  void TakeMetrics(EnvMetrics* into) override;
  std::optional<Duration> inside() const override;

 private:
  struct Row {
    std::uint64_t seed = 0;                  // of the current episode
    std::optional<std::uint64_t> next_seed;  // sent to the worker already
    std::int64_t step = 0;                   // number of the last submitted step in the episode
    bool ended = true;                       // needs a seed and a reset
    bool ended_well = false;  // its episode ended without a fault in the current batch
    std::optional<EnvFault> fault;
  };
  struct Worker {
    EnvWorker process;
    int first = 0, rows = 0;
    bool to_reset = false;  // its rows have seeds, and their round of resets has not begun
    int deaths = 0;         // since one of its environments completed an episode
    int bad_starts = 0;     // in a row: failed starts, or rounds of resets with a fault
    Time not_before{};      // earliest time of its next start or round of resets
  };

  Status OpenMemory();
  Status AwaitAll(EnvWorker::Event event);
  void Advance(Worker* worker, Time now);
  void BeginStart(Worker* worker, Time now);
  void KeepSpare();
  void TakeSpec(Worker* worker, Time now);
  void TakeSteps(Worker* worker, Time now);
  void TakeResets(Worker* worker, Time now);
  void TakeDeath(Worker* worker, Time now);
  void PutOff(Worker* worker, Time now, const std::string& why);
  void CountBadStart(Worker* worker, const std::string& why);
  void AskSeeds();
  void SeedNext(int index);
  void TakeEnd(int index, std::uint8_t flags, std::string* bad);
  void Fail(int index, std::int64_t step, std::string what);
  const StepBatch* Finish();
  void Pause(Time now) const;
  bool Settled() const;
  std::string FaultText(int index) const;

  template <class T>
  T* At(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }
  std::span<std::byte> Observation(int index) const {
    const std::size_t bytes = plan_.observation_bytes;
    return {memory_.get() + plan_.all.observation + std::size_t(index) * bytes, bytes};
  }
  std::span<std::byte> Final(int index) const {
    const std::size_t bytes = plan_.observation_bytes;
    return {memory_.get() + plan_.all.final + std::size_t(index) * bytes, bytes};
  }

  std::string id_;
  EnvOptions options_;
  EpisodeSeeder seeder_;
  SystemClock clock_;
  EnvSpec spec_;
  Status status_;
  WorkerProgram program_;
  int memfd_ = -1, epoll_ = -1;
  worker::MemoryPlan plan_;
  std::shared_ptr<std::byte> memory_;
  std::vector<Row> rows_;
  std::vector<Worker> workers_;
  WorkerProcess spare_;  // empty before the first death
  Tensor final_observation_, reward_, terminated_, truncated_, fault_;
  StepBatch batch_;
  std::vector<EnvFault> faults_;
  bool started_ = false, pending_ = false;  // a reset was submitted; a batch is due
};

ProcessVectorEnv::~ProcessVectorEnv() {
  // Close all sockets first, so that all processes exit at the same time.
  for (Worker& worker : workers_) worker.process.Hang();
  spare_.Hang();
  const Time end = clock_.Now() + kFarewell;
  for (Worker& worker : workers_) {
    worker.process.End(std::max(Duration{}, end - clock_.Now()));
  }
  spare_.End(std::max(Duration{}, end - clock_.Now()));
  if (epoll_ >= 0) close(epoll_);
  if (memfd_ >= 0) close(memfd_);
}

// Steps: start all workers in parallel, take their specs, map the memory, wait until all are ready.
Status ProcessVectorEnv::Open() {
  TROOP_ASSIGN_OR_RETURN(program_,
                         IsPythonEnvironment(id_) ? PythonWorker(options_.python) : TroopWorker());
  memfd_ = memfd_create("troop-env", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memfd_ < 0)
    return ResourceExhausted("{}: cannot create shared memory: {}", id_, strerror(errno));
  if (!options_.wait) epoll_ = epoll_create1(EPOLL_CLOEXEC);
  // Never more workers than environments; the first workers get the remaining rows.
  const int count = std::clamp(options_.processes, 1, size());
  for (int k = 0, first = 0; k < count; ++k) {
    const int rows = size() / count + (k < size() % count ? 1 : 0);
    EnvWorker process({.program = program_,
                       .id = id_,
                       .request = worker::WorkerRequest(id_, options_, rows),
                       .memory = memfd_,
                       .start_timeout = options_.start_timeout,
                       .step_timeout = options_.step_timeout,
                       .wait = options_.wait});
    workers_.push_back({.process = std::move(process), .first = first, .rows = rows});
    first += rows;
  }
  for (Worker& worker : workers_) BeginStart(&worker, clock_.Now());
  TROOP_RETURN_IF_ERROR(AwaitAll(EnvWorker::Event::kSpec));
  spec_ = *workers_[0].process.spec();
  TROOP_RETURN_IF_ERROR(OpenMemory());
  for (Worker& worker : workers_) TakeSpec(&worker, clock_.Now());
  TROOP_RETURN_IF_ERROR(status_);
  return AwaitAll(EnvWorker::Event::kReady);
}

// Blocks until every worker has reported the event; used for the first start only.
Status ProcessVectorEnv::AwaitAll(EnvWorker::Event wanted) {
  for (std::size_t left = workers_.size(); left > 0;) {
    const std::size_t before = left;
    for (Worker& worker : workers_) {
      const EnvWorker::Event event = worker.process.Poll(clock_.Now());
      if (event == wanted) --left;
      if (event != EnvWorker::Event::kDied) continue;
      const EnvWorker::Death& death = worker.process.death();
      TROOP_RETURN_IF_ERROR(death.final);
      return Unavailable(
          "{}: its process {} during its start; its output is above, or in the role's log", id_,
          death.what);
    }
    if (left < before) continue;
    if (options_.while_starting) TROOP_RETURN_IF_ERROR(options_.while_starting(clock_.Now()));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return Status::Ok();
}

// Allocates the shared memory, after the first specs have determined its size.
Status ProcessVectorEnv::OpenMemory() {
  TROOP_ASSIGN_OR_RETURN(plan_, worker::PlanMemory(spec_, size(), int(workers_.size())));
  const std::size_t bytes = plan_.all.total;
  void* mapped = MAP_FAILED;
  // Sealed: if a worker truncated the file, an access here would raise SIGBUS.
  if (ftruncate(memfd_, off_t(bytes)) == 0 &&
      fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_, 0);
  }
  if (mapped == MAP_FAILED) {
    return ResourceExhausted("{}: cannot allocate {} bytes of shared memory: {}", id_, bytes,
                             strerror(errno));
  }
  memory_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(mapped),
                                       [bytes](std::byte* at) { munmap(at, bytes); });
  // Observations are views of the shared memory; the other tensors are copies, since workers may
  // change the memory at any time.
  const TensorSpec rows{spec_.observation.dtype, spec_.observation.shape.Prepend(size())};
  const Tensor observation =
      Tensor::View(memory_, {memory_.get() + plan_.all.observation, rows.bytes()}, rows);
  final_observation_ = Tensor(rows.dtype, rows.shape);
  reward_ = Tensor(DType::kF32, {size()});
  terminated_ = Tensor(DType::kU8, {size()});
  truncated_ = Tensor(DType::kU8, {size()});
  fault_ = Tensor(DType::kU8, {size()});
  batch_ = {.observation = observation,
            .final_observation = final_observation_,
            .reward = reward_,
            .terminated = terminated_,
            .truncated = truncated_,
            .fault = fault_};
  return Status::Ok();
}

// Marks every row as ended; Poll then requests the seeds and begins the round of resets.
void ProcessVectorEnv::SubmitReset() {
  TROOP_CHECK(!pending_, "the previous step was not polled");
  for (const Tensor& tensor : {reward_, terminated_, truncated_, fault_}) {
    std::ranges::fill(tensor.bytes(), std::byte{0});
  }
  // Also drops seeds that were sent ahead: their episodes never begin.
  for (Row& row : rows_) row = {};
  faults_.clear();
  started_ = pending_ = true;
}

// Copies the actions into shared memory and begins a round of steps in all workers.
void ProcessVectorEnv::Submit(ConstTensor action) {
  TROOP_CHECK(started_ && !pending_, "Submit must come after a polled SubmitReset or Submit");
  const TensorSpec one = spec_.action.tensor();
  const TensorSpec want{one.dtype, one.shape.Prepend(size())};
  TROOP_CHECK(action.spec() == want, "{}: actions are {}, not {}", id_, want.ToString(),
              action.spec().ToString());
  pending_ = true;
  if (!status_.ok()) return;
  std::ranges::copy(action.bytes(), At<std::byte>(plan_.all.action));
  std::ranges::fill(fault_.bytes(), std::byte{0});
  faults_.clear();
  for (Row& row : rows_) {
    // Faults report this number, also if the worker dies during the step.
    ++row.step;
    row.ended_well = false;
  }
  const Time now = clock_.Now();
  for (Worker& worker : workers_) worker.process.Begin(worker::kStep, now);
}

// Ends the episodes of the given rows; the other rows keep theirs and do not step.
void ProcessVectorEnv::SubmitRestart(std::span<const int> indices) {
  TROOP_CHECK(started_ && !pending_,
              "SubmitRestart must come after a polled SubmitReset or Submit");
  pending_ = true;
  std::ranges::fill(fault_.bytes(), std::byte{0});
  faults_.clear();
  for (const int index : indices) {
    TROOP_CHECK(index >= 0 && index < size(), "environment {} of {}", index, size());
    rows_[std::size_t(index)].ended = true;
    rows_[std::size_t(index)].ended_well = false;
  }
}

const StepBatch* ProcessVectorEnv::Poll() {
  // A batch is complete when no worker is busy and every ended row has its next episode. Seeds are
  // requested only when all workers have settled, so that their order is that of the index.
  while (pending_ && status_.ok()) {
    const Time now = clock_.Now();
    if (Settled()) {
      if (std::ranges::none_of(rows_, &Row::ended)) return Finish();
      AskSeeds();
    }
    for (Worker& worker : workers_) Advance(&worker, now);
    if (Settled()) continue;
    // Without `wait` the caller sleeps on fd() and polls again.
    if (!options_.wait) return nullptr;
    Pause(now);
  }
  return nullptr;
}

bool ProcessVectorEnv::Settled() const {
  return std::ranges::none_of(workers_,
                              [](const Worker& w) { return w.process.busy() || w.to_reset; });
}

// With Options::wait, Poll of a busy worker blocks. If none is busy, sleep until the first restart.
void ProcessVectorEnv::Pause(Time now) const {
  Duration pause = kPollEvery;
  for (const Worker& worker : workers_) {
    if (!worker.process.down() && !worker.process.idle()) return;
    if (worker.to_reset) pause = std::min(pause, worker.not_before - now);
  }
  if (pause > Duration{}) std::this_thread::sleep_for(pause);
}

// Marks the ended rows for a round of resets and gives them their seeds.
void ProcessVectorEnv::AskSeeds() {
  for (Worker& worker : workers_) {
    for (int i = worker.first; i < worker.first + worker.rows; ++i) {
      Row& row = rows_[std::size_t(i)];
      const auto at = std::size_t(i);
      At<std::uint8_t>(plan_.all.reset)[at] = row.ended ? 1 : 0;
      if (!row.ended) continue;
      SeedNext(i);
      row.seed = *std::exchange(row.next_seed, std::nullopt);
      worker.to_reset = true;
    }
  }
}

// Requests the seed once: an episode whose start failed keeps its seed.
void ProcessVectorEnv::SeedNext(int index) {
  const auto at = std::size_t(index);
  if (!rows_[at].next_seed) rows_[at].next_seed = seeder_(index);
  At<std::uint64_t>(plan_.all.seed)[at] = *rows_[at].next_seed;
}

// One step of a worker's life: restart, event, pending round of resets.
void ProcessVectorEnv::Advance(Worker* worker, Time now) {
  if (worker->process.down() && now >= worker->not_before) BeginStart(worker, now);
  switch (worker->process.Poll(now)) {
    case EnvWorker::Event::kNothing:
    case EnvWorker::Event::kReady:
      break;
    case EnvWorker::Event::kSpec:
      TakeSpec(worker, now);
      break;
    case EnvWorker::Event::kDone:
      if (worker->process.resetting())
        TakeResets(worker, now);
      else
        TakeSteps(worker, now);
      break;
    case EnvWorker::Event::kDied:
      TakeDeath(worker, now);
      break;
  }
  if (worker->to_reset && worker->process.idle() && now >= worker->not_before) {
    worker->to_reset = false;
    worker->process.Begin(worker::kReset, now);
  }
}

// Starts the process of a worker, from the spare one if there is one, and adds its socket to epoll.
void ProcessVectorEnv::BeginStart(Worker* worker, Time now) {
  worker->process.Start(now, std::exchange(spare_, WorkerProcess()));
  if (epoll_ < 0 || worker->process.socket() < 0) return;
  // Closing the socket of the dead process has removed it from epoll.
  epoll_event event{.events = EPOLLIN, .data = {}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, worker->process.socket(), &event);
}

// Starts a spare worker. Most of a Python start is imports; the spare loads them while steps go on.
// Only after a death was survived: most environments never die and need no second process.
void ProcessVectorEnv::KeepSpare() {
  if (!IsPythonEnvironment(id_) || spare_.process() > 0) return;
  Result<WorkerProcess> spare = WorkerProcess::Start(program_, memfd_);
  if (!spare.ok()) return;  // the next start will report the error
  spare_ = std::move(spare).value();
  EnvOptions modules = options_;
  modules.options.clear();  // imports do not depend on them, and they may be long
  const std::string request = worker::WorkerRequest(id_, modules, 0);
  if (request.size() >= worker::kPartBytes) return;
  (void)send(spare_.socket(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Checks the spec of a started worker, then sends it the layout of its rows.
void ProcessVectorEnv::TakeSpec(Worker* worker, Time now) {
  // A restarted worker must have the same code and spec as the first one.
  const EnvSpec& spec = *worker->process.spec();
  if (status_ = CheckSameCode(id_, spec.code, spec_.code); !status_.ok()) return;
  if (spec != spec_) {
    status_ = FailedPrecondition(
        "{}: its processes report different specs ({} and {}); each start must give the same "
        "observations and actions",
        id_, DescribeObservation(spec_), DescribeObservation(spec));
    return;
  }
  const auto index = int(worker - workers_.data());
  worker->process.Map(plan_.Of(index, worker->first, worker->rows), memory_.get(), now);
}

// Reads the results of a round of steps from shared memory. Distinguishes three cases per row: a
// fault of the step, a running episode, an ended one.
void ProcessVectorEnv::TakeSteps(Worker* worker, Time now) {
  std::string bad;
  for (int i = worker->first; i < worker->first + worker->rows; ++i) {
    const auto at = std::size_t(i);
    Row& row = rows_[at];
    const std::uint8_t flags = At<std::uint8_t>(plan_.all.flags)[at];
    if ((flags & worker::kFault) != 0 && (flags & worker::kBegun) == 0) {
      Fail(i, row.step, FaultText(i));
      continue;
    }
    reward_.as<float>()[at] = At<float>(plan_.all.reward)[at];
    terminated_.as<std::uint8_t>()[at] = (flags & worker::kTerminated) != 0 ? 1 : 0;
    truncated_.as<std::uint8_t>()[at] = (flags & worker::kTruncated) != 0 ? 1 : 0;
    row.ended = (flags & (worker::kTerminated | worker::kTruncated)) != 0;
    if (!row.ended) continue;
    // A completed episode resets the backoff.
    worker->deaths = 0;
    TakeEnd(i, flags, &bad);
  }
  if (!bad.empty()) PutOff(worker, now, bad);
}

// Handles an episode that ended without a fault. The next one may have begun in the same round; if
// its start failed, `bad` gets the reason.
void ProcessVectorEnv::TakeEnd(int index, std::uint8_t flags, std::string* bad) {
  Row& row = rows_[std::size_t(index)];
  const bool begun = (flags & worker::kBegun) != 0;
  const std::size_t bytes = plan_.observation_bytes;
  row.ended_well = true;
  std::ranges::copy(begun ? Final(index) : Observation(index),
                    final_observation_.bytes().subspan(std::size_t(index) * bytes).begin());
  if (!begun) return;
  row.seed = *std::exchange(row.next_seed, std::nullopt);
  if ((flags & worker::kFault) != 0) {
    *bad = FaultText(index);
    Fail(index, 0, *bad);
  } else {
    row.ended = false;
    row.step = 0;
  }
}

// Reads the results of a round of resets. A row whose reset failed stays ended and is reset again.
void ProcessVectorEnv::TakeResets(Worker* worker, Time now) {
  std::string bad;
  for (int i = worker->first; i < worker->first + worker->rows; ++i) {
    const auto at = std::size_t(i);
    if (!rows_[at].ended) continue;
    if ((At<std::uint8_t>(plan_.all.flags)[at] & worker::kFault) != 0) {
      bad = FaultText(i);
      Fail(i, 0, bad);
    } else {
      rows_[at].ended = false;
      rows_[at].step = 0;
    }
  }
  if (!bad.empty()) return PutOff(worker, now, bad);
  worker->bad_starts = 0;
  if (worker->deaths > 0) KeepSpare();
}

// Delays the next round of resets after one in which an episode could not begin.
void ProcessVectorEnv::PutOff(Worker* worker, Time now, const std::string& why) {
  worker->not_before = now + Backoff(worker->bad_starts + 1);
  CountBadStart(worker, why);
}

// Handles the death of a worker: every environment of it loses its episode.
void ProcessVectorEnv::TakeDeath(Worker* worker, Time now) {
  const EnvWorker::Death& death = worker->process.death();
  if (!death.final.ok()) {
    status_ = death.final;
    return;
  }
  // AskSeeds requests a round of resets that was under way again; one that waits for the start
  // stays requested.
  if (!death.starting) worker->to_reset = false;
  worker->not_before = now + Backoff(++worker->deaths);
  for (int i = worker->first; i < worker->first + worker->rows; ++i) {
    Row& row = rows_[std::size_t(i)];
    if (death.resetting && death.row == i - worker->first && !row.ended && row.next_seed) {
      // The worker died in the reset after the row's last step, in the same round.
      row.seed = *std::exchange(row.next_seed, std::nullopt);
      row.ended = true;
    }
    const std::int64_t step = row.ended ? 0 : row.step;
    if (death.row < 0 || death.row == i - worker->first) {
      Fail(i, step, death.what);
    } else {
      Fail(i, step,
           fmt::format("shared a process with environment {}, which {}", worker->first + death.row,
                       death.what));
    }
  }
  // A death within a step is not a failed start: the next start may succeed.
  if (death.starting || death.resetting) CountBadStart(worker, death.what);
}

// Ends the vector after kStartsMax failures in a row: a faulty environment would restart forever.
void ProcessVectorEnv::CountBadStart(Worker* worker, const std::string& why) {
  if (++worker->bad_starts < kStartsMax) return;
  status_ = Cancelled("{}: {} consecutive starts failed; the last: {}", id_, kStartsMax, why);
}

// Records a fault. The first reason of a step is kept: later ones are consequences. If the row's
// episode ended normally and only the next start failed, the result is kept and the failure logged.
void ProcessVectorEnv::Fail(int index, std::int64_t step, std::string what) {
  const auto at = std::size_t(index);
  Row& row = rows_[at];
  if (row.ended_well) {
    LogWarning("{}: environment {}: an episode with seed {} failed to start: {}", id_, index,
               row.seed, what);
    row.ended = true;
    return;
  }
  if (!row.fault) row.fault = {index, row.seed, step, std::move(what)};
  row.ended = true;
  reward_.as<float>()[at] = 0;
  terminated_.as<std::uint8_t>()[at] = truncated_.as<std::uint8_t>()[at] = 0;
  const std::size_t bytes = plan_.observation_bytes;
  std::ranges::fill(final_observation_.bytes().subspan(at * bytes, bytes), std::byte{0});
}

// Copies the reason that a worker wrote for a row.
std::string ProcessVectorEnv::FaultText(int index) const {
  const char* text = At<char>(plan_.all.text + std::size_t(index) * worker::kTextBytes);
  std::array<char, worker::kTextBytes> copy;  // the worker may change the text while it is read
  memcpy(copy.data(), text, copy.size());
  const std::string clean =
      PrintableLine({copy.data(), strnlen(copy.data(), copy.size())}, copy.size());
  return clean.empty() ? "failed without a reason" : clean;
}

// Completes the batch: collects the faults of its rows in the order of their indices.
const StepBatch* ProcessVectorEnv::Finish() {
  // The seeds of the next episodes go ahead, so that workers can begin them without a second round.
  for (int i = 0; i < size(); ++i) SeedNext(i);
  for (Row& row : rows_) {
    if (!row.fault) continue;
    fault_.as<std::uint8_t>()[std::size_t(row.fault->index)] = 1;
    faults_.push_back(std::move(*std::exchange(row.fault, std::nullopt)));
  }
  pending_ = false;
  return &batch_;
}

// Sum over all workers, each of which adds to its own counter.
std::optional<Duration> ProcessVectorEnv::inside() const {
  if (!options_.measure) return std::nullopt;
  std::uint64_t total = 0;
  for (std::size_t k = 0; k < workers_.size(); ++k) {
    total += *At<std::uint64_t>(plan_.Of(int(k), 0, 0).spent);
  }
  return std::chrono::nanoseconds(total);
}

// Workers that restart have nothing to report.
void ProcessVectorEnv::TakeMetrics(EnvMetrics* into) {
  TROOP_CHECK(!pending_, "the previous step was not polled");
  for (Worker& worker : workers_) {
    if (options_.metrics && worker.process.idle()) worker.process.TakeMetrics(into);
  }
}

Environment::Picture ProcessVectorEnv::Render(int index) const {
  TROOP_CHECK(index >= 0 && index < size(), "environment {} of {}", index, size());
  for (const Worker& worker : workers_) {
    if (index >= worker.first + worker.rows) continue;
    // Logically const: rendering changes no state that a caller sees, but it uses the worker's
    // socket.
    auto& process = const_cast<EnvWorker&>(worker.process);
    return process.idle() ? process.Render(index - worker.first) : Environment::Picture{};
  }
  return {};
}

}  // namespace

bool IsPythonEnvironment(std::string_view id) {
  constexpr std::string_view kPrefixes[] = {
      "gymnasium:",  "python:", "gymnasium_vector:", "python_vector:", "envpool:",
      "ale_vector:", "ALE/"};
  return std::ranges::any_of(kPrefixes, [&](std::string_view p) { return id.starts_with(p); });
}

bool InProcess(std::string_view id, const EnvOptions& options) {
  if (options.isolation == Isolation::kProcess) return true;
  return options.isolation == Isolation::kAuto &&
         (!options.plugin.empty() || IsPythonEnvironment(id));
}

Result<std::unique_ptr<VectorEnv>> MakeSubprocVectorEnv(std::string_view id,
                                                        const EnvOptions& options, int size,
                                                        EpisodeSeeder seeder) {
  if (size < 1) return InvalidArgument("{}: vector size is {}, must be at least 1", id, size);
  auto env = std::make_unique<ProcessVectorEnv>(id, options, size, std::move(seeder));
  TROOP_RETURN_IF_ERROR(env->Open());
  return std::unique_ptr<VectorEnv>(std::move(env));
}

}  // namespace troop
