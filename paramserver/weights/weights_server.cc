// Implements the weight publisher: the newest two versions of a model's weights, in memory.
#include "paramserver/weights/weights_server.h"

#include <array>
#include <utility>

#include "net/control/peer_info.h"
#include "net/wire/codec.h"
#include "net/wire/shared_memory.h"
#include "paramserver/protocol/messages.h"

namespace troop {
namespace {

// Requests are answered at once.
class PublishOnlyServer final : public WeightsServer {
 public:
  explicit PublishOnlyServer(const Options& options) : options_(options) {}

  void Handle(Message message, Reply reply) override {
    Status status;
    if (message.type == MessageType::kPublish) {
      status = Publish(std::move(message), &reply);
    } else if (message.type == MessageType::kPull) {
      status = Pull(message, &reply);
    } else {
      status = InvalidArgument("parameter server: unexpected message type {}", int(message.type));
    }
    if (status.ok()) return;
    ++refused_;
    reply.Fail(status);
  }

  void Report(Metrics* metrics) const override {
    // Counters of this process; the coordinator adds those of its predecessors.
    const auto count = [metrics](std::string_view name, std::int64_t value) {
      metrics->Gauge(name, double(value), MetricKind::kCounter);
    };
    count("paramserver/publishes", publishes_);
    count("paramserver/publishes_rejected_old", old_publishes_);
    count("paramserver/pulls", pulls_);
    count("paramserver/snapshots_sent", sent_);
    count("paramserver/rejected_requests", refused_);
    metrics->Gauge("paramserver/version", double(UpdatesOf(version())), MetricKind::kGaugeMax);
  }

  std::uint64_t version() const override { return kept_[0].version; }

 private:
  // Accepts a newer version. A duplicate or older one is acknowledged, so that retries end.
  Status Publish(Message message, Reply* reply) {
    TROOP_ASSIGN_OR_RETURN(const PublishBody body, DecodeBody<PublishBody>(message.body));
    const std::size_t expected = std::size_t(options_.parameters) * sizeof(float);
    // Checked before use: the size decides how many bytes readers copy.
    const std::size_t size = message.parts.size() == 1 ? message.parts[0].size() : 0;
    if (message.parts.size() != 1 || size != expected) {
      return InvalidArgument(
          "publish of version {}: {} bytes in {} parts, must be {} parameters = {} "
          "bytes in one part",
          body.version, size, message.parts.size(), options_.parameters, expected);
    }
    if (body.version == 0) return InvalidArgument("publish: the version is 0, must be at least 1");
    if (body.version > version() && options_.version_is_issued) {
      // A forged version would block all later ones, so its incarnation must have been issued.
      if (message.origin.role != Role::kLearner) {
        return InvalidArgument("{} may not publish weights",
                               PeerName(message.origin.role, message.origin.index));
      }
      if (!options_.version_is_issued(body.version >> 32)) {
        return Unavailable("publish of version {}: incarnation {} was not issued yet", body.version,
                           body.version >> 32);
      }
    }
    // The newest snapshot becomes the previous one.
    if (body.version > version()) {
      // Copied for many readers: the received part may lie in the learner's memory.
      kept_[1] =
          std::exchange(kept_[0], {body.version, CopyToSharedBuffer(message.parts[0].bytes())});
      ++publishes_;
    } else {
      ++old_publishes_;
    }
    reply->Send(
        {.type = MessageType::kPublishReply, .body = EncodeBody(PublishReplyBody{version()})});
    return Status::Ok();
  }

  // Serves the newest version if it is newer than `known`, or exactly `exact`.
  Status Pull(const Message& message, Reply* reply) {
    TROOP_ASSIGN_OR_RETURN(const PullBody body, DecodeBody<PullBody>(message.body));
    ++pulls_;
    const WeightSnapshot* snapshot = nullptr;
    if (body.exact == 0) {
      // A reader that has the newest version gets an empty reply, not the same bytes again.
      if (version() > body.known) snapshot = &kept_[0];
    } else {
      // Two versions are kept, so an exact one stays available during the next publication.
      for (const WeightSnapshot& kept : kept_) {
        if (kept.version == body.exact) snapshot = &kept;
      }
      if (snapshot == nullptr) {
        return NotFound("pull: version {} is not kept; available are {} and {}", body.exact,
                        kept_[0].version, kept_[1].version);
      }
    }
    // Version 0 in the reply: nothing newer.
    Message answer{.type = MessageType::kPullReply,
                   .body = EncodeBody(PullReplyBody{snapshot ? snapshot->version : 0, version()})};
    if (snapshot != nullptr) {
      answer.parts.push_back(snapshot->value);
      ++sent_;
    }
    reply->Send(std::move(answer));
    return Status::Ok();
  }

  Options options_;
  std::array<WeightSnapshot, 2> kept_;  // the newest first; version 0: none yet
  std::int64_t publishes_ = 0, old_publishes_ = 0, pulls_ = 0, sent_ = 0, refused_ = 0;
};

}  // namespace

std::unique_ptr<WeightsServer> MakeWeightsServer(const WeightsServer::Options& options) {
  TROOP_CHECK(options.parameters >= 0, "{} parameters", options.parameters);
  return std::make_unique<PublishOnlyServer>(options);
}

}  // namespace troop
