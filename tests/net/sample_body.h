#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troop {

// The parts of SampleBody. (Outside it: clang 14 takes a nested class with default values for one
// that can't be made from nothing.)
enum class SampleColour : std::uint8_t { kRed = 1, kBlue = 2 };

struct SampleRow {
  std::int64_t key = 0;
  float weight = 0;
  std::optional<std::string> note;
  std::vector<std::uint16_t> marks;
  template <class A>
  void serialize(A& a) {
    a(key, weight, note, marks);
  }
  bool operator==(const SampleRow&) const = default;
};

// Refers to itself: only the depth limit bounds it.
struct SampleTree {
  std::string name;
  std::vector<SampleTree> children;
  template <class A>
  void serialize(A& a) {
    a(name, children);
  }
  bool operator==(const SampleTree& other) const {
    return name == other.name && children == other.children;
  }
};

// A body with every kind of field, nested: for tests and the fuzzer.
struct SampleBody {
  bool ready = false;
  SampleColour colour = SampleColour::kRed;
  std::uint32_t version = 0;
  double rate = 0;
  std::string name;
  std::vector<SampleRow> rows;
  std::map<std::string, std::vector<double>> series;
  std::optional<SampleRow> best;
  SampleTree tree;
  template <class A>
  void serialize(A& a) {
    a(ready, colour, version, rate, name, rows, series, best, tree);
  }
  bool operator==(const SampleBody&) const = default;
};

inline SampleBody MakeSampleBody() {
  SampleBody body;
  body.ready = true;
  body.colour = SampleColour::kBlue;
  body.version = 3;
  body.rate = 0.25;
  body.name = "sample";
  body.rows = {{1, 0.5f, "first", {1, 2, 3}}, {-2, 1.5f, std::nullopt, {}}};
  body.series = {{"loss", {1.0, 0.5}}, {"return", {}}};
  body.best = SampleRow{9, 2.0f, "best", {7}};
  body.tree = {"root", {{"left", {}}, {"right", {{"leaf", {}}}}}};
  return body;
}

}  // namespace troop
