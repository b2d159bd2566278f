// Implements the cuts of an image classifier for a pipeline, and the parameters of a stage.

#include "learners/images/image_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "learners/pipeline/stage_partition.h"
#include "nn/models/model.h"
#include "nn/models/text_model.h"

namespace troop {
namespace {

// A core's rates, of which only the ratio counts. A pass over a micro-batch reads all weights, and
// its backward pass reads them again and adds to their gradient: 16 bytes for each weight.
constexpr double kFlopsPerSecond = 5e10, kBytesPerSecond = 1e10, kBytesPerWeight = 16;

// Output of a module for one image, and the bytes that its backward pass needs.
Result<Plan> PlanOfOne(const Module& module, const Shape& input) {
  const TensorSpec in{DType::kF32, input.Prepend(1)};
  return module.MakePlan({&in, 1});
}

// Operations of a block for one image: each weight is used at each position of the output, and
// functions of single elements cost about four operations. A block that halves the image inside
// counts by its output. The three passes have equal costs. rows: images of a micro-batch, which
// share the traffic of the weights.
LayerProfile ProfileOf(const Module& block, const Plan& plan, std::int64_t rows) {
  const Shape& out = plan.out[0].shape;
  const double positions = out.rank() == 4 ? double(out[1] * out[2]) : 1;
  double flops = 4.0 * double(out.elements());
  for (const ParamSpec& spec : block.params())
    if (spec.shape.rank() > 1) flops += 2.0 * positions * double(spec.shape.elements());
  const double traffic = kBytesPerWeight * double(ParameterCount(block)) / double(rows);
  return {.compute_s = 3 * flops / kFlopsPerSecond + traffic / kBytesPerSecond,
          .output_bytes = double(plan.out[0].bytes()),
          .held_bytes = double(plan.cache_bytes),
          .weight_bytes = 4.0 * double(ParameterCount(block))};
}

// First blocks of the chunks, and the number of blocks, by the estimated times of micro-batches of
// `rows` images.
Result<std::vector<std::int64_t>> BalancedCuts(const ImageModelOptions& options, std::int64_t rows,
                                               std::int64_t chunks) {
  TROOP_ASSIGN_OR_RETURN(const auto names, ImageBlocks(options));
  const auto blocks = std::int64_t(names.size());
  PartitionOptions partition{.layers = {},
                             .devices = std::vector<DeviceProfile>(std::size_t(chunks)),
                             .use_all_devices = true};
  // The input of each block is the output of the one before.
  Shape input{options.height, options.width, options.channels};
  for (std::int64_t b = 0; b < blocks; ++b) {
    TROOP_ASSIGN_OR_RETURN(const auto block, MakeImageBlocks(options, b, b + 1));
    TROOP_ASSIGN_OR_RETURN(const Plan plan, PlanOfOne(*block, input));
    partition.layers.push_back(ProfileOf(*block, plan, rows));
    input = plan.out[0].shape.DropFirst();
  }
  TROOP_ASSIGN_OR_RETURN(const PartitionPlan plan, PartitionStages(partition));
  // With use_all_devices each chunk has at least one block.
  std::vector<std::int64_t> starts;
  for (const PlannedStage& stage : plan.stages) starts.push_back(stage.first_layer);
  starts.push_back(blocks);
  return starts;
}

// First blocks of the chunks, and the number of blocks, from the names in pipeline.stages. Chunk 0
// begins with the first block, which needs no name.
Result<std::vector<std::int64_t>> NamedCuts(const std::vector<std::string>& wanted,
                                            const std::vector<std::string>& blocks) {
  std::vector<std::int64_t> starts{0};
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(blocks, name);
    const std::int64_t at = found - blocks.begin();
    if (found == blocks.end()) {
      return InvalidArgument("pipeline.stages: there is no block \"{}\"; the blocks are {}", name,
                             fmt::join(blocks, ", "));
    }
    if (at <= starts.back()) {
      return InvalidArgument(
          "pipeline.stages: block \"{}\" does not follow \"{}\"; name the blocks in the order {}",
          name, blocks[std::size_t(starts.back())], fmt::join(blocks, ", "));
    }
    starts.push_back(at);
  }
  starts.push_back(std::int64_t(blocks.size()));
  return starts;
}

// Images of a micro-batch, if the micro-batches of all workers divide the batch.
Result<std::int64_t> MicroBatchRowsOf(const TrainingConfig& config) {
  const std::int64_t workers = std::max<std::int64_t>(1, config.mesh.dp);
  const std::int64_t parts = workers * config.pipeline.micro_batches;
  if (parts > 0 && config.learner.batch_size % parts == 0) return config.learner.batch_size / parts;
  return InvalidArgument(
      "pipeline.micro_batches: {} micro-batches of {} workers do not divide learner.batch_size = "
      "{}; change one of them",
      config.pipeline.micro_batches, workers, config.learner.batch_size);
}

// The layout of the parameters of several chunks. Offsets of a chunk are those of its module, from
// the chunk's beginning on.
class StageLayout final : public Module {
 public:
  struct Part {
    const Module* module = nullptr;
    std::int64_t offset = 0, size = 0;
  };
  explicit StageLayout(std::vector<Part> parts) : parts_(std::move(parts)) {
    for (const Part& part : parts_) {
      for (ParamSpec spec : part.module->params()) {
        spec.offset += part.offset;
        params_.push_back(std::move(spec));
      }
    }
  }
  std::span<const ParamSpec> params() const override { return params_; }
  Result<Plan> MakePlan(std::span<const TensorSpec>) const override {
    return FailedPrecondition("the chunks of a stage have separate passes");
  }
  // A StageRunner packs the weights of the chunks.
  std::unique_ptr<Packed> MakePacked(Precision) const override { return nullptr; }
  void Pack(std::span<const float>, Packed*) const override {}
  void Forward(const StepContext&, std::span<const ConstTensor>, std::span<const Tensor>,
               Cache) const override {
    TROOP_CHECK(false, "the chunks of a stage have separate passes");
  }
  void Backward(const StepContext&, std::span<const ConstTensor>, std::span<const ConstTensor>,
                Cache, std::span<const Tensor>) const override {
    TROOP_CHECK(false, "the chunks of a stage have separate passes");
  }
  // statistics: [P] of the stage.
  void UpdateStatistics(ConstTensor statistics, std::span<float> value) const override {
    if (statistics.elements() != std::int64_t(value.size())) return;
    for (const Part& part : parts_) {
      const auto at = std::size_t(part.offset), size = std::size_t(part.size);
      const ConstTensor mine = ConstTensor::Borrow(
          std::as_bytes(statistics.as<float>().subspan(at, size)), {DType::kF32, {part.size}});
      part.module->UpdateStatistics(mine, value.subspan(at, size));
    }
  }

