// Tables and portable paths of AtariPreprocess: OpenCV's INTER_AREA resize, bit for bit.

#include "envs/atari/preprocessing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "envs/atari/preprocessing_kernels.h"

namespace troop {
namespace {

// Shape of the AVX2 path: 8 output pixels from one 16-byte load, and at most four source pixels per
// output pixel in a row.
constexpr int kGroupPixels = 8, kGroupSource = 16, kGroupTaps = 4;

std::uint8_t Rounded(float value) {  // halves to even, like OpenCV's saturate_cast
  return std::uint8_t(std::clamp<long>(std::lrint(value), 0, 255));
}

// OpenCV computes the scale as the inverse of the inverse ratio; from / to would round differently.
double Scale(int from, int to) { return 1 / (double(to) / from); }

// OpenCV's test for an integer scale. It rejects 49 pixels into one, since 1 / (1 / 49.0) is not
// 49.
bool IsWhole(double scale) {
  return std::abs(scale - std::round(scale)) < std::numeric_limits<double>::epsilon();
}

bool MachineHasAvx2() {  // every flag that cmake/TroopSourceFlags.cmake sets for *_avx2.cc
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
}

}  // namespace

Result<AtariPreprocess> AtariPreprocess::Make(Size from, Size to) {
  const auto fits = [](int small, int large) {
    return small >= 1 && small <= large && large <= kSideMax;
  };
  if (!fits(to.height, from.height) || !fits(to.width, from.width)) {
    return InvalidArgument(
        "cannot resize frames of {}x{} to {}x{}; each side must be at least 1 and at most the "
        "source's, which is at most {}",
        from.height, from.width, to.height, to.width, kSideMax);
  }
  return AtariPreprocess(from, to);
}

AtariPreprocess::AtariPreprocess(Size from, Size to)
    : from_(from),
      to_(to),
      whole_(IsWhole(Scale(from.height, to.height)) && IsWhole(Scale(from.width, to.width))),
      rows_(Cells(from.height, to.height)),
      columns_(Cells(from.width, to.width)) {
  for (const Cell& cell : columns_) taps_ = std::max(taps_, int(cell.weight.size()));
  MakeGroups();
  if (Supports(Path::kAvx2)) fastest_ = Path::kAvx2;
}

// Follows computeResizeAreaTab in OpenCV's modules/imgproc/src/resize.cpp, with equal weights.
std::vector<AtariPreprocess::Cell> AtariPreprocess::Cells(int from, int to) {
  constexpr double kSliver = 1e-3;  // pixels; smaller parts are omitted
  const double scale = Scale(from, to);
  std::vector<Cell> cells;
  for (int i = 0; i < to; ++i) {
    // Covered source range [begin, end): a partial pixel at each end and whole pixels in between.
    const double begin = i * scale, end = begin + scale;
    const double size = std::min(scale, from - begin);
    const int last = std::min(int(std::floor(end)), from - 1);
    const int first = std::min(int(std::ceil(begin)), last);
    Cell cell{.first = first, .weight = {}};
    if (first - begin > kSliver) {
      --cell.first;
      cell.weight.push_back(float((first - begin) / size));
    }
    cell.weight.insert(cell.weight.end(), std::size_t(last - first), float(1 / size));
    if (end - last > kSliver) {
      cell.weight.push_back(float(std::min(std::min(end - last, 1.0), size) / size));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

// Starts a new group after eight output pixels, or where the 16 source bytes end.
void AtariPreprocess::MakeGroups() {
  if (whole_ || taps_ > kGroupTaps || from_.width < kGroupSource) return;
  // A group starts at the first source pixel of its first output pixel, shifted left if 16 bytes
  // would end after the row.
  int at = 0;
  while (at < to_.width) {
    Group group{.from = std::min(columns_[std::size_t(at)].first, from_.width - kGroupSource),
                .to = at};
    for (int i = 0; i < kGroupPixels && at < to_.width; ++i, ++at) {
      const Cell& cell = columns_[std::size_t(at)];
      const int taps = int(cell.weight.size());
      if (cell.first + taps > group.from + kGroupSource) break;
      for (int t = 0; t < taps; ++t) {
        group.tap[t][i] = std::uint8_t(cell.first + t - group.from);
        group.weight[t][i] = cell.weight[std::size_t(t)];
      }
    }
    groups_.push_back(group);
  }
}

std::string_view AtariPreprocess::PathName(Path path) {
  return path == Path::kPlain ? "plain" : "avx2";
}

bool AtariPreprocess::Supports(Path path) const {
  return path == Path::kPlain || (!groups_.empty() && MachineHasAvx2());
}

void AtariPreprocess::Run(Path path, std::span<const std::uint8_t> a,
                          std::span<const std::uint8_t> b, std::span<std::uint8_t> out) const {
  TROOP_CHECK(a.size() == std::size_t(from_.pixels()) && b.size() == a.size() &&
                  out.size() == std::size_t(to_.pixels()),
              "frames of {} and {} pixels into {}", a.size(), b.size(), out.size());
  TROOP_CHECK(Supports(path), "path {} is not supported for these sizes", PathName(path));
  if (whole_) {
    RunWhole(a.data(), b.data(), out.data());
  } else if (path == Path::kAvx2) {
    AreaResizeAvx2(*this, a.data(), b.data(), out.data());
  } else {
    RunWeighted(a.data(), b.data(), out.data());
  }
}

// OpenCV's ResizeArea_: resizes each source row horizontally, then sums the weighted rows. The
// order of the additions decides the rounding and must stay.
void AtariPreprocess::RunWeighted(const std::uint8_t* a, const std::uint8_t* b,
                                  std::uint8_t* out) const {
  const int width = from_.width;
  std::vector<float> sums(std::size_t(to_.width), 0.0F);
  for (const Cell& row : rows_) {
    std::ranges::fill(sums, 0.0F);
    for (std::size_t r = 0; r < row.weight.size(); ++r) {
      const int start = (row.first + int(r)) * width;
      for (std::size_t x = 0; x < sums.size(); ++x) {
        const Cell& cell = columns_[x];
        float sum = 0;
        for (std::size_t t = 0; t < cell.weight.size(); ++t) {
          const int at = start + cell.first + int(t);
          sum += float(std::max(a[at], b[at])) * cell.weight[t];
        }
        sums[x] += row.weight[r] * sum;
      }
    }
    for (const float sum : sums) *out++ = Rounded(sum);
  }
}

// OpenCV's ResizeAreaFast_ for integer scales: integer sums. The 2x2 case rounds halves up, all
// others to even.
void AtariPreprocess::RunWhole(const std::uint8_t* a, const std::uint8_t* b,
                               std::uint8_t* out) const {
  const int height = from_.height / to_.height, width = from_.width / to_.width;
  // OpenCV multiplies by the reciprocal in f32 instead of dividing.
  const float share = 1.0F / float(height * width);
  for (int y = 0; y < to_.height; ++y) {
    for (int x = 0; x < to_.width; ++x) {
      int sum = 0;
      for (int i = 0; i < height; ++i) {
        for (int j = 0; j < width; ++j) {
          const int at = (y * height + i) * from_.width + x * width + j;
          sum += std::max(a[at], b[at]);
        }
      }
      *out++ =
          height == 2 && width == 2 ? std::uint8_t((sum + 2) >> 2) : Rounded(float(sum) * share);
    }
  }
}

}  // namespace troop
