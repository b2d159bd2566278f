// Implements EventWriter: a minimal encoder of protocol buffers and TFRecord framing.
#include "core/metrics/event_writer.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/base/time.h"
#include "core/storage/crc32c.h"

namespace troop {
namespace {

// Wire types of protocol buffers; a field is (number << 3 | wire type), then its value.
enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

template <class T>
void PutLittleEndian(T value, std::string* out) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out->push_back(char(value >> (8 * i) & 0xFF));
}
// Variable-length integer: 7 bits per byte, lowest first.
void PutVarint(std::uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(char(value | 0x80));
  out->push_back(char(value));
}
void PutKey(int field, WireType type, std::string* out) { PutVarint(field << 3 | type, out); }
void PutText(int field, std::string_view text, std::string* out) {
  PutKey(field, kLength, out);
  PutVarint(text.size(), out);
  out->append(text);
}

// Field numbers of tensorflow/core/util/event.proto and summary.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSession = 7, kSessionStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kValueImage = 4,
              kValueHistogram = 5;
constexpr int kImageHeight = 1, kImageWidth = 2, kImageColorspace = 3, kImageBytes = 4;
constexpr int kHistogramMin = 1, kHistogramMax = 2, kHistogramCount = 3, kHistogramSum = 4,
              kHistogramSumSquares = 5, kHistogramLimit = 6, kHistogramBucket = 7;

void PutDouble(int field, double value, std::string* out) {
  PutKey(field, kFixed64, out);
  PutLittleEndian(std::bit_cast<std::uint64_t>(value), out);
}
// A packed repeated field of doubles.
void PutDoubles(int field, const std::vector<double>& values, std::string* out) {
  std::string packed;
  for (const double value : values) PutLittleEndian(std::bit_cast<std::uint64_t>(value), &packed);
  PutText(field, packed, out);
}

// Encodes tensorflow.HistogramProto; a bucket covers the range between the previous limit and its
// own.
std::string HistogramBytes(const Histogram& histogram) {
  std::vector<double> limits, counts;
  double left = double(histogram.count());
  // Leading and trailing empty buckets are omitted.
  for (int b = 0; b < Histogram::kBuckets && left > 0; ++b) {
    const auto here = double(histogram.bucket(b));
    if (here == 0 && counts.empty()) continue;
    limits.push_back(std::min(Histogram::Limit(b), std::numeric_limits<double>::max()));
    counts.push_back(here);
    left -= here;
  }
  std::string out;
  PutDouble(kHistogramMin, histogram.min(), &out);
  PutDouble(kHistogramMax, histogram.max(), &out);
  PutDouble(kHistogramCount, double(histogram.count()), &out);
  PutDouble(kHistogramSum, histogram.sum(), &out);
  PutDouble(kHistogramSumSquares, histogram.sum_squares(), &out);
  PutDoubles(kHistogramLimit, limits, &out);
  PutDoubles(kHistogramBucket, counts, &out);
  return out;
}

// Starts a tensorflow.Event with its time.
std::string BeginEvent(double wall_s) {
  std::string event;
  PutDouble(kEventWallTime, wall_s, &event);
  return event;
}

// TFRecord masks checksums, because the checksum of data that contains its own checksum is weak.
std::uint32_t MaskedCrc(std::string_view bytes) {
  return std::rotr(Crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8u;
}

// Frames a record: u64 length, masked CRC of the length, data, masked CRC of the data; little
// endian.
std::string Record(std::string_view data) {
  std::string record;
  PutLittleEndian(std::uint64_t{data.size()}, &record);
  PutLittleEndian(MaskedCrc(record), &record);
  record.append(data);
  PutLittleEndian(MaskedCrc(data), &record);
  return record;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

Result<std::unique_ptr<EventWriter>> EventWriter::Make(Storage* storage, std::string_view folder) {
  const double wall_s = WallSeconds();
  const std::string stem =
      fmt::format("{}{}events.out.tfevents.{}.{}.{}", folder, folder.empty() ? "" : "/",
                  std::int64_t(wall_s), HostName(), getpid());
  int n = 0;
  // A restarted process may have the same time, host and process id.
  while (storage->Exists(fmt::format("{}.{}", stem, n))) ++n;
  TROOP_ASSIGN_OR_RETURN(auto file, storage->OpenAppend(fmt::format("{}.{}", stem, n)));
  return Make(std::move(file), wall_s);
}

Result<std::unique_ptr<EventWriter>> EventWriter::Make(std::unique_ptr<AppendFile> file,
                                                       double wall_s) {
  std::string event = BeginEvent(wall_s);
  // The first record must state the file version.
  PutText(kEventFileVersion, "brain.Event:2", &event);
  TROOP_RETURN_IF_ERROR(file->Append(Record(event)));
  return std::unique_ptr<EventWriter>(new EventWriter(std::move(file)));
}

// One event for all values of a step; TensorBoard stores scalars as f32.
Status EventWriter::Scalars(double wall_s, std::int64_t step,
                            const std::vector<std::pair<std::string, double>>& values) {
  std::string summary, value;
  for (const auto& [tag, number] : values) {
    value.clear();
    PutText(kValueTag, tag, &value);
    PutKey(kValueSimple, kFixed32, &value);
    PutLittleEndian(std::bit_cast<std::uint32_t>(float(number)), &value);
    PutText(kSummaryValue, value, &summary);
  }
  return Append(wall_s, step, summary);
}

// Empty histograms are omitted: their minimum and maximum are undefined.
Status EventWriter::Histograms(double wall_s, std::int64_t step,
                               const std::vector<std::pair<std::string, Histogram>>& values) {
  std::string summary, value;
  for (const auto& [tag, histogram] : values) {
    if (histogram.count() == 0) continue;
    value.clear();
    PutText(kValueTag, tag, &value);
    PutText(kValueHistogram, HistogramBytes(histogram), &value);
    PutText(kSummaryValue, value, &summary);
  }
  return summary.empty() ? Status::Ok() : Append(wall_s, step, summary);
}

// Colorspace 3 is RGB.
Status EventWriter::Image(double wall_s, std::int64_t step, std::string_view tag,
                          const EncodedImage& image) {
  std::string encoded, value, summary;
  for (const auto& [field, number] :
       {std::pair(kImageHeight, image.height), {kImageWidth, image.width}, {kImageColorspace, 3}}) {
    PutKey(field, kVarint, &encoded);
    PutVarint(std::uint64_t(number), &encoded);
  }
  PutText(kImageBytes, image.bytes, &encoded);
  PutText(kValueTag, tag, &value);
  PutText(kValueImage, encoded, &value);
  PutText(kSummaryValue, value, &summary);
  return Append(wall_s, step, summary);
}

// Marks a restart from a checkpoint at `step`.
Status EventWriter::Restart(double wall_s, std::int64_t step) {
  std::string session, event = BeginEvent(wall_s);
  // SessionLog::START makes readers discard later points of earlier files.
  PutKey(kSessionStatus, kVarint, &session);
  PutVarint(kSessionStart, &session);
  PutKey(kEventStep, kVarint, &event);
  PutVarint(std::uint64_t(step), &event);
  PutText(kEventSession, session, &event);
  return file_->Append(Record(event));
}

// Appends one event with a summary; the caller decides when to sync.
Status EventWriter::Append(double wall_s, std::int64_t step, std::string_view summary) {
  std::string event = BeginEvent(wall_s);
  PutKey(kEventStep, kVarint, &event);
  PutVarint(std::uint64_t(step), &event);
  PutText(kEventSummary, summary, &event);
  return file_->Append(Record(event));
}

}  // namespace troop
