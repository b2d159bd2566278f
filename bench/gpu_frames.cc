// Frames of Atari size for the row of bench/gpu that learns from the replay service: as cheap as
// possible, and about as compressible as Pong's. A plug-in, because a GPU machine may have no game
// emulator.
#include <troop/environment.hpp>

namespace troop::plugin {
namespace {

class Frames {
 public:
  static constexpr const char* kId = "Frames-v0";
  Spec spec() const {
    return Spec().Observe({kSide, kSide}).Scale(1 / 255.0).Discrete(6).Limit(1000);
  }
  void Reset(std::uint64_t seed, Span<std::uint8_t> frame) {
    random_ = Random(seed);
    for (Sprite& sprite : sprites_) {
      sprite = {random_.Below(kSide - kSprite), random_.Below(kSide - kSprite),
                1 + random_.Below(3), 1 + random_.Below(3)};
    }
    Draw(frame);
  }
  StepResult Step(std::int32_t action, Span<std::uint8_t> frame) {
    for (Sprite& sprite : sprites_) {
      sprite.x = (sprite.x + sprite.dx) % (kSide - kSprite);
      sprite.y = (sprite.y + sprite.dy + action) % (kSide - kSprite);
    }
    Draw(frame);
    return {float(random_.Below(3) - 1)};
  }

 private:
  static constexpr std::int64_t kSide = 84, kSprite = 8;
  struct Sprite {
    std::int64_t x = 0, y = 0, dx = 1, dy = 1;
  };
  void Draw(Span<std::uint8_t> frame) {
    std::fill(frame.begin(), frame.end(), std::uint8_t(87));
    for (const Sprite& sprite : sprites_) {
      const auto shade = std::uint8_t(100 + random_.Below(100));
      for (std::int64_t y = sprite.y; y < sprite.y + kSprite; ++y) {
        std::fill_n(frame.data() + y * kSide + sprite.x, kSprite, shade);
      }
    }
  }
  Sprite sprites_[8];
  Random random_;
};

}  // namespace
}  // namespace troop::plugin

TROOP_ENVIRONMENT(troop::plugin::Frames)
