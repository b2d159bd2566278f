#include "learners/checkpoint.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/storage/json.h"
#include "core/storage/memory_storage.h"
#include "learners/algorithm.h"
#include "nn/models/model.h"

namespace troop {
namespace {

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    env_.id = "test";
    env_.observation = {DType::kF32, {3}};
    env_.action.count = 2;
    LayerConfig layer;
    layer.type = LayerType::kLinear;
    layer.units = 8;
    config_.network.layers = {layer};
    config_.config_toml = "seed = 3\nname = \"test\"\n";
    module_ = std::move(*MakeNetwork(ModelSetupOf(config_), env_));
    algorithm_ = std::move(*MakeAlgorithm(config_, env_));
  }
  CheckpointState State(std::uint64_t updates, std::int64_t steps = 0) {
    return {.updates = updates,
            .steps = steps,
            .config_toml = config_.config_toml,
            .state = algorithm_->State()};
  }
  std::string Write(std::uint64_t updates, std::int64_t keep = 10, std::int64_t steps = 0) {
    auto path = WriteCheckpoint(run_.get(), *module_, State(updates, steps), keep);
    EXPECT_TRUE(path.ok()) << path.status().ToString();
    return *path;
  }
  std::string Text(const std::string& path) {
    const auto bytes = run_->Read(path, 1 << 20);
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    return std::string(bytes->text());
  }
  std::vector<std::string> Folders() { return *run_->List("checkpoints"); }

  EnvSpec env_;
  TrainingConfig config_;
  std::unique_ptr<Module> module_;
  std::unique_ptr<Algorithm> algorithm_;
  std::unique_ptr<Storage> run_ = std::make_unique<MemoryStorage>();
};

TEST_F(CheckpointTest, RefusesDamagedRewardStatistics) {
  CheckpointState state = State(12);
  state.rewards = {.count = 2, .mean = 1, .squares = -1};
  const auto path = WriteCheckpoint(run_.get(), *module_, state, 3);
  ASSERT_TRUE(path.ok());
  const Status read = ReadCheckpoint(run_.get(), *path).status();
  EXPECT_EQ(read.code(), Code::kDataLoss);
  EXPECT_NE(read.message().find("count 2, mean 1 and squares -1"), std::string::npos)
      << read.ToString();
}

TEST_F(CheckpointTest, RoundTripsState) {
  const CheckpointState state = State(12, 345);
  const auto path = WriteCheckpoint(run_.get(), *module_, state, 3);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, "checkpoints/000000000012");
  const auto read = ReadCheckpoint(run_.get(), *path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->updates, 12u);
  EXPECT_EQ(read->steps, 345);
  EXPECT_EQ(read->config_toml, state.config_toml);
  ASSERT_EQ(read->state.tensors.size(), state.state.tensors.size());
  for (const auto& [name, tensor] : state.state.tensors) {
    EXPECT_TRUE(std::ranges::equal(read->state.tensors.at(name).bytes(), tensor.bytes())) << name;
  }
  EXPECT_EQ(read->state.metadata, state.state.metadata);
}

TEST_F(CheckpointTest, NewestFiniteSkipsNonFiniteCheckpoints) {
  EXPECT_EQ(NewestFiniteCheckpoint(run_.get()).status().code(), Code::kNotFound);
  const std::string good = Write(3);
  for (const char* tensor : {"value", "target", "optimizer.m"}) {
    CheckpointState bad = State(5);
    Tensor spoilt(DType::kF32, bad.state.tensors.at(tensor).shape());
    spoilt.as<float>().back() = std::numeric_limits<float>::infinity();
    bad.state.tensors[tensor] = spoilt;
    const auto path = WriteCheckpoint(run_.get(), *module_, bad, 10);
    EXPECT_EQ(*NewestCheckpoint(run_.get()), *path);
    const auto found = NewestFiniteCheckpoint(run_.get());
    ASSERT_TRUE(found.ok()) << found.status().ToString();
    EXPECT_EQ(found->path, good) << tensor;
    EXPECT_EQ(found->checkpoint.updates, 3u);
  }
  const std::string newer = Write(6);
  EXPECT_EQ(NewestFiniteCheckpoint(run_.get())->path, newer);
  ASSERT_TRUE(run_->WriteAtomic(newer + "/state.safetensors", "x").ok());
  EXPECT_EQ(NewestFiniteCheckpoint(run_.get())->path, good);
}

