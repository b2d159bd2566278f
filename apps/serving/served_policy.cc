// Implements answers with actions: the rows of all requests become one call of libtroop_policy.
#include "apps/serving/served_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>

#include "core/base/check.h"
#include "core/storage/json.h"
#include "nn/policy_library/troop_policy.h"

namespace troop {
namespace {

// Appends values as little-endian bytes.
template <class T>
void AppendBytes(std::span<const T> values, std::string* out) {
  out->append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// "[[1.5, 2], [3, 4]]": each float with the digits that give the same float again.
std::string RowsText(std::span<const float> values, std::int64_t columns) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool first = i % std::size_t(columns) == 0;
    out += i == 0 ? "[" : first ? "], [" : ", ";
    fmt::format_to(std::back_inserter(out), "{}", values[i]);
  }
  return out + "]]";
}

}  // namespace

struct ServedPolicy::Batch {
  std::vector<std::byte> observations;  // [rows, stack, ...shape]
  std::vector<std::uint8_t> mask;       // [rows, actions], if any request has one
  bool masked = false, valued = false;
  std::vector<std::int32_t> discrete;       // [rows]
  std::vector<float> continuous, values;    // [rows, actions]
  std::vector<float> states, next_states;   // [rows, state]: before the step, and after it
  std::vector<std::int64_t> first, frames;  // of each request: its first row, session frames
  std::int64_t rows = 0;
};

// The description names everything that a client must match.
ServedPolicy::ServedPolicy(Source source, const PolicyServing& serving)
    : signature_(source.policy.description), serving_(serving), updates_(source.updates) {
  const auto floats = [](const std::vector<float>& values) {
    JsonArray out;
    for (const float x : values) out.Add(JsonText::Raw(fmt::format("{}", x)));
    return out;
  };
  JsonObject action;
  if (signature_.discrete) {
    action.Add("kind", "discrete").Add("dtype", "i32").Add("count", signature_.actions);
  } else {
    action.Add("kind", "continuous").Add("dtype", "f32").Add("size", signature_.actions);
    action.Add("low", floats(signature_.low)).Add("high", floats(signature_.high));
  }
  JsonObject observation;
  observation.Add("dtype", DTypeName(signature_.dtype))
      .Add("shape", JsonArray::Of(signature_.shape))
      .Add("stack", signature_.stack);
  if (!signature_.parts.empty()) observation.Add("parts", PartsJson(signature_.parts));
  // A client must use sessions then.
  if (signature_.state > 0) observation.Add("recurrent_state", signature_.state);
  description_ = JsonObject()
                     .Add("path", path())
                     .Add("environment", source.environment)
                     .Add("checkpoint", source.checkpoint)
                     .Add("updates", updates_)
                     .Add("observation", observation)
                     .Add("action", action)
                     .Add("deterministic", true)
                     .Add("rows_max", serving_.rows_max)
                     .str();
}

// The session refers to the policy.
ServedPolicy::~ServedPolicy() {
  if (session_ != nullptr) troop_policy_session_destroy(session_);
  troop_policy_unload(policy_);
}

// The session has one stream per row of a batch; its frames are not used (SessionTable has them).
Result<std::shared_ptr<ServedPolicy>> ServedPolicy::Make(Source source,
                                                         const PolicyServing& serving) {
  const Buffer file = EncodeForLibrary(source.policy);
  std::shared_ptr<ServedPolicy> made(new ServedPolicy(std::move(source), serving));
  char message[256] = "";
  const troop_policy_source from{.size = sizeof from,
                                 .abi = TROOP_POLICY_ABI,
                                 .path = nullptr,
                                 .bytes = file.bytes().data(),
                                 .byte_count = file.size(),
                                 .message = message,
                                 .message_bytes = sizeof message};
  if (troop_policy_load(&from, &made->policy_) != TROOP_POLICY_OK ||
      troop_policy_session_create(made->policy_, serving.rows_max, &made->session_) !=
          TROOP_POLICY_OK) {
    return DataLoss("the policy cannot be computed: {}", message);
  }
  return made;
}

