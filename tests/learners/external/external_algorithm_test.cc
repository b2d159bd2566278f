#include "learners/external/external_algorithm.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/storage/json.h"
#include "nn/models/model.h"
#include "tests/learners/dqn_testing.h"

namespace troop {
namespace {

constexpr std::int64_t kItems = 6, kSteps = 3;

// The other side of the socket in a thread: answers each message with `answer`.
class Program {
 public:
  struct Request {
    JsonValue message;
    std::string file;  // attached
  };
  using AnswerTo = std::function<std::optional<std::string>(Program&, const Request&)>;

  explicit Program(AnswerTo answer) : answer_(std::move(answer)) {
    char folder[] = "/tmp/troop-program-XXXXXX";
    folder_ = mkdtemp(folder);
    listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strcpy(address.sun_path, path().c_str());
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 4), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Program() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/socket"; }

  // A tensor in the shared memory, for `answer`.
  template <class T>
  std::span<T> Field(const std::string& name) const {
    for (const JsonValue& field : layout_.Find("fields")->array) {
      if (*field.String("name") != name) continue;
      std::size_t count = 1;
      for (const JsonValue& dim : field.Find("shape")->array) count *= std::size_t(*dim.integer);
      return {reinterpret_cast<T*>(memory_ + *field.Integer("offset")), count};
    }
    ADD_FAILURE() << "no field " << name;
    return {};
  }
  const JsonValue& layout() const { return layout_; }
  std::vector<std::string> types;  // of all messages
  std::string attach;              // file of the next answer

 private:
  static constexpr std::size_t kMax = 128 << 10;

  void Serve() {
    for (;;) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) return;
      while (ServeOne(fd)) {
      }
      if (memory_ != nullptr) munmap(std::exchange(memory_, nullptr), bytes_);
      close(fd);
    }
  }

