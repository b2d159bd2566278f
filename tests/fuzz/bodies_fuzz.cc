// Hostile bytes against every control body: the first byte of an input chooses the body, the rest
// is its encoding. What is accepted encodes to the same bytes again, and what the receivers do with
// it first (merging metrics, reading specs, printing) keeps its own promises.
#include <array>
#include <string>
#include <type_traits>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "net/control/evaluation_report.h"
#include "net/control/heartbeat_request.h"
#include "net/control/join_request.h"
#include "net/control/peer_info.h"
#include "net/control/phase.h"
#include "net/control/register_request.h"
#include "net/control/scale_request.h"
#include "net/control/shard_move.h"
#include "net/control/status_reply.h"
#include "net/error.h"
#include "net/wire/codec.h"
#include "paramserver/protocol/messages.h"
#include "replay/service/messages.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

void CheckHistogram(const Histogram& histogram) {
  if (histogram.count() == 0) return;
  for (const double q : {0.0, 0.5, 0.99, 1.0}) {
    const double value = histogram.Quantile(q);
    TROOP_CHECK(value >= histogram.min() && value <= histogram.max(), "quantile {} is {}", q,
                value);
  }
  TROOP_CHECK(histogram.Since(histogram).count() == 0, "something came since now");
}

// A coordinator adds the metrics of all roles up and shows the sums, which must be numbers. Where
// the counts are not beyond what any role counts, they could travel on.
void CheckMetrics(const MetricSnapshot& metrics) {
  const MetricSnapshot merged = MergeMetrics({metrics, metrics, metrics});
  TROOP_CHECK(merged.size() == metrics.size(), "{} metrics became {}", metrics.size(),
              merged.size());
  bool small = true;
  for (const auto& [name, value] : metrics) CheckHistogram(value.histogram);
  for (const auto& [name, value] : merged) {
    CheckHistogram(value.histogram);
    const std::string json = value.histogram.Json().str();
    TROOP_CHECK(ParseJson(json).ok(), "no JSON: {}", json);
    small = small && value.histogram.count() <= std::uint64_t{1} << 50;
  }
  const std::string bytes = EncodeBody(ReplayStatsBody{merged});
  TROOP_CHECK(!small || DecodeBody<ReplayStatsBody>(bytes).ok(), "a merged snapshot is refused");
}

void CheckTable(const TableInfo& info) {
  const Result<TableDescription> table = ParseTableInfo(info);
  if (!table.ok()) return;
  const TrajectorySpec& spec = table->trajectory;
  const TensorSpec* const state = spec.state ? &*spec.state : nullptr;
  constexpr std::size_t kMax = std::size_t{8} << 28;  // elements of 8 bytes
  for (const TensorSpec* tensor : {&spec.observation, &spec.action, state}) {
    if (tensor == nullptr) continue;
    TROOP_CHECK(tensor->bytes() > 0 && tensor->bytes() <= kMax, "{} of {} bytes",
                tensor->ToString(), tensor->bytes());
  }
  TROOP_CHECK(CheckView(table->view).ok(), "an invalid view");
}

template <class Body>
void CheckBody(std::string_view bytes) {
  const Result<Body> body = DecodeBody<Body>(bytes);
  if (!body.ok()) return;
  TROOP_CHECK(EncodeBody(*body) == bytes, "another encoding was accepted");
  if constexpr (std::is_same_v<Body, HeartbeatRequest> || std::is_same_v<Body, ReplayStatsBody>) {
    CheckMetrics(body->metrics);
  }
  if constexpr (std::is_same_v<Body, DescribeReplyBody>) {
    for (const TableInfo& table : body->tables) CheckTable(table);
  }
}

void CheckError(std::string_view bytes) {
  const Status error = ErrorOf({.type = MessageType::kError, .body = std::string(bytes)});
  TROOP_CHECK(!error.ok(), "an error with code OK");
  const Status again = ErrorOf(MakeErrorMessage(error));
  TROOP_CHECK(again.code() == error.code() && again.message() == error.message(), "{} became {}",
              error.ToString(), again.ToString());
}

// Their places are the first bytes of the corpus' files: add at the end.
using Check = void (*)(std::string_view);
constexpr std::array<Check, 28> kChecks{CheckBody<RegisterRequest>,
                                        CheckBody<RegisterReply>,
                                        CheckBody<HeartbeatRequest>,
                                        CheckBody<HeartbeatReply>,
                                        CheckBody<StatusReply>,
                                        CheckBody<EvaluationReport>,
                                        CheckBody<InsertBody>,
                                        CheckBody<InsertReplyBody>,
                                        CheckBody<SampleBody>,
                                        CheckBody<SampleReplyBody>,
                                        CheckBody<UpdateBody>,
                                        CheckBody<ReplayStatsBody>,
                                        CheckBody<DescribeReplyBody>,
                                        CheckBody<DictionaryBody>,
                                        CheckBody<ReconfigureBody>,
                                        CheckBody<TableBody>,
                                        CheckBody<PublishBody>,
                                        CheckBody<PublishReplyBody>,
                                        CheckBody<PullBody>,
                                        CheckBody<PullReplyBody>,
                                        CheckBody<WireSpec>,
                                        CheckBody<PeerInfo>,
                                        CheckError,
                                        CheckBody<ScaleRequest>,
                                        CheckBody<ScaleReply>,
                                        CheckBody<ShardFetchBody>,
                                        CheckBody<JoinRequest>,
                                        CheckBody<JoinReply>};

