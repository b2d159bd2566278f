// Implements the rules of the mesh of a supervised run, and of its pipelines.
#include <algorithm>
#include <string_view>

#include "fleet/config/validate.h"

namespace troop {
namespace {

// Keys of [pipeline], which a run without pipelines would ignore.
SetKeys KeysOfPipelines(const PipelineConfig& p) {
  const PipelineConfig fresh;
  return {{"pipeline.schedule", p.schedule != fresh.schedule},
          {"pipeline.micro_batches", p.micro_batches != fresh.micro_batches},
          {"pipeline.chunks_per_stage", p.chunks_per_stage != fresh.chunks_per_stage},
          {"pipeline.recompute", p.recompute != fresh.recompute},
          {"pipeline.stages", !p.stages.empty()}};
}

// Rules that depend on the schedule.
void CheckSchedules(const PipelineConfig& p, Conflicts* out) {
  const bool interleaved = p.schedule == PipelineKind::kInterleaved;
  out->If(interleaved && p.chunks_per_stage < 2, {"pipeline.chunks_per_stage", "pipeline.schedule"},
          "is 1, must be at least 2 with pipeline.schedule = \"interleaved\"; raise it, or use "
          "\"1f1b\"");
  out->If(
      !interleaved && p.chunks_per_stage > 1, {"pipeline.chunks_per_stage", "pipeline.schedule"},
      "{} is supported with pipeline.schedule = \"interleaved\" only; set 1", p.chunks_per_stage);
  // Its two backward passes need the activations at different times.
  out->If(p.recompute && p.schedule == PipelineKind::kZeroBubble,
          {"pipeline.recompute", "pipeline.schedule"},
          "is not supported with pipeline.schedule = \"zero_bubble\"; omit it, or use \"1f1b\"");
}

// Rules of mesh.pp. The names of blocks are checked with the sizes of the images.
void CheckPipelines(const Config& c, std::int64_t workers, Conflicts* out) {
  if (c.mesh.pp == 1) {
    for (const auto& [key, set] : KeysOfPipelines(c.pipeline))
      out->If(set, {key, "mesh.pp"}, "has no effect with mesh.pp = 1; omit it, or set mesh.pp");
    return;
  }
  out->If(!ClassifiesImages(c.model.architecture), {"mesh.pp", "model.architecture"},
          "\"{}\" does not support pipelines, which image classifiers do; set 1, and see mesh.tp",
          EnumName(c.model.architecture));
  out->If(c.learner.micro_batch_size > 0, {"learner.micro_batch_size", "mesh.pp"},
          "has no effect with pipelines, whose stages exchange pipeline.micro_batches; omit it");
  // Settings of image classifiers that the stages do not have.
  const auto without = [&](bool set, const char* key, std::string_view remedy) {
    out->If(set, {key, "mesh.pp"}, "is not supported with pipelines; {}, or set mesh.pp = 1",
            remedy);
  };
  without(c.model.sync_batch_norm, "model.sync_batch_norm", "set false");
  without(!c.model.pretrained.empty(), "model.pretrained", "omit it");
  without(c.network.precision == NetworkPrecision::kBf16, "network.precision", "set \"fp32\"");
  out->If(c.data.image_threads != DataConfig().image_threads, {"data.image_threads", "mesh.pp"},
          "has no effect with pipelines, whose first stage makes the images itself; omit it");
  const std::int64_t parts = workers * c.pipeline.micro_batches;
  out->If(
      c.learner.batch_size % parts != 0,
      {"pipeline.micro_batches", "learner.batch_size", "mesh.dp"},
      "{} micro-batches of {} workers do not divide learner.batch_size = {}; change one of them",
      c.pipeline.micro_batches, workers, c.learner.batch_size);
  CheckSchedules(c.pipeline, out);
}

}  // namespace

// A mesh of dp x tp x pp learners, of which each worker has tp x pp. The number of learners follows
// from the mesh, or dp from the number of learners.
std::int64_t CheckMesh(const Config& c, Conflicts* out) {
  const MeshConfig& mesh = c.mesh;
  const std::int64_t learners = c.fleet.learners, parts = mesh.tp * mesh.pp;
  const std::string_view names = mesh.pp > 1 ? "mesh.tp x mesh.pp" : "mesh.tp";
  out->If(mesh.dp > 0 && learners > 1 && mesh.dp * parts != learners,
          {"mesh.dp", "mesh.tp", "mesh.pp", "fleet.learners"},
          "{} x {} = {} differs from fleet.learners = {}; omit fleet.learners", mesh.dp, names,
          parts, learners);
  out->If(mesh.dp == 0 && learners > 1 && learners % parts != 0,
          {mesh.pp > 1 ? "mesh.pp" : "mesh.tp", "fleet.learners"},
          "does not divide fleet.learners = {}; set mesh.dp instead", learners);
  out->If(mesh.dp * parts > 256, {"mesh.dp", "mesh.tp", "mesh.pp"},
          "{} x {} learners, at most 256 are supported; lower one of them", mesh.dp, parts);
  const std::int64_t workers = mesh.dp > 0 ? mesh.dp : std::max<std::int64_t>(1, learners / parts);
  out->If(c.fleet.mode == FleetMode::kSerial && parts > 1,
          {mesh.tp > 1 ? "mesh.tp" : "mesh.pp", "fleet.mode"},
          "learners with parts of one model wait for each other, which one thread can't do; set 1, "
          "or fleet.mode = \"processes\"");
  CheckPipelines(c, workers, out);
  return workers;
}

}  // namespace troop
