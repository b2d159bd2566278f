// Implements the dueling head of noisy linear layers. Each stream is a separate sequence, because
// joint layers would have the same noise for the inputs of both streams.
#include <algorithm>
#include <array>
#include <string>

#include "nn/arena.h"
#include "nn/layers/element.h"
#include "nn/layers/layers.h"
#include "nn/models/dueling_streams.h"
#include "nn/with_packed.h"

namespace troop {
namespace {

// Packed forms in the order of the streams: value, advantage.
struct NoisyDuelingPacked final : Packed {
  std::array<std::unique_ptr<Packed>, 2> streams;
};

// Name of the last layer within its stream.
const std::string kOutput = "output";

// A stream, and the sizes that it needs.
struct Stream {
  std::unique_ptr<Module> module;
  std::int64_t columns = 0;               // outputs per row
  std::size_t first = 0, parameters = 0;  // in the flat buffer of the head
};

// Module of both streams; their outputs are joined only in the workspace.
class NoisyDuelingHead final : public Module {
 public:
  explicit NoisyDuelingHead(const NoisyDuelingOptions& options)
      : options_(options), sum_{options.actions, options.numbers} {
    // The order of the parameters is that of MakeDuelingHead; each stream begins at a cache line.
    std::size_t end = 0;
    end = Add("value", options.numbers, options.place, end);
    Add("advantage", options.actions * options.numbers, options.place + 2, end);
  }

  std::span<const ParamSpec> params() const override { return params_; }

  // Cache: those of the streams. Workspace: Buffers, and that of one stream.
  Result<Plan> MakePlan(std::span<const TensorSpec> in) const override {
    TROOP_RETURN_IF_ERROR(CheckInput(in, options_.in, "noisy dueling head"));
    const std::int64_t batch = in[0].shape[0];
    Plan plan{.out = {{DType::kF32, {batch, options_.actions * options_.numbers}}}};
    std::size_t stream_workspace = 0;
    for (const Stream& stream : streams_) {
      TROOP_ASSIGN_OR_RETURN(const Plan part, stream.module->MakePlan(in));
      plan.cache_bytes += AlignBytes(part.cache_bytes);
      stream_workspace = std::max(stream_workspace, AlignBytes(part.workspace_bytes));
    }
    plan.workspace_bytes =
        BytesTaken([&](Arena& arena) { Take(batch, &arena); }) + stream_workspace;
    return plan;
  }

  // One packed form per stream.
  std::unique_ptr<Packed> MakePacked(Precision precision) const override {
    auto packed = std::make_unique<NoisyDuelingPacked>();
    for (std::size_t i = 0; i < streams_.size(); ++i)
      packed->streams[i] = streams_[i].module->MakePacked(precision);
    return packed;
  }

  void Pack(std::span<const float> value, Packed* packed) const override {
    auto& mine = static_cast<NoisyDuelingPacked&>(*packed);
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const Stream& stream = streams_[i];
      stream.module->Pack(value.subspan(stream.first, stream.parameters), mine.streams[i].get());
    }
  }

