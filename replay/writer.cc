#include "replay/client.h"
#include "replay/wire.h"

namespace troop {
namespace {

// What the network or an ending server could not bring about: the call is made again.
bool MayTryAgain(Code code) { return code == Code::kDeadlineExceeded; }

class ReplayWriterImpl final : public ReplayWriter {
 public:
  ReplayWriterImpl(std::unique_ptr<Channel> channel, const TrajectorySpec& spec,
                   const Options& options)
      : channel_(std::move(channel)), spec_(spec), options_(options) {}

  bool CanPush() const override {
    return error_.ok() && unacked_pushes() < options_.window && channel_->CanSend() &&
           (pushes_.empty() || pushes_.back().ticket != 0);
  }

  Status Push(std::vector<Chunk> chunks, std::vector<Item> items) override {
    TROOP_CHECK(CanPush(), "a push without CanPush");
    pushed_items_ += items.size();
    pushes_.push_back({PackInsert(spec_, chunks, items), items.size(), 0});
    SendUnsent();
    return error_;
  }

  void Poll(Time) override {
    while (!pushes_.empty() && pushes_.front().ticket != 0 && error_.ok()) {
      const auto answer = channel_->Poll(pushes_.front().ticket);
      if (!answer) break;
      if (answer->ok()) {
        acked_items_ += pushes_.front().items;
        pushes_.pop_front();
      } else if (MayTryAgain(answer->status().code())) {
        TakeBack();
      } else {
        error_ = answer->status().WithContext("replay insert");
      }
    }
    SendUnsent();
  }

  std::uint64_t pushed_items() const override { return pushed_items_; }
  std::uint64_t acked_items() const override { return acked_items_; }
  int unacked_pushes() const override { return int(pushes_.size()); }
  Status error() const override { return error_; }

 private:
  struct Pushed {
    Message message;  // kept until it is acknowledged; the parts are shared
    std::uint64_t items = 0;
    Ticket ticket = 0;  // 0: not with the channel
  };

  // All that is not acknowledged goes again, in order: the server drops what it had already.
  void TakeBack() {
    for (Pushed& push : pushes_) {
      if (push.ticket != 0) channel_->Forget(push.ticket);
      push.ticket = 0;
    }
  }

  // In order. What finds the channel's window of bytes full goes at a later Poll.
  void SendUnsent() {
    for (Pushed& push : pushes_) {
      if (push.ticket != 0) continue;
      if (!error_.ok()) return;
      Message copy = push.message;
      const auto ticket = channel_->Send(copy, kForever);
      if (ticket.ok()) {
        push.ticket = *ticket;
      } else if (ticket.status().code() == Code::kResourceExhausted) {
        return;
      } else {
        error_ = ticket.status().WithContext("replay insert");
      }
    }
  }

  std::unique_ptr<Channel> channel_;
  TrajectorySpec spec_;
  Options options_;
  std::deque<Pushed> pushes_;  // unacknowledged, in order; the server answers in this order
  std::uint64_t pushed_items_ = 0, acked_items_ = 0;
  Status error_;
};

}  // namespace

std::unique_ptr<ReplayWriter> MakeReplayWriter(std::unique_ptr<Channel> channel,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options) {
  TROOP_CHECK(options.window >= 1, "a window of {} pushes", options.window);
  return std::make_unique<ReplayWriterImpl>(std::move(channel), spec, options);
}

}  // namespace troop