  // False: the connection has ended.
  bool ServeOne(int fd) {
    std::string text(kMax, 0);
    iovec part{.iov_base = text.data(), .iov_len = text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
    if (size <= 0) return false;
    Request request{.message = *ParseJson(std::string_view(text).substr(0, std::size_t(size)))};
    types.push_back(*request.message.String("type"));
    int file = -1;
    if (const cmsghdr* attached = CMSG_FIRSTHDR(&header); attached != nullptr)
      memcpy(&file, CMSG_DATA(attached), sizeof file);
    if (types.back() == "hello") {
      layout_ = request.message;
      bytes_ = std::size_t(*layout_.Integer("bytes"));
      memory_ = static_cast<std::byte*>(
          mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    } else if (file >= 0) {
      request.file.resize(std::size_t(lseek(file, 0, SEEK_END)));
      EXPECT_EQ(pread(file, request.file.data(), request.file.size(), 0),
                ssize_t(request.file.size()));
    }
    if (file >= 0) close(file);
    const std::optional<std::string> answer = answer_(*this, request);
    return answer && Send(fd, *answer);
  }

  bool Send(int fd, const std::string& text) {
    iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    int file = -1;
    if (!attach.empty()) {
      file = memfd_create("test", MFD_CLOEXEC);
      EXPECT_EQ(write(file, attach.data(), attach.size()), ssize_t(attach.size()));
      attach.clear();
      header.msg_control = control;
      header.msg_controllen = sizeof control;
      cmsghdr* const attached = CMSG_FIRSTHDR(&header);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(sizeof file);
      memcpy(CMSG_DATA(attached), &file, sizeof file);
    }
    const bool sent = sendmsg(fd, &header, MSG_NOSIGNAL) >= 0;
    if (file >= 0) close(file);
    return sent;
  }

  const AnswerTo answer_;
  std::string folder_;
  int listener_ = -1;
  JsonValue layout_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::thread thread_;
};

constexpr char kHello[] = R"({"type": "hello", "protocol": 1})";

// Answers everything but batches as a working program does; batches with `done`.
Program::AnswerTo Working(std::function<std::string(Program&)> done) {
  return [done](Program& program, const Program::Request& request) -> std::optional<std::string> {
    const std::string type = *request.message.String("type");
    if (type == "hello") return kHello;
    if (type == "load") return R"({"type": "loaded"})";
    if (type == "save") return R"({"type": "saved"})";
    return done(program);
  };
}

// w ← w / 2; priorities 1, 2, ….
std::string HalveWeights(Program& program) {
  for (float& w : program.Field<float>("weights")) w /= 2;
  float next = 0;
  for (float& p : program.Field<float>("priority")) p = ++next;
  return R"({"type": "done", "loss": 0.25, "q_mean": 3, "weights": true})";
}

TrainingConfig ExternalConfig(const std::string& socket) {
  TrainingConfig config = SmallConfig();
  config.learner.algorithm = AlgorithmKind::kExternal;
  config.learner.program_socket = socket;
  config.learner.program_timeout_s = 20;
  config.learner.batch_size = kItems;
  config.n_step = kSteps;
  config.config_toml = "seed = 1\n";
  return config;
}

std::vector<float> ValueOf(const Algorithm& algorithm) {
  return {algorithm.value().begin(), algorithm.value().end()};
}

TEST(ExternalAlgorithmTest, UpdateTakesWeightsLossAndPrioritiesOfProgram) {
  const SampleBatch batch = RandomBatch(kItems, kSteps, 3);
  bool equal = true;
  Program program(Working([&](Program& p) {
    // The program sees the batch's own bytes.
    equal = std::ranges::equal(p.Field<float>("observation"), batch.observation.as<float>()) &&
            std::ranges::equal(p.Field<float>("next_observation"),
                               batch.next_observation.as<float>()) &&
            std::ranges::equal(p.Field<std::int32_t>("action"), batch.action.as<std::int32_t>()) &&
            std::ranges::equal(p.Field<float>("reward"), batch.reward.as<float>()) &&
            std::ranges::equal(p.Field<float>("discount"), batch.discount.as<float>()) &&
            std::ranges::equal(p.Field<std::int32_t>("length"), batch.length) &&
            std::ranges::equal(p.Field<float>("weight"), batch.weight);
    return HalveWeights(p);
  }));
  const auto algorithm = Make(ExternalConfig(program.path()));
  const std::vector<float> before = ValueOf(*algorithm);
  std::vector<float> priority(kItems);
  const auto report = algorithm->Update(batch, 0, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(equal);
  EXPECT_EQ(report->loss, 0.25);
  EXPECT_EQ(report->q_mean, 3);
  EXPECT_EQ(report->td_error_mean, 3.5);
  EXPECT_THAT(priority, testing::ElementsAre(1, 2, 3, 4, 5, 6));
  double squares = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_EQ(algorithm->value()[i], before[i] / 2) << i;
    squares += double(before[i]) / 2 * (double(before[i]) / 2);
  }
  EXPECT_NEAR(report->gradient_norm, std::sqrt(squares), 1e-6);
  EXPECT_EQ(algorithm->updates(), 1u);
  EXPECT_THAT(program.types, testing::ElementsAre("hello", "load", "batch"));
  EXPECT_EQ(*program.layout().String("config"), "seed = 1\n");
}

// Names, shapes and places of the network's parameters, with which the program finds them.
TEST(ExternalAlgorithmTest, LayoutNamesTheParameters) {
  Program program(Working(HalveWeights));
  const auto algorithm = Make(ExternalConfig(program.path()));
  std::vector<float> priority(kItems);
  ASSERT_TRUE(algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority).ok());
  const auto network = std::move(MakeNetwork(ModelSetupOf(ExternalConfig("x")), Env())).value();
  const auto& named = program.layout().Find("parameters")->array;
  ASSERT_EQ(named.size(), network->params().size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(*named[i].String("name"), network->params()[i].name);
    EXPECT_EQ(*named[i].Integer("offset"), network->params()[i].offset);
  }
}

TEST(ExternalAlgorithmTest, WeightsStayWithoutNewOnes) {
  Program program(Working([](Program& p) {
    HalveWeights(p);
    return std::string(R"({"type": "done", "loss": 1})");
  }));
  const auto algorithm = Make(ExternalConfig(program.path()));
  const std::vector<float> before = ValueOf(*algorithm);
  std::vector<float> priority(kItems);
  const auto report = algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->gradient_norm, 0);
  EXPECT_EQ(ValueOf(*algorithm), before);
  EXPECT_EQ(algorithm->updates(), 1u);
}

TEST(ExternalAlgorithmTest, RewardsAreClipped) {
  SampleBatch batch = RandomBatch(kItems, kSteps, 3);
  batch.reward.as<float>()[0] = 3;
  batch.reward.as<float>()[1] = -3;
  std::vector<float> seen;
  Program program(Working([&](Program& p) {
    const auto reward = p.Field<float>("reward");
    seen.assign(reward.begin(), reward.end());
    return HalveWeights(p);
  }));
  TrainingConfig config = ExternalConfig(program.path());
  config.reward_clip = 0.5;
  const auto algorithm = Make(config);
  std::vector<float> priority(kItems);
  ASSERT_TRUE(algorithm->Update(batch, 0, priority).ok());
  ASSERT_EQ(seen.size(), std::size_t(kItems * kSteps));
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const float raw = batch.reward.as<float>()[i];
    EXPECT_EQ(seen[i], raw > 0.5f ? 0.5f : raw < -0.5f ? -0.5f : raw) << i;
  }
}

