#pragma once

// Tests of the contract of every Storage. Instantiate with makers of empty storages:
//   INSTANTIATE_TEST_SUITE_P(Memory, StorageContract, testing::Values(&MakeMemoryWorld));
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/storage/storage.h"

namespace troop {

// A storage and its environment.
class StorageWorld {
 public:
  virtual ~StorageWorld() = default;
  virtual Storage& storage() = 0;
};

class StorageContract : public testing::TestWithParam<std::unique_ptr<StorageWorld> (*)()> {
 protected:
  StorageContract() : world_(GetParam()()), storage_(world_->storage()) {}

  std::string Text(std::string_view path) {
    const Result<Buffer> bytes = storage_.Read(path, 1 << 20);
    return bytes.ok() ? std::string(bytes->text()) : bytes.status().ToString();
  }
  std::vector<std::string> Names(std::string_view folder) {
    const auto names = storage_.List(folder);
    EXPECT_TRUE(names.ok()) << names.status().ToString();
    return names.ok() ? *names : std::vector<std::string>();
  }

  const std::unique_ptr<StorageWorld> world_;
  Storage& storage_;
};

TEST_P(StorageContract, ReadsAndReplacesWholeFiles) {
  ASSERT_TRUE(storage_.WriteAtomic("a/b/c.txt", "first, and long").ok());
  EXPECT_EQ(Text("a/b/c.txt"), "first, and long");
  ASSERT_TRUE(storage_.WriteAtomic("a/b/c.txt", "second").ok());
  EXPECT_EQ(Text("a/b/c.txt"), "second");
  ASSERT_TRUE(storage_.WriteAtomic("empty", "").ok());
  EXPECT_EQ(Text("empty"), "");
  const std::string zeros("\0\n\xff\0", 4);
  ASSERT_TRUE(storage_.WriteAtomic("bytes", zeros).ok());
  EXPECT_EQ(Text("bytes"), zeros);
}

TEST_P(StorageContract, WriteLeavesNoOtherFiles) {
  ASSERT_TRUE(storage_.WriteAtomic("folder/file", "x").ok());
  ASSERT_TRUE(storage_.WriteAtomic("folder/file", "y").ok());
  EXPECT_THAT(Names("folder"), testing::ElementsAre("file"));
}

TEST_P(StorageContract, ReportsNameOfMissingFile) {
  const auto bytes = storage_.Read("no/such", 10);
  EXPECT_EQ(bytes.status().code(), Code::kNotFound);
  EXPECT_THAT(bytes.status().message(), testing::HasSubstr("no/such"));
  ASSERT_TRUE(storage_.WriteAtomic("folder/file", "x").ok());
  EXPECT_EQ(storage_.Read("folder", 10).status().code(), Code::kNotFound);
}

TEST_P(StorageContract, RejectsFileLargerThanLimitNamingBothSizes) {
  ASSERT_TRUE(storage_.WriteAtomic("file", "12345").ok());
  EXPECT_TRUE(storage_.Read("file", 5).ok());
  const auto bytes = storage_.Read("file", 4);
  EXPECT_EQ(bytes.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(bytes.status().message(), testing::HasSubstr("5 bytes; the limit here is 4"));
}

TEST_P(StorageContract, AppendedBytesAreReadableImmediatelyAndKept) {
  {
    auto file = storage_.OpenAppend("log/lines");
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(Text("log/lines"), "");
    ASSERT_TRUE((*file)->Append("one\n").ok());
    EXPECT_EQ(Text("log/lines"), "one\n");
    ASSERT_TRUE((*file)->Append("").ok());
    ASSERT_TRUE((*file)->Sync().ok());
  }
  auto again = storage_.OpenAppend("log/lines");
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE((*again)->Append("two\n").ok());
  EXPECT_EQ(Text("log/lines"), "one\ntwo\n");
}

TEST_P(StorageContract, MappedFileKeepsBytesAfterRemoval) {
  auto file = storage_.OpenAppend("log/1");
  ASSERT_TRUE(file.ok() && (*file)->Append("one").ok());
  const auto bytes = storage_.Map("log/1");
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  ASSERT_TRUE((*file)->Append("two").ok());
  EXPECT_EQ(bytes->text(), "one");
  const Buffer slice = storage_.Map("log/1")->Slice(2, 3);
  ASSERT_TRUE(storage_.Remove("log/1").ok());
  EXPECT_EQ(bytes->text(), "one");
  EXPECT_EQ(slice.text(), "etw");
  ASSERT_TRUE(storage_.WriteAtomic("empty", "").ok());
  EXPECT_TRUE(storage_.Map("empty")->empty());
  EXPECT_EQ(storage_.Map("log/1").status().code(), Code::kNotFound);
  EXPECT_EQ(storage_.Map("log").status().code(), Code::kNotFound);
  EXPECT_EQ(storage_.Map("../x").status().code(), Code::kInvalidArgument);
}

TEST_P(StorageContract, TruncateKeepsPrefixAndAppendsContinueThere) {
  ASSERT_TRUE(storage_.WriteAtomic("log", "0123456789").ok());
  ASSERT_TRUE(storage_.Truncate("log", 4).ok());
  EXPECT_EQ(Text("log"), "0123");
  auto file = storage_.OpenAppend("log");
  ASSERT_TRUE(file.ok() && (*file)->Append("x").ok());
  EXPECT_EQ(Text("log"), "0123x");
  EXPECT_EQ(storage_.Truncate("log", 6).code(), Code::kInvalidArgument);
  EXPECT_EQ(Text("log"), "0123x");
  EXPECT_EQ(storage_.Truncate("missing", 0).code(), Code::kNotFound);
  EXPECT_EQ(storage_.Truncate("../log", 0).code(), Code::kInvalidArgument);
}

TEST_P(StorageContract, LinkedNamesAreIndependent) {
  ASSERT_TRUE(storage_.WriteAtomic("a/file", "bytes").ok());
  ASSERT_TRUE(storage_.Link("a/file", "b/c/file").ok());
  EXPECT_EQ(Text("b/c/file"), "bytes");
  ASSERT_TRUE(storage_.WriteAtomic("a/file", "new").ok());
  EXPECT_EQ(Text("b/c/file"), "bytes");
  ASSERT_TRUE(storage_.Remove("a").ok());
  EXPECT_EQ(Text("b/c/file"), "bytes");
  ASSERT_TRUE(storage_.WriteAtomic("other", "other").ok());
  ASSERT_TRUE(storage_.Link("other", "b/c/file").ok());  // replaces
  EXPECT_EQ(Text("b/c/file"), "other");
  ASSERT_TRUE(storage_.Link("other", "b/c/file").ok());  // no change
  EXPECT_EQ(Text("b/c/file"), "other");
  EXPECT_EQ(*storage_.List("b/c"), std::vector<std::string>{"file"});
  EXPECT_EQ(storage_.Link("missing", "x").code(), Code::kNotFound);
  EXPECT_EQ(storage_.Link("other", "../x").code(), Code::kInvalidArgument);
}

TEST_P(StorageContract, OpenFileFollowsItsBytesAfterRenameOrReplace) {
  auto file = storage_.OpenAppend("log");
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Append("a").ok());
  ASSERT_TRUE(storage_.Rename("log", "old").ok());
  ASSERT_TRUE((*file)->Append("b").ok());
  EXPECT_EQ(Text("old"), "ab");
  EXPECT_FALSE(storage_.Exists("log"));
  ASSERT_TRUE(storage_.WriteAtomic("old", "new").ok());
  ASSERT_TRUE((*file)->Append("c").ok());
  EXPECT_EQ(Text("old"), "new");
  ASSERT_TRUE(storage_.Remove("old").ok());
  ASSERT_TRUE((*file)->Append("d").ok());
  EXPECT_FALSE(storage_.Exists("old"));
}

TEST_P(StorageContract, ListIsSortedAndMarksFolders) {
  for (const char* path : {"b/x/y", "a", "b/z", "c/d"}) {
    ASSERT_TRUE(storage_.WriteAtomic(path, "1").ok());
  }
  EXPECT_THAT(Names(""), testing::ElementsAre("a", "b/", "c/"));
  EXPECT_THAT(Names("b"), testing::ElementsAre("x/", "z"));
  EXPECT_THAT(Names("missing"), testing::IsEmpty());
}

TEST_P(StorageContract, ReportsExistenceOfFilesAndFolders) {
  EXPECT_FALSE(storage_.Exists("a"));
  ASSERT_TRUE(storage_.WriteAtomic("a/b", "1").ok());
  EXPECT_TRUE(storage_.Exists("a"));
  EXPECT_TRUE(storage_.Exists("a/b"));
  EXPECT_FALSE(storage_.Exists("a/c"));
  EXPECT_FALSE(storage_.Exists("../a"));
}

TEST_P(StorageContract, RenameReplacesFileAndMovesFolder) {
  ASSERT_TRUE(storage_.WriteAtomic("new", "n").ok());
  ASSERT_TRUE(storage_.WriteAtomic("old", "o").ok());
  ASSERT_TRUE(storage_.Rename("new", "old").ok());
  EXPECT_EQ(Text("old"), "n");
  EXPECT_FALSE(storage_.Exists("new"));

  ASSERT_TRUE(storage_.WriteAtomic("step.tmp/weights", "w").ok());
  ASSERT_TRUE(storage_.WriteAtomic("step.tmp/more/rest", "r").ok());
  ASSERT_TRUE(storage_.Rename("step.tmp", "checkpoints/step").ok());
  EXPECT_EQ(Text("checkpoints/step/weights"), "w");
  EXPECT_EQ(Text("checkpoints/step/more/rest"), "r");
  EXPECT_FALSE(storage_.Exists("step.tmp"));
}

TEST_P(StorageContract, RejectsRenameOntoFolderOrWithoutSource) {
  ASSERT_TRUE(storage_.WriteAtomic("from/a", "1").ok());
  ASSERT_TRUE(storage_.WriteAtomic("to/b", "2").ok());
  EXPECT_EQ(storage_.Rename("from", "to").code(), Code::kAlreadyExists);
  EXPECT_EQ(Text("from/a"), "1");
  EXPECT_EQ(Text("to/b"), "2");
  EXPECT_EQ(storage_.Rename("missing", "x").code(), Code::kNotFound);
}

TEST_P(StorageContract, RemovesFileOrFolderAndIgnoresMissing) {
  for (const char* path : {"a", "ab", "f/x", "f/y/z", "fx"}) {
    ASSERT_TRUE(storage_.WriteAtomic(path, "1").ok());
  }
  ASSERT_TRUE(storage_.Remove("a").ok());
  ASSERT_TRUE(storage_.Remove("f").ok());
  ASSERT_TRUE(storage_.Remove("missing/too").ok());
  EXPECT_THAT(Names(""), testing::ElementsAre("ab", "fx"));
}

// Removing a folder's contents must never empty the root.
TEST_P(StorageContract, NeverRemovesRoot) {
  ASSERT_TRUE(storage_.WriteAtomic("a", "1").ok());
  for (const char* path : {"", "/", ".", "./", "a/..", "./."}) {
    EXPECT_EQ(storage_.Remove(path).code(), Code::kInvalidArgument) << path;
  }
  EXPECT_THAT(Names(""), testing::ElementsAre("a"));
}

TEST_P(StorageContract, AcceptsFolderNamesAsListed) {
  ASSERT_TRUE(storage_.WriteAtomic("folder/file", "1").ok());
  ASSERT_THAT(Names(""), testing::ElementsAre("folder/"));
  EXPECT_TRUE(storage_.Exists("folder/"));
  EXPECT_THAT(Names("folder/"), testing::ElementsAre("file"));
  ASSERT_TRUE(storage_.Remove("folder/").ok());
  EXPECT_THAT(Names(""), testing::IsEmpty());
}

TEST_P(StorageContract, LockHasOneNamedHolder) {
  auto lock = storage_.Lock("run/lock", "process 7");
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  const auto second = storage_.Lock("run/lock", "process 8");
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), testing::HasSubstr("process 7"));
  EXPECT_TRUE(storage_.Lock("run/other", "process 8").ok());
  lock->reset();
  const auto third = storage_.Lock("run/lock", "p9");
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_THAT(storage_.Lock("run/lock", "x").status().message(), testing::EndsWith("held by p9"));
}

