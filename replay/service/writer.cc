// ReplayWriter: encodes experience and pushes it to the shards, in order and exactly once.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "net/wire/codec.h"
#include "replay/service/client.h"
#include "replay/service/messages.h"

namespace troop {
namespace {

// True for errors of the network or a stopping server: the call is repeated.
bool MayTryAgain(Code code) { return code == Code::kDeadlineExceeded; }

// The connection to one shard: its window and its dictionary. Pushes are kept until they are
// acknowledged.
class ShardWriter {
 public:
  ShardWriter(std::unique_ptr<Channel> channel, const TrajectorySpec& spec,
              const ReplayWriter::Options& options)
      : channel_(std::move(channel)),
        spec_(spec),
        options_(options),
        coder_(options.codec, spec.observation.bytes()) {}

  // A push that is not with the channel yet must go first.
  bool CanPush() const {
    return int(pushes_.size()) < options_.window && channel_->CanSend() &&
           (pushes_.empty() || pushes_.back().ticket != 0);
  }

  bool settled() const { return pushes_.empty(); }

  // Encodes the chunks once; a resend reuses the result.
  Status Push(std::span<const Chunk> chunks, std::span<const Item> items, std::uint64_t number) {
    std::vector<EncodedChunk> encoded;
    encoded.reserve(chunks.size());
    for (const Chunk& chunk : chunks) encoded.push_back(EncodeChunk(chunk, &coder_));
    pushes_.push_back(
        {.chunks = std::move(encoded), .items = {items.begin(), items.end()}, .number = number});
    Note(HistoryEvent::kSent, pushes_.back());
    Pack(&pushes_.back());
    return SendUnsent();
  }

  // Calls done(number of the push, items) for each that was acknowledged, in order.
  template <class F>
  Status Poll(const F& done) {
    while (!pushes_.empty() && pushes_.front().ticket != 0) {
      const auto answer = channel_->Poll(pushes_.front().ticket);
      if (!answer) break;
      if (answer->ok()) {
        TROOP_RETURN_IF_ERROR(TakeReply(**answer));
        Note(HistoryEvent::kAcknowledged, pushes_.front());
        done(pushes_.front().number, pushes_.front().items.size());
        pushes_.pop_front();
      } else if (MayTryAgain(answer->status().code())) {
        TakeBack();
      } else if (answer->status().code() == Code::kNotFound && trained_) {
        // The server lacks our dictionary: it replaced the one that had trained it.
        TakeBack();
        ForgetDictionary();
      } else {
        return answer->status().WithContext("replay insert");
      }
    }
    PollDictionary();
    return SendUnsent();
  }

 private:
  // A push to one shard that is not acknowledged yet.
  struct Pushed {
    Message message;  // kept until it is acknowledged; its parts are shared
    std::vector<EncodedChunk> chunks;
    std::vector<Item> items;
    std::uint64_t number = 0;
    Ticket ticket = 0;  // 0: not sent
  };

  // Records events for the simulator's checker.
  void Note(HistoryEvent::What what, const Pushed& push) const {
    if (options_.history == nullptr) return;
    for (const Item& item : push.items) {
      options_.history->Note({what, item.stream, item.first_frame, item.length, 0});
    }
  }

  // Each reply names the table's newest dictionary.
  Status TakeReply(const Message& reply) {
    TROOP_ASSIGN_OR_RETURN(const auto body, DecodeBody<InsertReplyBody>(reply.body));
    if (body.dictionary != 0 && options_.codec != Codec::kNone) wanted_ = body.dictionary;
    return Status::Ok();
  }

  // Fetches the dictionary that replies announce. Frames are encoded without it until it arrives;
  // a failed request is repeated with the next reply.
  void PollDictionary() {
    if (asked_ != 0) {
      const auto answer = channel_->Poll(asked_);
      if (!answer) return;
      asked_ = 0;
      if (!answer->ok() || (*answer)->parts.size() != 1) {
        wanted_ = 0;
        return;
      }
      known_ = asked_id_;  // a newer one may have been announced since
      if (auto dictionary = MakeFrameDictionary((*answer)->parts[0])) {
        coder_.AddDictionary(std::move(dictionary));
        trained_ = true;
      }
    }
    if (wanted_ == 0 || wanted_ == known_ || !channel_->CanSend()) return;
    Message request{.type = MessageType::kDictionary,
                    .body = EncodeBody(DictionaryBody{options_.table, wanted_})};
    const auto ticket = channel_->Send(request, kForever);
    if (!ticket.ok()) return;
    asked_ = *ticket;
    asked_id_ = wanted_;
  }