// Results that cannot be used skip the batch, and nothing changes; the program stays connected.
TEST(ExternalAlgorithmTest, UnusableResultsSkipTheBatch) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Case {
    std::string word;  // of the message
    std::function<std::string(Program&)> done;
  };
  // A good update but for one member.
  const auto answer = [](const std::string& member) {
    return [member](Program& p) {
      HalveWeights(p);
      return R"({"type": "done", "loss": 1, )" + member + "}";
    };
  };
  const std::vector<Case> cases = {
      {"no finite loss", [](Program&) { return std::string(R"({"type": "done", "loss": null})"); }},
      {"no finite loss", [](Program&) { return std::string(R"({"type": "done"})"); }},
      {"no finite loss", [](Program&) { return std::string(R"({"type": "else", "loss": 1})"); }},
      {"\"weights\" is neither true nor false", answer(R"("weights": 1)")},
      {"\"weights\" is neither true nor false", answer(R"("weights": "true")")},
      {"\"weights\" is neither true nor false", answer(R"("weights": null)")},
      {"\"q_mean\" is not a number", answer(R"("q_mean": "3")")},
      {"\"q_mean\" is not a number", answer(R"("q_mean": null)")},
      {"\"q_mean\" is not a number", answer(R"("q_mean": [3])")},
      {"refused the batch: too old",
       [](Program&) { return std::string(R"({"type": "refused", "message": "too old"})"); }},
      {"priority nan for item 2",
       [&](Program& p) {
         const std::string good = HalveWeights(p);
         p.Field<float>("priority")[2] = nan;
         return good;
       }},
      {"priority -1 for item 5",
       [](Program& p) {
         const std::string good = HalveWeights(p);
         p.Field<float>("priority")[5] = -1;
         return good;
       }},
      {"layers.0.weight[1] is nan", [&](Program& p) {
         const std::string good = HalveWeights(p);
         p.Field<float>("weights")[1] = nan;
         return good;
       }}};
  std::size_t at = 0;
  bool good = false;
  Program program(Working([&](Program& p) {
    if (good) std::ranges::fill(p.Field<float>("weights"), 0.5f);
    return good ? HalveWeights(p) : cases[at].done(p);
  }));
  const auto algorithm = Make(ExternalConfig(program.path()));
  const std::vector<float> before = ValueOf(*algorithm);
  std::vector<float> priority(kItems);
  for (at = 0; at < cases.size(); ++at) {
    const auto report = algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority);
    ASSERT_FALSE(report.ok()) << at;
    const bool refused = cases[at].word.starts_with("refused");
    EXPECT_EQ(report.status().code(), refused ? Code::kCancelled : Code::kDataLoss) << at;
    EXPECT_THAT(report.status().message(), testing::HasSubstr(cases[at].word));
    EXPECT_EQ(ValueOf(*algorithm), before) << at;
    EXPECT_EQ(algorithm->updates(), 0u);
    EXPECT_TRUE(algorithm->CheckFinite().ok());
  }
  good = true;
  EXPECT_TRUE(algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority).ok());
  EXPECT_EQ(std::ranges::count(program.types, "hello"), 1);
}

// The learner ends then, and its replacement connects again.
TEST(ExternalAlgorithmTest, LostProgramIsUnavailable) {
  using Answer = std::optional<std::string>;
  struct Case {
    std::string word;
    Program::AnswerTo answer;
  };
  const std::vector<Case> cases = {
      {"closed the connection",
       [](Program&, const Program::Request& r) -> Answer {
         return *r.message.String("type") == "hello" ? Answer(kHello) : std::nullopt;
       }},
      {"another version",
       [](Program&, const Program::Request&) -> Answer {
         return R"({"type": "hello", "protocol": 2})";
       }},
      {"no JSON", [](Program&, const Program::Request&) -> Answer { return "{"; }},
      {"cannot load the state",
       [](Program&, const Program::Request& r) -> Answer {
         return *r.message.String("type") == "hello" ? kHello : R"({"type": "failed"})";
       }},
      {"too long", [](Program&, const Program::Request&) -> Answer {
         return std::string((128 << 10) + 1, ' ');
       }}};
  for (const Case& c : cases) {
    Program program(c.answer);
    const auto algorithm = Make(ExternalConfig(program.path()));
    std::vector<float> priority(kItems);
    const auto report = algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority);
    ASSERT_FALSE(report.ok()) << c.word;
    EXPECT_EQ(report.status().code(), Code::kUnavailable) << report.status().ToString();
    EXPECT_THAT(report.status().message(), testing::HasSubstr(c.word));
    EXPECT_EQ(algorithm->CheckFinite().code(), Code::kUnavailable);
  }
  const auto alone = Make(ExternalConfig("/tmp/troop-no-such-socket"));
  std::vector<float> priority(kItems);
  EXPECT_EQ(alone->Update(RandomBatch(kItems, kSteps, 3), 0, priority).status().code(),
            Code::kUnavailable);
}

