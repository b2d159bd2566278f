// Implements DecodeJpeg with libjpeg, whose errors leave by longjmp. No object with a destructor is
// created between setjmp and longjmp: those live in the caller.

#include <array>
#include <csetjmp>
#include <cstdio>  // libjpeg's header needs FILE
#include <string>
#include <utility>

#include <jerror.h>
#include <jpeglib.h>

#include "datasets/images/image_file.h"

namespace troop {
namespace {

// A progressive file may repeat scans of the whole image at a few bytes each. Encoders write about
// ten.
constexpr int kScansMax = 100;

// State of one decoding, reached from libjpeg's callbacks. `errors` and `progress` come first in
// their structs by libjpeg's convention.
struct JpegReading {
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  std::array<char, JMSG_LENGTH_MAX> message{};
  Status status = Status::Ok();
  Image image;
};

// libjpeg passes its own struct to the callbacks.
JpegReading* ReadingOf(j_common_ptr info) { return static_cast<JpegReading*>(info->client_data); }

// libjpeg's default would end the process.
[[noreturn]] void OnError(j_common_ptr info) {
  JpegReading* const reading = ReadingOf(info);
  info->err->format_message(info, reading->message.data());
  std::longjmp(reading->escape, 1);
}

// libjpeg replaces missing data by gray and warns. Such images are not training data. Other
// warnings, such as bytes between two markers, do not concern the pixels.
void OnMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      OnError(info);
    default:
      return;
  }
}

// Called between parts of the decoding. The status is set before the jump, which runs no
// destructors.
void CountScans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kScansMax) return;
  JpegReading* const reading = ReadingOf(info);
  reading->status = ResourceExhausted("it has more than {} scans", kScansMax);
  std::longjmp(reading->escape, 1);
}

// True if the image is complete; otherwise *reading has a status or a message.
bool ReadPixels(jpeg_decompress_struct* info, std::string_view bytes, JpegReading* reading) {
  if (setjmp(reading->escape) != 0) return false;
  jpeg_create_decompress(info);
  info->progress = &reading->progress;
  jpeg_mem_src(info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(info, TRUE);
  // 1. The declared size, before memory of that size is used.
  Image& image = reading->image;
  image.height = info->image_height;
  image.width = info->image_width;
  reading->status = CheckImageSize(image.height, image.width);
  if (!reading->status.ok()) return false;
  // 2. Gray stays gray; everything else must be convertible to RGB.
  info->out_color_space = info->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(info);
  image.channels = info->output_components;
  const std::size_t row = std::size_t(image.width * image.channels);
  image.pixels.resize(std::size_t(image.height) * row);
  // 3. Row by row.
  while (info->output_scanline < info->output_height) {
    JSAMPROW to = image.pixels.data() + info->output_scanline * row;
    jpeg_read_scanlines(info, &to, 1);
  }
  jpeg_finish_decompress(info);
  return true;
}

}  // namespace

Result<Image> DecodeJpeg(std::string_view bytes) {
  JpegReading reading;
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&reading.errors);
  reading.errors.error_exit = &OnError;
  reading.errors.emit_message = &OnMessage;
  reading.progress.progress_monitor = &CountScans;
  info.client_data = &reading;
  const bool complete = ReadPixels(&info, bytes, &reading);
  jpeg_destroy_decompress(&info);
  if (complete) return std::move(reading.image);
  if (!reading.status.ok()) return reading.status;
  return DataLoss("libjpeg: {}", reading.message.data());
}

}  // namespace troop
