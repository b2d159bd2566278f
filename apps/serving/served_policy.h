#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/deploy/exported_policy.h"
#include "apps/serving/served_model.h"
#include "apps/serving/serving_metrics.h"
#include "apps/serving/session_table.h"

struct troop_policy;
struct troop_policy_session;

namespace troop {

// The state that the policies of one server share; used by the thread of ServedPolicy::Answer.
struct PolicyServing {
  std::int64_t rows_max = 64;  // of a request, and of a batch
  SessionTable* sessions;      // borrowed
  ServingMetrics* metrics;     // borrowed
};

// An agent's policy, computed by libtroop_policy.
class ServedPolicy final : public ServedModel {
 public:
  // Origin and weights. loaded: the checkpoint of `policy`.
  struct Source {
    ExportedPolicy policy;
    std::string checkpoint, environment;
    std::uint64_t updates = 0;
  };
  // Errors: those of troop_policy_load.
  static Result<std::shared_ptr<ServedPolicy>> Make(Source source, const PolicyServing& serving);
  ~ServedPolicy() override;

  std::string_view path() const override { return "/v1/act"; }
  std::uint64_t updates() const override { return updates_; }
  std::size_t body_bytes_min() const override { return signature_.stack_bytes(); }
  std::string Description() const override { return description_; }
  bool Accepts(const ServedModel& other) const override;
  Result<ServingRequest> Parse(const HttpRequest& request) const override;
  std::vector<HttpResponse> Answer(std::span<const ServingRequest> batch, Time now) override;
  const PolicySignature& signature() const { return signature_; }

 private:
  struct Batch;  // the rows of several requests, and their results
  ServedPolicy(Source source, const PolicyServing& serving);
  Status Gather(const ServingRequest& request, Time now, Batch* batch);
  Status Run(std::int64_t first, std::int64_t rows, Batch* batch);
  // Answers requests of different sessions.
  std::vector<HttpResponse> AnswerTogether(std::span<const ServingRequest> requests, Time now);
  HttpResponse Respond(const ActRequest& request, const Batch& batch, std::size_t index) const;

  const PolicySignature signature_;
  const PolicyServing serving_;
  const std::uint64_t updates_;
  std::string description_;
  troop_policy* policy_ = nullptr;
  troop_policy_session* session_ = nullptr;
};

}  // namespace troop