TEST_P(StorageContract, RejectsPathsOutsideRoot) {
  for (const std::string& path : {std::string("../x"), std::string("/x"), std::string("a/../../x"),
                                  std::string("a/.."), std::string(".."), std::string("a\0b", 3)}) {
    EXPECT_EQ(storage_.WriteAtomic(path, "1").code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.OpenAppend(path).status().code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Read(path, 9).status().code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.List(path).status().code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Rename(path, "y").code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Rename("y", path).code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Remove(path).code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Lock(path, "me").status().code(), Code::kInvalidArgument) << path;
  }
  EXPECT_TRUE(storage_.WriteAtomic("..a/b..", "dots are fine").ok());
}

TEST_P(StorageContract, RejectsPathsWithoutFileName) {
  ASSERT_TRUE(storage_.WriteAtomic("a/b", "1").ok());
  for (const char* path : {"", ".", "a/", "a/.", "a//b", "./a"}) {
    EXPECT_EQ(storage_.WriteAtomic(path, "1").code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.OpenAppend(path).status().code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Rename("a/b", path).code(), Code::kInvalidArgument) << path;
    EXPECT_EQ(storage_.Lock(path, "me").status().code(), Code::kInvalidArgument) << path;
  }
}

TEST_P(StorageContract, ReadersNeverSeePartialWrite) {
  const std::string a(100000, 'a'), b(50000, 'b');
  ASSERT_TRUE(storage_.WriteAtomic("file", a).ok());
  std::thread writer([&] {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(storage_.WriteAtomic("file", i % 2 ? a : b).ok());
  });
  for (int i = 0; i < 50; ++i) {
    const std::string text = Text("file");
    EXPECT_TRUE(text == a || text == b) << text.size();
  }
  writer.join();
}

}  // namespace troop
