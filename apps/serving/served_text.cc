// Implements answers with classes of texts.
#include "apps/serving/served_text.h"

#include <utility>

#include "apps/deploy/text_answer_json.h"
#include "core/storage/json.h"

namespace troop {
namespace {

// Collects the texts of a request.
class TextsReader {
 public:
  TextsReader(const TextPredictor& predictor, std::int64_t rows_max)
      : predictor_(predictor), rows_max_(rows_max) {}
  Status Take(const JsonEvent& event);
  // Errors: the body has no texts.
  Result<PredictRequest> Finish();

 private:
  using Kind = JsonEvent::Kind;
  Status TakeText(const JsonEvent& event);
  Status TakePair(const JsonEvent& event);
  Status Add(PredictRequest::Text text);

  enum class Place : std::uint8_t { kBefore, kObject, kArrayNext, kArray, kPair, kAfter };
  const TextPredictor& predictor_;
  const std::int64_t rows_max_;
  PredictRequest request_;
  Place place_ = Place::kBefore;
  // Members of the object that is being read, and the one whose value is next.
  std::optional<std::string> text_{}, text_pair_{}, *next_ = nullptr;
};

// {"texts": [string or object, …]}, and nothing else.
Status TextsReader::Take(const JsonEvent& event) {
  switch (place_) {
    case Place::kBefore:
      if (event.kind != Kind::kBeginObject)
        return InvalidArgument("the body must be a JSON object");
      place_ = Place::kObject;
      return Status::Ok();
    case Place::kObject:
    case Place::kAfter:
      if (event.kind == Kind::kEndObject) return Status::Ok();
      if (event.text != "texts") {
        return InvalidArgument("unknown key {}; the only key is texts",
                               JsonQuote(event.text.substr(0, 40)));
      }
      if (place_ == Place::kAfter) return InvalidArgument("duplicate key \"texts\"");
      // Only an array may follow.
      place_ = Place::kArrayNext;
      return Status::Ok();
    case Place::kArrayNext:
      if (event.kind != Kind::kBeginArray)
        return InvalidArgument("\"texts\" must be an array of strings or objects");
      place_ = Place::kArray;
      return Status::Ok();
    case Place::kArray:
      return TakeText(event);
    case Place::kPair:
      return TakePair(event);
  }
  return Status::Ok();
}

Status TextsReader::TakeText(const JsonEvent& event) {
  if (event.kind == Kind::kEndArray) {
    place_ = Place::kAfter;
    return Status::Ok();
  }
  if (event.kind == Kind::kBeginObject) {
    place_ = Place::kPair;
    return Status::Ok();
  }
  if (event.kind == Kind::kString) return Add({std::string(event.text)});
  return InvalidArgument(
      "\"texts\" must consist of strings, or objects with \"text\" and \"text_pair\"");
}

// {"text": string, "text_pair": string}; without the second one it is a single text.
Status TextsReader::TakePair(const JsonEvent& event) {
  if (event.kind == Kind::kEndObject) {
    if (!text_) return InvalidArgument("an object of \"texts\" has no \"text\"");
    place_ = Place::kArray;
    PredictRequest::Text text{*std::move(text_), std::exchange(text_pair_, std::nullopt)};
    text_.reset();
    return Add(std::move(text));
  }
  if (event.kind == Kind::kKey) {
    next_ = event.text == "text" ? &text_ : event.text == "text_pair" ? &text_pair_ : nullptr;
    if (next_ == nullptr) {
      return InvalidArgument("unknown key {} in \"texts\"; the keys are text and text_pair",
                             JsonQuote(event.text.substr(0, 40)));
    }
    if (*next_) return InvalidArgument("duplicate key {}", JsonQuote(event.text));
    return Status::Ok();
  }
  if (event.kind != Kind::kString || next_ == nullptr)
    return InvalidArgument("\"text\" and \"text_pair\" must be strings");
  *next_ = std::string(event.text);
  return Status::Ok();
}

// Rejected here, a text of the wrong form does not fail the requests that share its batch.
Status TextsReader::Add(PredictRequest::Text text) {
  if (std::int64_t(request_.texts.size()) >= rows_max_)
    return InvalidArgument("more than {} texts; send several requests", rows_max_);
  TROOP_RETURN_IF_ERROR(predictor_.CheckForm(text.pair.has_value()));
  request_.texts.push_back(std::move(text));
  return Status::Ok();
}

// An object without the key ends in the state before it.
Result<PredictRequest> TextsReader::Finish() {
  if (place_ != Place::kAfter)
    return InvalidArgument("the key \"texts\" is missing: an array of strings");
  if (request_.texts.empty()) return InvalidArgument("texts is empty; send at least one text");
  return std::move(request_);
}

// The texts of all requests, in their order; they are not copied.
std::vector<TextInput> ViewsOf(std::span<const ServingRequest> batch) {
  std::vector<TextInput> views;
  for (const ServingRequest& request : batch) {
    for (const auto& [text, pair] : std::get<PredictRequest>(request.input).texts)
      views.push_back({text, pair});
  }
  return views;
}

}  // namespace

ServedText::ServedText(std::unique_ptr<TextPredictor> predictor, Source source)
    : predictor_(std::move(predictor)),
      source_(std::move(source)),
      classes_(predictor_->class_names()) {
  description_ =
      JsonObject()
          .Add("path", path())
          .Add("checkpoint", source_.checkpoint)
          .Add("updates", source_.updates)
          .Add("kind", predictor_->masked() ? "masked_lm" : "classifier")
          .Add("problem_type",
               predictor_->masked() ? JsonText(nullptr) : JsonText(EnumName(predictor_->problem())))
          .Add("classes", JsonArray::Of(classes_))
          .Add("pairs", predictor_->pairs() ? JsonText(*predictor_->pairs()) : JsonText(nullptr))
          .Add("tokens_max", predictor_->max_length())
          .Add("rows_max", source_.rows_max)
          .str();
}

// Two checkpoints of one run have equal classes.
bool ServedText::Accepts(const ServedModel& other) const {
  const auto* const text = dynamic_cast<const ServedText*>(&other);
  return text != nullptr && text->classes_ == classes_ &&
         text->predictor_->masked() == predictor_->masked() &&
         text->predictor_->problem() == predictor_->problem() &&
         text->predictor_->pairs() == predictor_->pairs();
}

Result<ServingRequest> ServedText::Parse(const HttpRequest& request) const {
  if (!HasContentType(request, "application/json"))
    return InvalidArgument("Content-Type must be application/json; texts have no binary form");
  // Strings of the JSON reader are valid UTF-8.
  TextsReader reader(*predictor_, source_.rows_max);
  const Status read =
      ReadJson(request.body, [&](const JsonEvent& event) { return reader.Take(event); });
  if (!read.ok()) return InvalidArgument("{}", read.message());
  TROOP_ASSIGN_OR_RETURN(PredictRequest texts, reader.Finish());
  // Filled in place: GCC 12 takes a moved variant for uninitialized.
  Result<ServingRequest> parsed = ServingRequest();
  parsed->rows = std::int64_t(texts.texts.size());
  parsed->input = std::move(texts);
  return parsed;
}

// If the texts cannot be computed together, the requests are computed one by one, so that only the
// request of the defective text fails.
std::vector<HttpResponse> ServedText::Answer(std::span<const ServingRequest> batch, Time) {
  std::vector<HttpResponse> responses;
  const auto answers = predictor_->PredictAll(ViewsOf(batch));
  std::size_t row = 0;
  for (const ServingRequest& request : batch) {
    if (answers.ok()) {
      responses.push_back(Respond(std::span(*answers).subspan(row, std::size_t(request.rows))));
      row += std::size_t(request.rows);
      continue;
    }
    const auto own = predictor_->PredictAll(ViewsOf({&request, 1}));
    // Not the client's fault, unlike other damaged data.
    responses.push_back(own.ok() ? Respond(*own)
                                 : ServingFailure(Internal("{}", own.status().message())));
  }
  return responses;
}

// One object per text, in the order of the request.
HttpResponse ServedText::Respond(std::span<const TextAnswer> answers) const {
  JsonArray predictions;
  for (const TextAnswer& answer : answers) {
    JsonObject one;
    AddTextAnswer(answer, *predictor_, &one);
    predictions.Add(one);
  }
  return {
      .type = "application/json",
      .body = JsonObject().Add("predictions", predictions).Add("updates", updates()).str() + "\n",
      .headers = {{kUpdatesHeader, std::to_string(updates())}}};
}

}  // namespace troop