  // Without Packed the weights are packed for this call only.
  void Forward(const StepContext& context, std::span<const ConstTensor> in,
               std::span<const Tensor> out, Cache cache) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Forward(with, in, out, cache); });
    const std::int64_t batch = in[0].dim(0);
    Arena arena(context.workspace);
    const Buffers buffers = Take(batch, &arena);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const Tensor part = View(buffers.part, batch, streams_[i].columns);
      streams_[i].module->Forward(Of(context, i, arena.rest()), in, {&part, 1},
                                  cache.empty() ? cache : CacheOf(cache, i, in[0]));
      // Rows of both streams follow one another.
      CopyColumns(part, column, buffers.streams, true);
      column += streams_[i].columns;
    }
    sum_.Combine(batch, buffers.streams, out[0].as<float>().data());
  }

  // The input's gradient is the sum of those of the streams.
  void Backward(const StepContext& context, std::span<const ConstTensor> in,
                std::span<const ConstTensor> dout, Cache cache,
                std::span<const Tensor> din) const override {
    if (context.packed == nullptr)
      return WithPacked(*this, context,
                        [&](const StepContext& with) { Backward(with, in, dout, cache, din); });
    const std::int64_t batch = in[0].dim(0);
    Arena arena(context.workspace);
    const Buffers buffers = Take(batch, &arena);
    sum_.Spread(batch, dout[0].as<float>().data(), DType::kF32, buffers.streams);
    const bool wants_din = !din.empty() && !din[0].empty();
    std::int64_t column = 0;
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      const Tensor part = View(buffers.part, batch, streams_[i].columns);
      CopyColumns(part, column, buffers.streams, false);
      column += streams_[i].columns;
      // The second stream writes next to the first one's gradient, and is added.
      Tensor dx;
      if (wants_din) {
        const std::size_t bytes = din[0].bytes().size();
        dx = i == 0 ? din[0] : Tensor::View(nullptr, buffers.din.first(bytes), din[0].spec());
      }
      const ConstTensor dpart(part);
      streams_[i].module->Backward(Of(context, i, arena.rest()), in, {&dpart, 1},
                                   CacheOf(cache, i, in[0]), {&dx, 1});
      if (wants_din && i > 0) AddElements(dx, din[0]);
    }
  }

 private:
  // Parts of the workspace.
  struct Buffers {
    float* streams = nullptr;  // [B, 1 + A, K]: both streams' outputs, or their gradients
    float* part = nullptr;     // [B, A K]: those of one stream
    std::span<std::byte> din;  // [B, in]: gradient of the input
  };
  Buffers Take(std::int64_t batch, Arena* arena) const {
    Buffers buffers;
    buffers.streams = TakeFloats(*arena, batch * sum_.outputs());
    buffers.part = TakeFloats(*arena, batch * options_.actions * options_.numbers);
    buffers.din = arena->Take(std::size_t(batch * options_.in) * sizeof(float));
    return buffers;
  }

  // Adds a stream whose parameters begin at `first`; returns their end.
  std::size_t Add(const std::string& name, std::int64_t columns, std::uint64_t place,
                  std::size_t first) {
    NoisyLinearOptions layer{.in = options_.in, .sigma = options_.sigma, .place = place};
    std::vector<SequentialPart> parts;
    if (options_.units > 0) {
      layer.units = options_.units;
      layer.activation = Activation::kRelu;
      parts.push_back({"hidden", MakeNoisyLinear(layer)});
    }
    layer.in = options_.units > 0 ? options_.units : options_.in;
    layer.units = columns;
    layer.activation = Activation::kNone;
    layer.place = place + 1;
    parts.push_back({kOutput, MakeNoisyLinear(layer)});
    Stream stream{MakeSequential(std::move(parts)), columns, first, 0};
    // The output layer has the name of its stream.
    std::int64_t end = 0;
    for (ParamSpec spec : stream.module->params()) {
      end = std::max(end, spec.offset + spec.shape.elements());
      if (spec.name.starts_with(kOutput)) spec.name.erase(0, kOutput.size() + 1);
      spec.name.insert(0, name + ".");
      spec.offset += std::int64_t(first);
      params_.push_back(std::move(spec));
    }
    stream.parameters = std::size_t(AlignParams(end));
    const std::size_t next = first + stream.parameters;
    streams_[streams_[0].module == nullptr ? 0 : 1] = std::move(stream);
    return next;
  }

  // Restricts a context to stream i.
  StepContext Of(const StepContext& context, std::size_t i, std::span<std::byte> workspace) const {
    const Stream& stream = streams_[i];
    StepContext part = context;
    part.watch = nullptr;
    part.value = context.value.subspan(stream.first, stream.parameters);
    part.packed = static_cast<const NoisyDuelingPacked&>(*context.packed).streams[i].get();
    if (!context.gradient.empty())
      part.gradient = context.gradient.subspan(stream.first, stream.parameters);
    part.workspace = workspace;
    return part;
  }
  // The second stream's cache follows the first one's.
  Cache CacheOf(Cache cache, std::size_t i, const ConstTensor& in) const {
    if (i == 0) return cache;
    const TensorSpec spec{DType::kF32, in.shape()};
    return cache.subspan(AlignBytes(streams_[0].module->MakePlan({&spec, 1})->cache_bytes));
  }

  // [batch, columns] f32 at `data`.
  static Tensor View(float* data, std::int64_t batch, std::int64_t columns) {
    const TensorSpec spec{DType::kF32, {batch, columns}};
    return Tensor::View(nullptr, std::as_writable_bytes(std::span(data, spec.bytes() / 4)), spec);
  }
  // Copies `part` to the columns of `streams` from `column` on, or back.
  void CopyColumns(const Tensor& part, std::int64_t column, float* streams, bool to_streams) const {
    const std::int64_t width = part.dim(1);
    for (std::int64_t b = 0; b < part.dim(0); ++b) {
      float* const one = part.as<float>().data() + b * width;
      float* const all = streams + b * sum_.outputs() + column;
      std::copy_n(to_streams ? one : all, width, to_streams ? all : one);
    }
  }

  const NoisyDuelingOptions options_;
  const DuelingStreams sum_;
  std::array<Stream, 2> streams_;  // value, advantage
  std::vector<ParamSpec> params_;
};

}  // namespace

std::unique_ptr<Module> MakeNoisyDuelingHead(const NoisyDuelingOptions& o) {
  TROOP_CHECK(o.in > 0 && o.units >= 0 && o.actions > 0 && o.numbers > 0,
              "noisy dueling head {} -> {} -> {} x {}", o.in, o.units, o.actions, o.numbers);
  return std::make_unique<NoisyDuelingHead>(o);
}

}  // namespace troop
