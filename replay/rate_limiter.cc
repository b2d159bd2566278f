#include "replay/rate_limiter.h"

#include <cmath>

namespace troop {

Result<RateLimiter> RateLimiter::Make(const Options& options) {
  if (!(std::isfinite(options.samples_per_insert) && options.samples_per_insert >= 0)) {
    return InvalidArgument("replay: samples_per_insert {} must be 0 (no limit) or above",
                           options.samples_per_insert);
  }
  if (!(std::isfinite(options.ratio_error) && options.ratio_error >= 0)) {
    return InvalidArgument("replay: ratio_error {} must be 0 or above", options.ratio_error);
  }
  if (options.min_items < 1) {
    return InvalidArgument("replay: min_items {} must be at least 1", options.min_items);
  }
  return RateLimiter(options);
}

RateLimiter::RateLimiter(const Options& options) : options_(options) {
  const double middle = options.samples_per_insert * double(options.min_items);
  lower_ = middle * (1 - options.ratio_error);
  upper_ = middle * (1 + options.ratio_error);
}

}  // namespace troop