 private:
  const std::vector<Part> parts_;
  std::vector<ParamSpec> params_;
};

}  // namespace

// Steps: 1. the cuts; 2. the chunks, with the shapes between them.
Result<ImagePipeline> MakeImagePipeline(const TrainingConfig& config) {
  const PipelineConfig& p = config.pipeline;
  const std::int64_t chunks = config.mesh.pp * p.chunks_per_stage;
  const ImageModelOptions options = ImageOptionsOf(config.model);
  TROOP_ASSIGN_OR_RETURN(const auto names, ImageBlocks(options));
  const auto blocks = std::int64_t(names.size());
  if (chunks > blocks) {
    return InvalidArgument(
        "mesh.pp: {} stages of {} chunks exceed the {} blocks of model.architecture = \"{}\" ({}); "
        "lower it",
        config.mesh.pp, p.chunks_per_stage, blocks, EnumName(config.model.architecture),
        fmt::join(names, ", "));
  }
  if (!p.stages.empty() && std::int64_t(p.stages.size()) != chunks - 1) {
    return InvalidArgument(
        "pipeline.stages has {} names, must have {}: the first block of each chunk but the first, "
        "with mesh.pp = {} and pipeline.chunks_per_stage = {}",
        p.stages.size(), chunks - 1, config.mesh.pp, p.chunks_per_stage);
  }
  // A schedule of full batches, which also checks the numbers.
  ImagePipeline made;
  TROOP_ASSIGN_OR_RETURN(made.micro_batch_rows, MicroBatchRowsOf(config));
  made.schedule = {.kind = *ParseEnum<ScheduleKind>(EnumName(p.schedule)),
                   .stages = config.mesh.pp,
                   .micro_batches = p.micro_batches,
                   .chunks_per_stage = p.chunks_per_stage,
                   .recompute = p.recompute,
                   .replicas = {}};
  TROOP_RETURN_IF_ERROR(MakeSchedule(made.schedule).status().WithContext("[pipeline]"));
  TROOP_ASSIGN_OR_RETURN(const std::vector<std::int64_t> starts,
                         p.stages.empty() ? BalancedCuts(options, made.micro_batch_rows, chunks)
                                          : NamedCuts(p.stages, names));
  Shape input{options.height, options.width, options.channels};
  // Parameters are numbered through all chunks, as in the whole model.
  std::uint64_t parameters = 0;
  for (std::size_t c = 0; c + 1 < starts.size(); ++c) {
    TROOP_ASSIGN_OR_RETURN(auto module, MakeImageBlocks(options, starts[c], starts[c + 1]));
    TROOP_ASSIGN_OR_RETURN(const Plan plan, PlanOfOne(*module, input));
    const std::int64_t size = ParameterCount(*module);
    const std::size_t count = module->params().size();
    made.chunks.push_back({std::move(module), input, made.parameters, size, parameters});
    made.parameters += size;
    parameters += count;
    input = plan.out[0].shape.DropFirst();
  }
  return made;
}

