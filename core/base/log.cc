// Implements logging with spdlog.
#include "core/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace troop {
namespace {

spdlog::level::level_enum Level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::shared_ptr<spdlog::logger> MakeLogger(const LogOptions& options) {
  std::shared_ptr<spdlog::sinks::sink> sink;
  if (!options.file.empty()) {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    } catch (const spdlog::spdlog_ex&) {
      // An unwritable log must not end the role; it logs to standard error instead.
    }
  }
  if (!sink) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(options.role, std::move(sink));
  // Time, level letter, role, message.
  logger->set_pattern(options.role.empty() ? "%Y-%m-%d %H:%M:%S.%e %L %v"
                                           : "%Y-%m-%d %H:%M:%S.%e %L %n: %v");
  logger->set_level(Level(options.level));
  // A killed process must not lose its last lines.
  logger->flush_on(spdlog::level::info);
  return logger;
}

// The sink of the process. Function-local, so that its construction is thread safe and on demand.
std::shared_ptr<spdlog::logger>& Logger() {
  static std::shared_ptr<spdlog::logger> logger = MakeLogger({});
  return logger;
}

}  // namespace

// Atomic, because other threads may write a line at the same time.
void InitLog(const LogOptions& options) { std::atomic_store(&Logger(), MakeLogger(options)); }

void LogLine(LogLevel level, std::string_view message) {
  std::atomic_load(&Logger())->log(Level(level), "{}", message);
}

}  // namespace troop