  // Resends all unacknowledged pushes in order; the server ignores those it already has.
  void TakeBack() {
    for (Pushed& push : pushes_) {
      if (push.ticket != 0) channel_->Forget(push.ticket);
      push.ticket = 0;
    }
  }

  // Builds the message from the encoded chunks.
  void Pack(Pushed* push) const {
    push->message = PackInsert(options_.table, spec_, options_.codec, push->chunks, push->items);
  }

  // Reencodes pending frames without the dictionary: a server that replaced another does not have
  // it.
  void ForgetDictionary() {
    FrameCoder plain(options_.codec, coder_.frame_bytes());
    for (Pushed& push : pushes_) {
      for (EncodedChunk& chunk : push.chunks) Recode(&plain, &chunk);
      Pack(&push);
    }
    coder_ = std::move(plain);
    if (asked_ != 0) channel_->Forget(asked_);  // a request to the replaced server
    asked_ = 0;
    wanted_ = known_ = 0;
    trained_ = false;
  }

  // Decodes a chunk's frames and encodes them with `to`.
  void Recode(FrameCoder* to, EncodedChunk* chunk) {
    MutableBuffer frames(chunk->frames * coder_.frame_bytes());
    const std::byte* from = chunk->observation.data();
    for (std::size_t i = 0; i < chunk->frames; ++i) {
      std::uint32_t bytes;
      std::memcpy(&bytes, chunk->frame_bytes.data() + i * sizeof bytes, sizeof bytes);
      const Status status = coder_.Decode({from, bytes}, frames.data() + i * coder_.frame_bytes());
      TROOP_CHECK(status.ok(), "cannot decode an own frame: {}", status.ToString());
      from += bytes;
    }
    const Chunk plain{
        chunk->stream, chunk->first_frame, chunk->frames,   std::move(frames).Freeze(),
        chunk->action, chunk->reward,      chunk->discount, chunk->final};
    *chunk = EncodeChunk(plain, to);
  }

  // Sends unsent pushes in order. If the channel's byte window is full, a later Poll continues.
  Status SendUnsent() {
    for (Pushed& push : pushes_) {
      if (push.ticket != 0) continue;
      Message copy = push.message;
      const auto ticket = channel_->Send(copy, kForever);
      if (ticket.ok()) {
        push.ticket = *ticket;
      } else if (ticket.status().code() == Code::kResourceExhausted) {
        break;
      } else {
        return ticket.status().WithContext("replay insert");
      }
    }
    return Status::Ok();
  }

  std::unique_ptr<Channel> channel_;
  TrajectorySpec spec_;
  ReplayWriter::Options options_;
  FrameCoder coder_;
  std::deque<Pushed> pushes_;  // unacknowledged, in order; the server answers in this order
  std::uint32_t wanted_ = 0, known_ = 0, asked_id_ = 0;  // dictionaries
  Ticket asked_ = 0;
  bool trained_ = false;  // the coder has one
};

// Splits pushes by shard. A push completes when all its shards have acknowledged their part.
class ReplayWriterImpl final : public ReplayWriter {
 public:
  ReplayWriterImpl(std::vector<std::unique_ptr<Channel>> channels, const TrajectorySpec& spec,
                   const Options& options) {
    spec_ = spec;
    options_ = options;
    Use(channels.size());
    for (std::size_t k = 0; k < channels.size(); ++k) {
      if (channels[k]) AddShard(k, std::move(channels[k]));
    }
  }