TEST_F(CheckpointTest, CorrectsStepsAndKeepsRest) {
  const std::string path = Write(7, 10, 100);
  const std::string weights = Text(path + "/weights.safetensors");
  ASSERT_TRUE(CorrectCheckpointSteps(run_.get(), path, 3152).ok());
  const auto read = ReadCheckpoint(run_.get(), path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->steps, 3152);
  EXPECT_EQ(read->updates, 7u);
  EXPECT_EQ(read->config_toml, config_.config_toml);
  EXPECT_EQ(Text(path + "/weights.safetensors"), weights);
  EXPECT_EQ(Folders(), std::vector<std::string>{"000000000007/"});
  EXPECT_EQ(CorrectCheckpointSteps(run_.get(), "checkpoints/8", 1).code(), Code::kNotFound);
}

TEST_F(CheckpointTest, WritesOneNamedTensorPerParameter) {
  const std::string path = Write(5);
  const auto bytes = run_->Read(path + "/weights.safetensors", 1 << 20);
  const auto file = DecodeSafetensors(*bytes);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->tensors.size(), module_->params().size());
  for (const ParamSpec& param : module_->params()) {
    const ConstTensor& tensor = file->tensors.at(param.name);
    EXPECT_EQ(tensor.shape(), param.shape);
    EXPECT_TRUE(std::ranges::equal(
        tensor.as<float>(), algorithm_->value().subspan(std::size_t(param.offset),
                                                        std::size_t(param.shape.elements()))));
  }
}

TEST_F(CheckpointTest, KeepsNewestCheckpoints) {
  for (const std::uint64_t updates : {10, 20, 30, 40}) Write(updates, 2);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000030/", "000000000040/"}));
  EXPECT_EQ(*NewestCheckpoint(run_.get()), "checkpoints/000000000040");
}

TEST_F(CheckpointTest, ReturnsNotFoundWhenEmpty) {
  EXPECT_EQ(NewestCheckpoint(run_.get()).status().code(), Code::kNotFound);
  EXPECT_EQ(ReadCheckpoint(run_.get(), "checkpoints/000000000001").status().code(),
            Code::kNotFound);
}

// Each damage must be reported with the name of its file.
TEST_F(CheckpointTest, NamesDamagedFileAndSkipsCheckpoint) {
  const std::string old = Write(1);
  struct Damage {
    const char* file;
    std::function<std::string(std::string)> change;
  };
  const auto flip = [](std::string s) { return s[s.size() / 2] ^= 1, s; };
  const auto cut = [](std::string s) { return s.substr(0, s.size() / 2); };
  const auto grow = [](std::string s) { return s + "x"; };
  const auto empty = [](const std::string&) { return std::string(); };
  const auto gone = [](const std::string&) { return std::string("\1"); };  // removed below
  std::vector<Damage> damages;
  for (const char* file : {"weights.safetensors", "state.safetensors", "state.json"}) {
    for (const auto& change :
         std::vector<std::function<std::string(std::string)>>{flip, cut, grow, empty, gone}) {
      damages.push_back({file, change});
    }
  }
  for (const auto& change : std::vector<std::function<std::string(std::string)>>{
           cut, empty, gone, [](const std::string&) { return "{}"; },
           [](const std::string&) { return R"({"version": 1})"; },
           [](const std::string&) { return R"({"version": 1, "files": 3})"; },
           [](const std::string&) {
             return R"({"version": 1, "files": {"../x": {"bytes": 1, "crc32c": 1}}})";
           },
           [](const std::string&) { return R"({"version": 1, "files": {"state.json": {}}})"; }}) {
    damages.push_back({"manifest.json", change});
  }
  for (const Damage& damage : damages) {
    const std::string path = Write(2);
    const std::string file = path + "/" + damage.file;
    const std::string bytes = damage.change(Text(file));
    if (bytes == "\1") {
      ASSERT_TRUE(run_->Remove(file).ok());
    } else {
      ASSERT_TRUE(run_->WriteAtomic(file, bytes).ok());
    }
    const Status status = ReadCheckpoint(run_.get(), path).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << file << ": " << bytes.substr(0, 80);
    EXPECT_NE(status.message().find(damage.file), std::string::npos) << status.message();
    const auto newest = NewestCheckpoint(run_.get());
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    EXPECT_EQ(*newest, old);
  }
}