MetricSnapshot SampleMetrics() {
  Metrics metrics;
  metrics.Count("actor/steps", 12345);
  metrics.Gauge("learner/loss", 0.25);
  metrics.Gauge("replay/items", 1e5, MetricKind::kGaugeSum);
  Histogram ages;
  for (const double age : {0.0, 0.5, 3.0, 3.5, 1e9}) ages.Add(age, 7);
  metrics.Distribution("replay/age", ages);
  metrics.Distribution("replay/policy_age", Histogram());
  return metrics.snapshot();
}

TableInfo SampleTable() {
  return {.name = "experience",
          .observation = {std::uint8_t(DType::kU8), {84, 84}},
          .action = {std::uint8_t(DType::kI32), {}},
          .state = WireSpec{std::uint8_t(DType::kF32), {2, 512}},
          .view_kind = 1,
          .length_max = 80,
          .stack = 4,
          .burn_in = 40,
          .codec = 2,
          .dictionary = 7,
          .capacity_items = 100000,
          .min_items = 1000,
          .items = 123,
          .samples_per_insert = 8};
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  const auto seed = [&](std::string_view name, int place, const std::string& body) {
    write(name, std::string(1, char(place)) + body);
  };
  seed("register", 0,
       EncodeBody(RegisterRequest{Role::kActor, 3, "1.2.3", 4242, "node-7.example"}));
  seed("register_reply", 1,
       EncodeBody(RegisterReply{9, 3, "version = 1\n", "tcp://10.0.0.1:0", "checkpoints/12"}));
  const EvaluationReport report{.weights_version = 1,
                                .steps = 50000,
                                .episodes = 30,
                                .return_mean = 1.5,
                                .return_std = 0.5,
                                .return_max = 3,
                                .final = true};
  seed("beat", 2,
       EncodeBody(HeartbeatRequest{.endpoint = "ipc:///tmp/a",
                                   .metrics = SampleMetrics(),
                                   .steps_done = 100,
                                   .steps_wanted = 200,
                                   .checkpoint = "checkpoints/000000000012",
                                   .checkpoint_updates = 12,
                                   .evaluations = {report, report}}));
  seed("beat_reply", 3,
       EncodeBody(HeartbeatReply{.phase = Phase::kDraining,
                                 .steps_granted = 3000,
                                 .steps_over = true,
                                 .steps_total_done = 49000,
                                 .peers = {{"learner-0", {"ipc:///tmp/l", 3}}, {"replay-0", {}}},
                                 .shards = {{.term = 9, .since = 8, .primary = 0}},
                                 .shard_epochs = {{2, 0}, {1, 7}},
                                 .shard_move = {12, 3, ShardMoveStage::kPausing}}));
  seed("status_reply", 4, EncodeBody(StatusReply{R"({"phase": "running", "members": []})"}));
  seed("evaluation", 5, EncodeBody(report));
  seed("insert", 6, EncodeBody(InsertBody{0, {{1, 0, 10}, {2, 5, 3}}, 9}));
  seed("insert_reply", 7, EncodeBody(InsertReplyBody{5}));
  seed("sample", 8, EncodeBody(SampleBody{0, 512, 4, 2048, 512, 100, true, 77}));
  seed("sample_reply", 9, EncodeBody(SampleReplyBody{4, 2, 8, 100, 2.5, 1e9, {3, 1, 4}, {7, 8}}));
  seed("update", 10, EncodeBody(UpdateBody{0, 512, 5, false, true, 9}));
  seed("stats", 11, EncodeBody(ReplayStatsBody{SampleMetrics()}));
  seed("describe", 12, EncodeBody(DescribeReplyBody{{SampleTable(), {}}, 4096}));
  seed("dictionary", 13, EncodeBody(DictionaryBody{0, 7}));
  seed("reconfigure", 14, EncodeBody(ReconfigureBody{0, 8, 0.1, 1000}));
  seed("table", 15, EncodeBody(TableBody{1}));
  seed("publish", 16, EncodeBody(PublishBody{5}));
  seed("pull_reply", 19, EncodeBody(PullReplyBody{5, 6}));
  seed("spec", 20, EncodeBody(WireSpec{0, {84, 84}}));
  seed("peer", 21, EncodeBody(PeerInfo{"tcp://10.0.0.1:7700", 12}));
  seed("scale", 23, EncodeBody(ScaleRequest{"paramserver", 4}));
  seed("scale_reply", 24, EncodeBody(ScaleReply{2, 4, 3, 1000, 500, 0.25}));
  seed("shard_fetch", 25, EncodeBody(ShardFetchBody{12, 3, 1 << 24}));
  seed("join", 26, EncodeBody(JoinRequest{Role::kActor, 8, "1.2.3", "node-7.example"}));
  seed("join_reply", 27, EncodeBody(JoinReply{"seed = 2", 9}));
  seed("error", 22, MakeErrorMessage(DataLoss("a frame of {} bytes", 7)).body);
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  const auto place = input.Take<std::uint8_t>();
  if (place >= kChecks.size()) return 0;
  kChecks[place](TextOf(input.TakeRest()));
  return 0;
}
