// Connect Four against an opponent that plays at random: four discs in a row win. A full column
// takes no disc, which the action mask says.
#include <troop/environment.hpp>
using namespace troop::plugin;  // Random, Span, Spec, StepResult

class ConnectFour {
 public:
  static constexpr const char* kId = "ConnectFour-v0";  // env.id of the config
  // The board is an image for the network; the mask does not enter the network.
  Spec spec() const {
    return Spec().Part("board", {kRows, kColumns, 2}).ActionMask().Discrete(kColumns);
  }
  // The opponent begins every other game, by chance.
  void Reset(std::uint64_t seed, Span<std::uint8_t> observation) {
    random_ = Random(seed);
    for (auto& row : board_) std::fill(std::begin(row), std::end(row), kEmpty);
    discs_ = 0;
    if (random_.Below(2) == 1) Drop(RandomColumn(), kOpponent);
    Observe(observation);
  }
  // The reward is 1 for a win, -1 for a loss.
  StepResult Step(std::int32_t column, Span<std::uint8_t> observation) {
    if (board_[0][column] != kEmpty)
      throw std::invalid_argument("column " + std::to_string(column) + " is full");
    StepResult result;
    if (Drop(column, kOwn)) {
      result = {1, true};
    } else if (discs_ < kRows * kColumns && Drop(RandomColumn(), kOpponent)) {
      result = {-1, true};
    } else {
      result.terminated = discs_ == kRows * kColumns;  // a draw
    }
    Observe(observation);
    return result;
  }

 private:
  static constexpr int kRows = 6, kColumns = 7;
  enum Disc : std::uint8_t { kEmpty, kOwn, kOpponent };

  int RandomColumn() {
    while (true) {
      const auto column = int(random_.Below(kColumns));
      if (board_[0][column] == kEmpty) return column;
    }
  }
  // Drops a disc to the lowest free row, 5 being the bottom; true if it makes four in a row.
  bool Drop(int column, Disc disc) {
    int row = kRows - 1;
    while (board_[row][column] != kEmpty) --row;
    board_[row][column] = disc;
    ++discs_;
    return Run(row, column, 0, 1) >= 4 || Run(row, column, 1, 0) >= 4 ||
           Run(row, column, 1, 1) >= 4 || Run(row, column, 1, -1) >= 4;
  }
  // Length of the line of equal discs through a field, in both directions.
  int Run(int row, int column, int down, int right) const {
    int length = 1;
    for (const int sign : {-1, 1}) {
      int r = row + sign * down, c = column + sign * right;
      for (; r >= 0 && r < kRows && c >= 0 && c < kColumns && board_[r][c] == board_[row][column];
           r += sign * down, c += sign * right)
        ++length;
    }
    return length;
  }
  // One plane for the own discs, one for the opponent's; then the mask.
  void Observe(Span<std::uint8_t> o) const {
    std::uint8_t* to = o.begin();
    for (const auto& row : board_) {
      for (const Disc disc : row) {
        *to++ = disc == kOwn;
        *to++ = disc == kOpponent;
      }
    }
    for (const Disc disc : board_[0]) *to++ = disc == kEmpty;
  }

  Disc board_[kRows][kColumns] = {};
  int discs_ = 0;
  Random random_;
};
TROOP_ENVIRONMENT(ConnectFour)
