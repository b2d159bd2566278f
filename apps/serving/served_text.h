#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/serving/served_model.h"
#include "learners/supervised/text_predictor.h"

namespace troop {

// A text model: a classifier or a masked LM. The texts of all requests become one forward pass.
class ServedText final : public ServedModel {
 public:
  struct Source {
    std::string checkpoint;      // or the folder of Hugging Face files
    std::uint64_t updates = 0;   // 0: Hugging Face files
    std::int64_t rows_max = 64;  // texts of a request
  };
  ServedText(std::unique_ptr<TextPredictor> predictor, Source source);

  std::string_view path() const override { return "/v1/predict"; }
  std::uint64_t updates() const override { return source_.updates; }
  std::size_t body_bytes_min() const override { return 1; }
  std::string Description() const override { return description_; }
  bool Accepts(const ServedModel& other) const override;
  // The body is {"texts": [TEXT, …]} as application/json. A TEXT is a string, or {"text": "…",
  // "text_pair": "…"} as of transformers' pipeline, in which "text_pair" may be absent.
  Result<ServingRequest> Parse(const HttpRequest& request) const override;
  std::vector<HttpResponse> Answer(std::span<const ServingRequest> batch, Time now) override;

 private:
  HttpResponse Respond(std::span<const TextAnswer> answers) const;

  const std::unique_ptr<TextPredictor> predictor_;
  const Source source_;
  const std::vector<std::string> classes_;
  std::string description_;
};

}  // namespace troop