  void AddShard(std::size_t k, std::unique_ptr<Channel> channel) override {
    TROOP_CHECK(!Knows(k), "shard {} has a channel already", k);
    shards_.try_emplace(k, std::move(channel), spec_, options_);
  }
  bool Knows(std::size_t k) const override { return shards_.contains(k); }
  // Shards beyond the used ones keep their unacknowledged pushes.
  void Use(std::size_t shards) override {
    TROOP_CHECK(shards >= 1, "no shards");
    used_ = shards;
    chunks_.resize(shards);
    items_.resize(shards);
  }
  // True once the shards from index `shards` on may be removed.
  bool Settled(std::size_t shards) const override {
    return std::all_of(shards_.lower_bound(shards), shards_.end(),
                       [](const auto& entry) { return entry.second.settled(); });
  }

  // True if every shard in use has room, as a push may have data for each.
  bool CanPush() const override {
    if (!error_.ok()) return false;
    return std::all_of(shards_.begin(), shards_.lower_bound(used_),
                       [](const auto& entry) { return entry.second.CanPush(); });
  }

  Status Push(std::vector<Chunk> chunks, std::vector<Item> items) override {
    TROOP_CHECK(CanPush(), "push without CanPush()");
    pushed_items_ += items.size();
    for (Chunk& chunk : chunks) {
      chunks_[ShardOf(chunk.stream, used_)].push_back(std::move(chunk));
    }
    for (Item& item : items) {
      items_[ShardOf(item.stream, used_)].push_back(std::move(item));
    }
    // Splits the push by shard. An empty push goes to one shard, so that it is acknowledged too.
    const bool empty = chunks.empty() && items.empty();
    open_.push_back(0);
    const std::uint64_t number = first_open_ + open_.size() - 1;
    for (std::size_t k = 0; k < used_ && error_.ok(); ++k) {
      const bool nothing = empty && k == shards_.begin()->first;
      if (chunks_[k].empty() && items_[k].empty() && !nothing) continue;
      const auto shard = shards_.find(k);
      TROOP_CHECK(shard != shards_.end(), "shard {} has no channel", k);
      ++open_.back();
      error_ = shard->second.Push(chunks_[k], items_[k], number);
      chunks_[k].clear();
      items_[k].clear();
    }
    return error_;
  }

  // The first error is permanent and stops all shards.
  void Poll(Time) override {
    for (auto& [k, shard] : shards_) {
      if (!error_.ok()) return;
      error_ = shard.Poll([this](std::uint64_t number, std::uint64_t items) {
        acked_items_ += items;
        --open_[number - first_open_];
      });
    }
    // Pushes complete in order, whatever the order of the shards' replies.
    while (!open_.empty() && open_.front() == 0) {
      open_.pop_front();
      ++first_open_;
    }
  }

  std::uint64_t pushed_items() const override { return pushed_items_; }
  std::uint64_t acked_items() const override { return acked_items_; }
  int unacked_pushes() const override { return int(open_.size()); }
  Status error() const override { return error_; }

 private:
  TrajectorySpec spec_;
  Options options_;
  std::map<std::size_t, ShardWriter> shards_;  // by index; those with a channel
  std::size_t used_ = 0;                       // indices below it are in use
  std::deque<int> open_;  // unacknowledged parts of each push from first_open_ on
  std::uint64_t first_open_ = 1;
  std::uint64_t pushed_items_ = 0, acked_items_ = 0;
  std::vector<std::vector<Chunk>> chunks_;  // [shards] scratch
  std::vector<std::vector<Item>> items_;    // [shards] scratch
  Status error_;
};

}  // namespace

std::unique_ptr<ReplayWriter> MakeReplayWriter(std::vector<std::unique_ptr<Channel>> shards,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options) {
  TROOP_CHECK(options.window >= 1 && std::ranges::any_of(shards, &std::unique_ptr<Channel>::get),
              "a window of {} pushes to {} shards", options.window, shards.size());
  return std::make_unique<ReplayWriterImpl>(std::move(shards), spec, options);
}

std::unique_ptr<ReplayWriter> MakeReplayWriter(std::unique_ptr<Channel> channel,
                                               const TrajectorySpec& spec,
                                               const ReplayWriter::Options& options) {
  std::vector<std::unique_ptr<Channel>> shards;
  shards.push_back(std::move(channel));
  return MakeReplayWriter(std::move(shards), spec, options);
}

}  // namespace troop