// The weights and the layers may differ.
bool ServedPolicy::Accepts(const ServedModel& other) const {
  const auto* const policy = dynamic_cast<const ServedPolicy*>(&other);
  return policy != nullptr && policy->signature_ == signature_;
}

Result<ServingRequest> ServedPolicy::Parse(const HttpRequest& request) const {
  TROOP_ASSIGN_OR_RETURN(ActRequest act, ParseActRequest(request, signature_, serving_.rows_max));
  // Filled in place: GCC 12 takes a moved variant for uninitialized.
  Result<ServingRequest> parsed = ServingRequest();
  parsed->rows = act.rows;
  parsed->input = std::move(act);
  return parsed;
}

// Appends the rows of a request. An error adds none.
Status ServedPolicy::Gather(const ServingRequest& request, Time now, Batch* batch) {
  const auto& act = std::get<ActRequest>(request.input);
  // Sessions of one batch are handled in order, so a later frame stacks on an earlier one.
  const std::size_t begin = batch->observations.size();
  std::int64_t frames = 0;
  if (act.session.empty()) {
    batch->observations.insert(batch->observations.end(), act.observations.begin(),
                               act.observations.end());
  } else {
    std::vector<std::byte> stacked(signature_.stack_bytes());
    TROOP_ASSIGN_OR_RETURN(frames, serving_.sessions->Append({act.session, act.reset},
                                                             act.observations, now, stacked));
    batch->observations.insert(batch->observations.end(), stacked.begin(), stacked.end());
    const std::span<const float> state = serving_.sessions->StateOf(act.session);
    batch->states.insert(batch->states.end(), state.begin(), state.end());
  }
  TROOP_CHECK(
      batch->observations.size() - begin == signature_.stack_bytes() * std::size_t(act.rows),
      "rows of another size");
  // Rows without a mask allow everything, in case another request of the batch has one.
  const auto cells = std::size_t(act.rows * signature_.actions);
  if (act.mask.empty()) {
    batch->mask.insert(batch->mask.end(), cells, 1);
  } else {
    batch->mask.insert(batch->mask.end(), act.mask.begin(), act.mask.end());
    batch->masked = true;
  }
  batch->valued |= act.q_values;
  batch->first.push_back(batch->rows);
  batch->frames.push_back(frames);
  batch->rows += act.rows;
  return Status::Ok();
}

// Computes rows of the batch. Errors: kInternal: a result is not finite.
Status ServedPolicy::Run(std::int64_t first, std::int64_t rows, Batch* batch) {
  // The interface takes one pointer per part of the observation and per head; a policy has one.
  const std::size_t cell = std::size_t(first * signature_.actions);
  const void* const observations[] = {batch->observations.data() +
                                      std::size_t(first) * signature_.stack_bytes()};
  const std::uint8_t* const masks[] = {batch->mask.data() + cell};
  void* const actions[] = {signature_.discrete
                               ? static_cast<void*>(batch->discrete.data() + first)
                               : static_cast<void*>(batch->continuous.data() + cell)};
  // The states before the step remain, in case the step fails and is repeated for one request.
  const auto begin = std::size_t(first * signature_.state);
  std::copy_n(batch->states.begin() + std::ptrdiff_t(begin), rows * signature_.state,
              batch->next_states.begin() + std::ptrdiff_t(begin));
  const troop_policy_call call{
      .size = sizeof call,
      .first = 0,
      .count = rows,
      .observations = observations,
      .masks = batch->masked ? masks : nullptr,
      .actions = actions,
      .values = batch->valued && signature_.discrete ? batch->values.data() + cell : nullptr,
      .states = signature_.state > 0 ? batch->next_states.data() + begin : nullptr};
  if (troop_policy_act_stacked(session_, &call) == TROOP_POLICY_OK) return Status::Ok();
  return Internal("{}", troop_policy_session_message(session_));
}

