#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troop {

// The parts of EveryFieldBody. (Outside it: clang 14 takes a nested class with default values for
// one that can't be made from nothing.)
enum class EveryFieldColour : std::uint8_t { kRed = 1, kBlue = 2 };

struct EveryFieldRow {
  std::int64_t key = 0;
  float weight = 0;
  std::optional<std::string> note;
  std::vector<std::uint16_t> marks;
  template <class A>
  void serialize(A& a) {
    a(key, weight, note, marks);
  }
  bool operator==(const EveryFieldRow&) const = default;
};

// Refers to itself: only the depth limit bounds it.
struct EveryFieldTree {
  std::string name;
  std::vector<EveryFieldTree> children;
  template <class A>
  void serialize(A& a) {
    a(name, children);
  }
  bool operator==(const EveryFieldTree& other) const {
    return name == other.name && children == other.children;
  }
};

// A body with every kind of field, nested: for tests and the fuzzer.
struct EveryFieldBody {
  bool ready = false;
  EveryFieldColour colour = EveryFieldColour::kRed;
  std::uint32_t version = 0;
  double rate = 0;
  std::string name;
  std::vector<EveryFieldRow> rows;
  std::map<std::string, std::vector<double>> series;
  std::optional<EveryFieldRow> best;
  EveryFieldTree tree;
  template <class A>
  void serialize(A& a) {
    a(ready, colour, version, rate, name, rows, series, best, tree);
  }
  bool operator==(const EveryFieldBody&) const = default;
};

inline EveryFieldBody MakeEveryFieldBody() {
  EveryFieldBody body;
  body.ready = true;
  body.colour = EveryFieldColour::kBlue;
  body.version = 3;
  body.rate = 0.25;
  body.name = "sample";
  body.rows = {{1, 0.5f, "first", {1, 2, 3}}, {-2, 1.5f, std::nullopt, {}}};
  body.series = {{"loss", {1.0, 0.5}}, {"return", {}}};
  body.best = EveryFieldRow{9, 2.0f, "best", {7}};
  body.tree = {"root", {{"left", {}}, {"right", {{"leaf", {}}}}}};
  return body;
}

}  // namespace troop