TEST_F(CheckpointTest, ReturnsDataLossWhenAllAreDamaged) {
  const std::string path = Write(3);
  ASSERT_TRUE(run_->WriteAtomic(path + "/state.json", "{}").ok());
  EXPECT_EQ(NewestCheckpoint(run_.get()).status().code(), Code::kDataLoss);
}

TEST_F(CheckpointTest, ReturnsDataLossForNegativeCounts) {
  const std::string path = Write(3, 10, -5);
  const Status status = ReadCheckpoint(run_.get(), path).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find("3 updates and -5 steps"), std::string::npos) << status.message();
}

TEST_F(CheckpointTest, RejectsNewerFormat) {
  const std::string path = Write(3);
  ASSERT_TRUE(run_->WriteAtomic(path + "/manifest.json", R"({"version": 99, "files": {}})").ok());
  const Status status = ReadCheckpoint(run_.get(), path).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("99"), std::string::npos);
}

TEST_F(CheckpointTest, IgnoresAndRemovesInterruptedWrite) {
  const std::string whole = Write(5);
  ASSERT_TRUE(run_->WriteAtomic("checkpoints/000000000006.tmp/weights.safetensors", "half").ok());
  EXPECT_EQ(*NewestCheckpoint(run_.get()), whole);
  Write(7);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000005/", "000000000007/"}));
}

// It was taken for the same checkpoint, and stayed damaged.
TEST_F(CheckpointTest, ReplacesDamagedCheckpointOfSameUpdate) {
  const std::string path = Write(5);
  ASSERT_TRUE(run_->WriteAtomic(path + "/state.json", "{}").ok());
  EXPECT_EQ(Write(5, 3, 77), path);
  const auto read = ReadCheckpoint(run_.get(), path);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->steps, 77);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000005/"}));
}

TEST_F(CheckpointTest, KeepsOldCheckpointWhenReplacementIsInterrupted) {
  const std::string path = Write(5);
  ASSERT_TRUE(run_->Rename(path, path + ".old").ok());  // as far as it came
  const auto newest = NewestCheckpoint(run_.get());
  ASSERT_TRUE(newest.ok()) << newest.status().ToString();
  EXPECT_TRUE(ReadCheckpoint(run_.get(), *newest).ok());
  Write(5);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000005/"}));
}

TEST_F(CheckpointTest, KeepsIntactCheckpointWhenWriteFails) {
  auto* const run = static_cast<MemoryStorage*>(run_.get());
  Write(4);
  Write(5);
  std::int64_t failures = 0;
  for (bool written = false; !written; ++failures) {
    ASSERT_LT(failures, 100);
    run->FailFrom(run->changes() + failures, ResourceExhausted("full"));
    written = WriteCheckpoint(run, *module_, State(5), 10).ok();
    const auto newest = NewestCheckpoint(run);
    ASSERT_TRUE(newest.ok()) << newest.status().ToString();
    const auto read = ReadCheckpoint(run, *newest);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read->updates, 5u) << failures;
    run->Repair();
  }
  EXPECT_GT(failures, 5);
}