// A step of a recurrent policy needs the state after the session's step before, so requests of one
// session are in different groups.
std::vector<HttpResponse> ServedPolicy::Answer(std::span<const ServingRequest> requests, Time now) {
  std::vector<HttpResponse> responses;
  std::set<std::string_view> sessions;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= requests.size(); ++i) {
    const bool last = i == requests.size();
    const std::string_view session =
        last ? "" : std::string_view(std::get<ActRequest>(requests[i].input).session);
    if (!last && (signature_.state == 0 || sessions.insert(session).second)) continue;
    std::ranges::move(AnswerTogether(requests.subspan(begin, i - begin), now),
                      std::back_inserter(responses));
    // The request that ended the group begins the next one.
    sessions = {session};
    begin = i;
  }
  return responses;
}

// Steps: gather the rows, compute them together, and divide the results. If a result is not finite,
// the requests are computed one by one, so that only its own request fails.
std::vector<HttpResponse> ServedPolicy::AnswerTogether(std::span<const ServingRequest> requests,
                                                       Time now) {
  Batch batch;
  std::vector<Status> status;
  for (const ServingRequest& request : requests) {
    status.push_back(Gather(request, now, &batch));
    if (status.back().ok()) continue;
    // A request without rows keeps its place, so that indices remain those of the requests.
    batch.first.push_back(batch.rows);
    batch.frames.push_back(0);
  }
  serving_.metrics->SetSessions(serving_.sessions->size());
  const auto cells = std::size_t(batch.rows * signature_.actions);
  batch.discrete.resize(std::size_t(batch.rows));
  batch.values.resize(cells);
  if (!signature_.discrete) batch.continuous.resize(cells);
  batch.next_states.resize(batch.states.size());
  const bool together = batch.rows == 0 || Run(0, batch.rows, &batch).ok();
  std::vector<HttpResponse> responses;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (status[i].ok() && !together) status[i] = Run(batch.first[i], requests[i].rows, &batch);
    // The state of a step that failed is not kept.
    if (status[i].ok() && signature_.state > 0) {
      std::copy_n(
          batch.next_states.begin() + batch.first[i] * signature_.state, signature_.state,
          serving_.sessions->StateOf(std::get<ActRequest>(requests[i].input).session).begin());
    }
    responses.push_back(status[i].ok() ? Respond(std::get<ActRequest>(requests[i].input), batch, i)
                                       : ServingFailure(status[i]));
  }
  return responses;
}

// The response has the form of the request.
HttpResponse ServedPolicy::Respond(const ActRequest& act, const Batch& batch,
                                   std::size_t index) const {
  const auto first = std::size_t(batch.first[index]), rows = std::size_t(act.rows);
  const auto columns = std::size_t(signature_.actions);
  const auto discrete = std::span(batch.discrete).subspan(first, rows);
  const auto floats = std::span(signature_.discrete ? batch.values : batch.continuous)
                          .subspan(first * columns, rows * columns);
  HttpResponse response;
  // Both forms name the weights in a header; JSON also in the body.
  response.headers = {{kUpdatesHeader, std::to_string(updates_)}};
  if (act.binary) {
    response.type = "application/octet-stream";
    if (!act.session.empty())
      response.headers.emplace_back("Troop-Session-Frames", std::to_string(batch.frames[index]));
    if (signature_.discrete) AppendBytes(discrete, &response.body);
    if (!signature_.discrete || act.q_values) AppendBytes(floats, &response.body);
    return response;
  }
  response.type = "application/json";
  JsonObject body;
  if (signature_.discrete) {
    body.Add("actions", JsonArray::Of(discrete));
    if (act.q_values) body.Add("q_values", JsonText::Raw(RowsText(floats, signature_.actions)));
  } else {
    body.Add("actions", JsonText::Raw(RowsText(floats, signature_.actions)));
  }
  if (!act.session.empty()) body.Add("session_frames", batch.frames[index]);
  response.body = body.Add("updates", updates_).str() + "\n";
  return response;
}

}  // namespace troop