TEST(ExternalAlgorithmTest, AnswersHaveADeadline) {
  // The thread ends when the algorithm closes the connection: it waits for the next message.
  Program program([](Program&, const Program::Request&) -> std::optional<std::string> {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return kHello;
  });
  TrainingConfig config = ExternalConfig(program.path());
  config.learner.program_timeout_s = 0.05;
  const auto algorithm = Make(config);
  std::vector<float> priority(kItems);
  const auto report = algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority);
  EXPECT_EQ(report.status().code(), Code::kUnavailable);
  EXPECT_THAT(report.status().message(), testing::HasSubstr("learner.program_timeout_s"));
}

// A checkpoint has the weights and the bytes of the program; a replacement gives it both back.
TEST(ExternalAlgorithmTest, StateHasWeightsAndBytesOfProgram) {
  TensorFile state;
  std::vector<float> value;
  {
    Program program([](Program& p, const Program::Request& r) -> std::optional<std::string> {
      if (*r.message.String("type") == "save") p.attach = std::string("momentum\0!", 10);
      return Working(HalveWeights)(p, r);
    });
    const auto algorithm = Make(ExternalConfig(program.path()));
    EXPECT_EQ(algorithm->State().tensors.count("program"), 0u);  // not connected yet
    std::vector<float> priority(kItems);
    ASSERT_TRUE(algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority).ok());
    state = algorithm->State();
    value = ValueOf(*algorithm);
  }
  std::vector<float> loaded;
  std::string bytes;
  std::int64_t updates = -1;
  Program program([&](Program& p, const Program::Request& r) -> std::optional<std::string> {
    if (*r.message.String("type") == "load") {
      const auto weights = p.Field<float>("weights");
      loaded.assign(weights.begin(), weights.end());
      bytes = r.file;
      updates = *r.message.Integer("updates");
    }
    return Working(HalveWeights)(p, r);
  });
  const auto algorithm = Make(ExternalConfig(program.path()));
  ASSERT_TRUE(algorithm->SetState(state).ok());
  EXPECT_EQ(algorithm->updates(), 1u);
  EXPECT_EQ(ValueOf(*algorithm), value);
  std::vector<float> priority(kItems);
  ASSERT_TRUE(algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority).ok());
  EXPECT_EQ(loaded, value);
  EXPECT_EQ(bytes, std::string("momentum\0!", 10));
  EXPECT_EQ(updates, 1);
  // A rollback gives the program the older state too, and the count continues.
  ASSERT_TRUE(algorithm->RollBack(state).ok());
  EXPECT_EQ(algorithm->updates(), 3u);
  ASSERT_TRUE(algorithm->Update(RandomBatch(kItems, kSteps, 3), 0, priority).ok());
  EXPECT_EQ(loaded, value);
  EXPECT_EQ(updates, 3);
}

TEST(ExternalAlgorithmTest, StatesOfOtherAlgorithmsAreRefused) {
  const auto dqn = Make(SmallConfig());
  const auto algorithm = Make(ExternalConfig("x"));
  const std::vector<float> before = ValueOf(*algorithm);
  EXPECT_EQ(algorithm->SetState(dqn->State()).code(), Code::kInvalidArgument);
  TensorFile other = algorithm->State();
  other.tensors["value"] = ConstTensor(Tensor(DType::kF32, {3}));
  EXPECT_EQ(algorithm->SetState(other).code(), Code::kInvalidArgument);
  EXPECT_EQ(ValueOf(*algorithm), before);
}

TEST(ExternalAlgorithmTest, BatchesThatDoNotFitAreRefused) {
  Program program(Working(HalveWeights));
  const auto algorithm = Make(ExternalConfig(program.path()));
  std::vector<float> priority(kItems - 1);
  EXPECT_EQ(algorithm->Update(RandomBatch(kItems - 1, kSteps, 3), 0, priority).status().code(),
            Code::kInvalidArgument);
  priority.resize(kItems);
  EXPECT_EQ(algorithm->Update(RandomBatch(kItems, kSteps + 1, 3), 0, priority).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace troop