// A run that went on from 300, since 500 was damaged, lost what it wrote at 400 with keep = 1.
TEST_F(CheckpointTest, KeepsLatestWriteDespiteHigherUpdateCounts) {
  Write(300);
  const std::string damaged = Write(500);
  ASSERT_TRUE(run_->WriteAtomic(damaged + "/state.json", "{}").ok());
  Write(400, 1);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000400/"}));
}

// A disk of limited capacity: a write that does not fit fails after writing as much as fits.
class SmallDisk final : public Storage {
 public:
  explicit SmallDisk(std::size_t bytes) : bytes_(bytes) {}
  void Grow(std::size_t bytes) { bytes_ += bytes; }
  using Storage::WriteAtomic;
  Status WriteAtomic(std::string_view path, std::span<const std::byte> bytes) override {
    if (Used("") + bytes.size() > bytes_) return ResourceExhausted("no space left for {}", path);
    return disk_->WriteAtomic(path, bytes);
  }
  Result<std::unique_ptr<AppendFile>> OpenAppend(std::string_view path) override {
    return disk_->OpenAppend(path);
  }
  Result<Buffer> Read(std::string_view path, std::size_t bytes_max) override {
    return disk_->Read(path, bytes_max);
  }
  Result<std::vector<std::string>> List(std::string_view folder) override {
    return disk_->List(folder);
  }
  bool Exists(std::string_view path) override { return disk_->Exists(path); }
  Status Rename(std::string_view from, std::string_view to) override {
    return disk_->Rename(from, to);
  }
  Status Remove(std::string_view path) override { return disk_->Remove(path); }
  Result<std::unique_ptr<StorageLock>> Lock(std::string_view path,
                                            std::string_view holder) override {
    return disk_->Lock(path, holder);
  }
  std::size_t Used(const std::string& folder) {
    std::size_t sum = 0;
    const std::vector<std::string> names = *disk_->List(folder);
    for (const std::string& name : names) {
      const std::string path = folder.empty() ? name : folder + "/" + name;
      sum += name.ends_with('/') ? Used(path.substr(0, path.size() - 1))
                                 : disk_->Read(path, std::size_t{1} << 30)->size();
    }
    return sum;
  }

 private:
  std::size_t bytes_;
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
};

// Each failed write left what it had written: the disk stayed full when others had made room.
TEST_F(CheckpointTest, FreesSpaceOfFailedWriteOnFullDisk) {
  SmallDisk large(std::size_t{1} << 30);
  ASSERT_TRUE(WriteCheckpoint(&large, *module_, State(1), 1).ok());
  const std::size_t one = large.Used("");
  SmallDisk full(one + one / 2);  // one and a half
  ASSERT_TRUE(WriteCheckpoint(&full, *module_, State(1), 1).ok());
  for (std::uint64_t updates = 2; updates < 10; ++updates) {
    const Status status = WriteCheckpoint(&full, *module_, State(updates), 1).status();
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_EQ(full.Used(""), one);
  }
  EXPECT_EQ(*NewestCheckpoint(&full), "checkpoints/000000000001");
  full.Grow(one / 2 + 64);
  EXPECT_TRUE(WriteCheckpoint(&full, *module_, State(10), 1).ok());
}

TEST_F(CheckpointTest, RemovesLeftoversOfKilledWriterBeforeWriting) {
  SmallDisk disk(10'000);
  ASSERT_TRUE(disk.WriteAtomic("checkpoints/000000000001.tmp/a", std::string(9'500, 'x')).ok());
  ASSERT_TRUE(disk.WriteAtomic("checkpoints/notes.tmp/a", "mine").ok());
  EXPECT_TRUE(WriteCheckpoint(&disk, *module_, State(2), 1).ok());
  EXPECT_TRUE(disk.Exists("checkpoints/notes.tmp"));
}

TEST_F(CheckpointTest, KeepsUnrelatedFolders) {
  ASSERT_TRUE(run_->WriteAtomic("checkpoints/best/note", "mine").ok());
  Write(1, 1);
  Write(2, 1);
  EXPECT_EQ(Folders(), (std::vector<std::string>{"000000000002/", "best/"}));
}

}  // namespace
}  // namespace troop
