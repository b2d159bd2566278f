#include "nn/cuda/transformer_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/cuda/ops/bias.h"

namespace troop::cuda {
namespace {

TransformerSpec SpecOf(bool mapped, bool recompute) {
  TransformerSpec spec;
  spec.shared = spec.has_map = spec.drops_first = mapped;
  spec.vocabulary = 40;
  spec.hidden = 64;
  spec.embedding = mapped ? 16 : 64;
  spec.layers = 4;
  spec.heads = 2;
  spec.intermediate = 96;
  spec.positions = 32;
  spec.recompute = recompute;
  LayOut(&spec);
  return spec;
}

class TransformerMemoryTest : public testing::Test {
 protected:
  TransformerMemoryTest() : device_(Device::Open(0, &error_)) {}
  void TearDown() override {
    EXPECT_EQ(error_, "");
    EXPECT_EQ(device_->error(), "");
  }

  std::string error_;
  std::unique_ptr<Device> device_;
};

TEST_F(TransformerMemoryTest, GrowsByAnEighthMoreThanNeeded) {
  const TransformerSpec spec = SpecOf(false, false);
  TransformerMemory memory(*device_, spec, Precision::kF32);
  EXPECT_TRUE(memory.Grows(64, 8, false));
  memory.Reserve(64, 8, false);
  EXPECT_FALSE(memory.Grows(72, 9, false));
  EXPECT_TRUE(memory.Grows(73, 9, false));
  EXPECT_TRUE(memory.Grows(72, 10, false));
  EXPECT_EQ(memory.embedded.size(), 72 * 64 * 4);
  EXPECT_EQ(memory.asked_x.size(), 9 * 64 * 4);
}

TEST_F(TransformerMemoryTest, HasMemoryForBackwardOnceABatchWasKept) {
  const TransformerSpec spec = SpecOf(false, false);
  TransformerMemory memory(*device_, spec, Precision::kF32);
  memory.Reserve(64, 8, false);
  EXPECT_EQ(memory.dy.size(), 0);
  EXPECT_EQ(memory.sum_workspace.size(), 0);
  EXPECT_TRUE(memory.Grows(64, 8, true));
  memory.Reserve(64, 8, true);
  EXPECT_GE(memory.dy.size(), 64 * 64 * 4);
  EXPECT_GE(memory.sum_workspace.size(), SumRowsWorkspace(64, 3 * 64));
  EXPECT_FALSE(memory.Grows(64, 8, false));
}

TEST_F(TransformerMemoryTest, ASmallerBatchAllocatesNothing) {
  const TransformerSpec spec = SpecOf(true, false);
  TransformerMemory memory(*device_, spec, Precision::kBF16);
  memory.Reserve(64, 8, true);
  const std::int64_t before = device_->driver_allocations();
  memory.Reserve(16, 2, true);
  memory.Reserve(64, 8, false);
  EXPECT_EQ(device_->driver_allocations(), before);
}

// Two sets without training, one per layer with it, and one if backward recomputes.
TEST_F(TransformerMemoryTest, LayersShareActivationsThatBackwardDoesNotRead) {
  for (const bool recompute : {false, true}) {
    const TransformerSpec spec = SpecOf(false, recompute);
    TransformerMemory memory(*device_, spec, Precision::kF32);
    memory.Reserve(64, 8, false);
    EXPECT_NE(&memory.AttentionOf(0), &memory.AttentionOf(1));
    EXPECT_EQ(&memory.AttentionOf(0), &memory.AttentionOf(2));
    EXPECT_EQ(&memory.RowsOf(3), &memory.last);
    memory.Reserve(64, 8, true);
    EXPECT_EQ(memory.recomputes(), recompute);
    EXPECT_EQ(&memory.AttentionOf(0) == &memory.AttentionOf(1), recompute);
    EXPECT_EQ(&memory.RowsOf(0) == &memory.RowsOf(1), recompute);
    // The outputs of all layers are kept in any case.
    EXPECT_NE(memory.OutOf(0), memory.OutOf(1));
    EXPECT_EQ(memory.InOf(2), memory.OutOf(1));
    EXPECT_EQ(memory.InOf(0), memory.embedded.data());
  }
}

// The estimate that batches are sized by, against the arrays that Reserve allocates.
TEST_F(TransformerMemoryTest, StepBytesAreThoseOfTheArrays) {
  for (const bool mapped : {false, true}) {
    const TransformerSpec spec = SpecOf(mapped, false);
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      TransformerMemory m(*device_, spec, precision);
      m.Reserve(64, 8, true);
      std::size_t bytes = 0;
      const auto add = [&](const auto&... arrays) { ((bytes += arrays.bytes()), ...); };
      const auto add_norm = [&](const TransformerMemory::KeptNorm& norm) {
        add(norm.x, norm.mean, norm.rstd);
      };
      const auto add_rows = [&](const TransformerMemory::KeptRows& rows) {
        add(rows.hidden, rows.out, rows.z, rows.g);
        add_norm(rows.sum1);
        add_norm(rows.sum2);
      };
      for (std::int64_t use = 0; use < spec.layers; ++use) {
        const TransformerMemory::KeptAttention& attention = m.AttentionOf(use);
        add(attention.qkv, attention.context, attention.lse, attention.scores);
        add_rows(m.RowsOf(use));
      }
      add_norm(m.embedding_sum);
      add_norm(m.head_sum);
      add(m.embedded, m.mapped, m.asked_x, m.asked_context, m.head_mid, m.head_top, m.head_in, m.dy,
          m.dsum, m.dwide, m.dcontext, m.dhead[0], m.dhead[1], m.dout, m.delta, m.norm_workspace,
          m.sum_workspace);
      EXPECT_EQ(TransformerMemory::StepBytes(spec, precision, 64, 8), std::int64_t(bytes));
    }
  }
}

}  // namespace
}  // namespace troop::cuda
