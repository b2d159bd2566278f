#pragma once

#include <string>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/base/time.h"
#include "core/graphics/picture.h"

namespace troop {

// Path of a program: the name itself if it has a slash and can be run, else the first match in
// PATH; empty: there is none.
std::string LocateProgram(const std::string& name);

// Encodes frames of equal size as MP4 (H.264, yuv420p) by the program ffmpeg, which reads raw
// frames from its standard input. Blocks until it exits, at most `patience`; then it is killed.
// Errors: kUnavailable: it cannot be started, fails, or takes too long. REQUIRES: frames.
Result<Buffer> EncodeMp4(const std::string& ffmpeg, const std::vector<Picture>& frames,
                         double frames_per_s, Duration patience = Seconds(60));

}  // namespace troop
