// Implements the primary of a parameter shard: its server, the connection to the backup, and
// saving.
#include "paramserver/service/shard_primary.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/base/log.h"
#include "paramserver/service/options_from_config.h"

namespace troop {
namespace {

ShardServer::Options ServerOptions(const ShardPrimary::Context& context, std::uint64_t lineage,
                                   bool is_failover) {
  ShardServer::Options options = ShardServerOptionsFor(context.config->paramserver);
  options.lineage = lineage;
  options.is_failover = is_failover;
  options.shard = context.layout->shard();
  options.history = context.history;
  return options;
}

}  // namespace

ShardPrimary::ShardPrimary(const Context& context, const ShardTerm& term, ShardReplica state,
                           bool is_failover)
    : context_(context),
      term_(term),
      server_(std::move(state.shard), ServerOptions(context, state.lineage, is_failover)) {
  context_.saver->BeginServer();
}

// Only from here on does the server answer under this term.
Status ShardPrimary::ConnectBackup() {
  if (connected_ == term_.term) return Status::Ok();
  FleetMember& member = *context_.member;
  std::unique_ptr<BackupClient> backup;
  if (term_.backup >= 0) {
    const std::string endpoint = member.Endpoint(Role::kParamServer, term_.backup);
    if (endpoint.empty()) return Status::Ok();  // retried in the next step
    const auto elements = std::size_t(context_.layout->map().LoadOf(context_.layout->shard()));
    // Twice the shard's f32 values fit in flight, and four pieces of a state transfer.
    const std::size_t bytes = 2 * elements * sizeof(float) + 4 * BackupClient::kPieceBytes;
    TROOP_ASSIGN_OR_RETURN(auto channel,
                           context_.network->Connect(
                               endpoint, {.origin = {.role = Role::kParamServer,
                                                     .index = context_.layout->index(),
                                                     .incarnation = member.options().incarnation},
                                          .window_bytes = bytes}));
    backup = std::make_unique<BackupClient>(std::move(channel), term_.term, server_.lineage());
  }
  server_.SetBackup(std::move(backup));
  connected_ = term_.term;
  member.report().shard_term = term_.term;
  // The coordinator waits for this report, so it does not wait for its interval.
  member.SendHeartbeatSoon();
  return Status::Ok();
}

void ShardPrimary::Tick(Time now) {
  // Without contact a successor may serve already, so answers are suspended. With a backup the
  // backup decides: it refuses the updates of an earlier term.
  const bool in_contact =
      now - context_.member->last_known() <= PrimaryContactTimeoutFor(*context_.config);
  server_.SetPrimaryConfirmed(in_contact || server_.backup() != nullptr);
  server_.Tick(now);
  // With an update in flight no consistent snapshot is possible; the next tick tries again.
  if (!context_.saver->IsDue(now) || server_.is_paused() || !server_.PauseUpdates()) return;
  context_.saver->BeginInterval(now);
  Save(false);
  server_.ResumeUpdates();
}

// The final snapshot is written once. One in progress must end first, since it may be older.
void ShardPrimary::SaveFinal() {
  if (context_.saver->final_started() || context_.saver->running()) return;
  if (server_.PauseUpdates()) Save(true);
}

void ShardPrimary::Save(bool final) {
  // `since` orders snapshots of successive primaries in one folder.
  context_.saver->Save(&server_,
                       {.snapshots = context_.snapshots, .since = term_.since, .final = final});
}

void ShardPrimary::StopServing() {
  LogInfo("no longer serving shard {}", context_.layout->shard());
  server_.StopServing();
}

Time ShardPrimary::next_tick() const {
  return std::min(server_.next_tick(), context_.saver->next_save());
}

}  // namespace troop