// Chunk c is on stage c % K, as in schedules.
StageParameters::StageParameters(const ImagePipeline* pipeline, std::int64_t stage)
    : pipeline_(pipeline), offsets_(pipeline->chunks.size(), -1) {
  for (std::int64_t c = stage; c < std::int64_t(pipeline->chunks.size());
       c += pipeline->schedule.stages) {
    chunks_.push_back(c);
    offsets_[std::size_t(c)] = size_;
    size_ += pipeline->chunks[std::size_t(c)].size;
  }
}

// Chunks are contiguous in both buffers, since the blocks of a chunk follow each other.
void StageParameters::Take(std::span<const float> whole, std::span<float> stage) const {
  for (const std::int64_t c : chunks_) {
    const PipelineChunk& chunk = pipeline_->chunks[std::size_t(c)];
    std::ranges::copy(whole.subspan(std::size_t(chunk.offset), std::size_t(chunk.size)),
                      Of(c, stage).begin());
  }
}

void StageParameters::Put(std::span<const float> stage, std::span<float> whole) const {
  for (const std::int64_t c : chunks_) {
    const PipelineChunk& chunk = pipeline_->chunks[std::size_t(c)];
    std::ranges::copy(Of(c, stage), whole.begin() + chunk.offset);
  }
}

// A tensor of another size is a part of the stage already, or a counter.
TensorFile StageParameters::Cut(const TensorFile& state) const {
  TensorFile part;
  part.metadata = state.metadata;
  for (const auto& [name, tensor] : state.tensors) {
    if (tensor.spec() != TensorSpec{DType::kF32, {pipeline_->parameters}}) {
      part.tensors[name] = tensor;
      continue;
    }
    Tensor mine(DType::kF32, {size_});
    Take(tensor.as<float>(), mine.as<float>());
    part.tensors[name] = mine;
  }
  return part;
}

// The modules of the chunks stay in the pipeline.
std::unique_ptr<Module> StageParameters::MakeLayout() const {
  std::vector<StageLayout::Part> parts;
  for (const std::int64_t c : chunks_) {
    const PipelineChunk& chunk = pipeline_->chunks[std::size_t(c)];
    parts.push_back({chunk.module.get(), offsets_[std::size_t(c)], chunk.size});
  }
  return std::make_unique<StageLayout>(std::move(parts));
}

}  // namespace troop
