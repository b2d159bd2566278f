// Implements the routes of a model's HTTP endpoint.
#include "apps/serving/model_server.h"

#include <chrono>
#include <utility>

#include "apps/monitor/prometheus_format.h"
#include "core/storage/json.h"

namespace troop {

ModelServer::ModelServer(const Options& options, ServingMetrics* metrics)
    : options_(options),
      metrics_(metrics),
      rate_(options.requests_per_second),
      worker_(options.queue, metrics) {}

// The model is published before the first connection.
Result<std::unique_ptr<ModelServer>> ModelServer::Make(const Options& options,
                                                       std::shared_ptr<ServedModel> model,
                                                       ServingMetrics* metrics) {
  TROOP_RETURN_IF_ERROR(
      CheckHttpAddress(options.address, !options.token_file.empty(), false,
                       {.address = "--listen", .token = "--token-file", .offers_insecure = false}));
  if (model->body_bytes_min() > options.body_bytes_max) {
    return InvalidArgument("--body-bytes is {}, must be at least {} (one observation); raise it",
                           options.body_bytes_max, model->body_bytes_min());
  }
  std::unique_ptr<ModelServer> made(new ModelServer(options, metrics));
  ModelServer* const self = made.get();
  // Waiting for an answer has the deadline of a request; reading and sending have their own.
  HttpServer::Options http{.address = options.address,
                           .token_file = options.token_file,
                           .public_paths = {"/health"},
                           .connections_max = options.connections_max,
                           .answer_deadline = options.deadline,
                           .drain_grace = options.drain_grace,
                           .keep_alive = true};
  http.limits.body_bytes = options.body_bytes_max;
  http.routes["/health"] = [self](const HttpRequest&) { return self->Health(); };
  http.routes["/metrics"] = [self](const HttpRequest&) {
    return HttpResponse{.type = kPrometheusType,
                        .body = self->metrics_->Text(self->server_->counters())};
  };
  http.routes["/v1/policy"] = [self](const HttpRequest&) {
    return HttpResponse{.type = "application/json",
                        .body = self->worker_.model()->Description() + "\n"};
  };
  http.deferred[std::string(model->path())] = [self](HttpRequest request, HttpReply reply) {
    self->Handle(request, reply);
  };
  // The first connection may come at once, so the model is there before.
  made->worker_.Publish(std::move(model));
  TROOP_ASSIGN_OR_RETURN(made->server_, HttpServer::Make(std::move(http)));
  return made;
}

// The shapes stay those that the clients read from /v1/policy.
Status ModelServer::Publish(std::shared_ptr<ServedModel> model) {
  if (!model->Accepts(*worker_.model())) {
    return FailedPrecondition(
        "the new checkpoint has other observations or actions; start another server for it");
  }
  worker_.Publish(std::move(model));
  return Status::Ok();
}

// The worker continues to compute while the connections are drained.
std::size_t ModelServer::Drain(Duration limit) {
  draining_ = true;
  return server_->Drain(limit);
}

// Load balancers look at the status only.
HttpResponse ModelServer::Health() const {
  const bool draining = draining_;
  return {.status = draining ? 503 : 200,
          .type = "application/json",
          .body = JsonObject()
                      .Add("status", draining ? "draining" : "ready")
                      .Add("updates", worker_.model()->updates())
                      .str() +
                  "\n"};
}

// Runs in the server's thread: refuses, or parses and queues.
void ModelServer::Handle(const HttpRequest& request, const HttpReply& reply) {
  const Time now = clock_.Now();
  HttpResponse refused;
  if (const Duration wait = rate_.Admit(request.peer, now); wait > Duration(0)) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(wait);
    refused = {.status = 429,
               .body = fmt::format("more than {} requests per second of one client; retry later\n",
                                   options_.requests_per_second),
               .headers = {{"Retry-After", std::to_string(seconds.count())}}};
  } else if (!HasContentType(request, "application/json") &&
             !HasContentType(request, "application/octet-stream")) {
    // Pages of foreign origins can't send these types without the permission of the server.
    refused = {.status = 415,
               .body = "Content-Type must be application/json or application/octet-stream\n"};
  } else if (const Status status = Submit(request, reply, now); !status.ok()) {
    refused = ServingFailure(status);
  } else {
    return;
  }
  metrics_->Answered(refused.status, clock_.Now() - now);
  reply.Send(std::move(refused));
}

// Parses with the newest model; later ones accept the same requests.
Status ModelServer::Submit(const HttpRequest& request, const HttpReply& reply, Time now) {
  TROOP_ASSIGN_OR_RETURN(ServingRequest parsed, worker_.model()->Parse(request));
  parsed.arrived = now;
  parsed.deadline = now + options_.deadline;
  parsed.reply = reply;
  return worker_.Add(std::move(parsed));
}

}  // namespace troop
