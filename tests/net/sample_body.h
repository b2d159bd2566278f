#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troop {

// A body with every kind of field, nested: for tests and the fuzzer.
struct SampleBody {
  enum class Colour : std::uint8_t { kRed = 1, kBlue = 2 };
  struct Row {
    std::int64_t key = 0;
    float weight = 0;
    std::optional<std::string> note;
    std::vector<std::uint16_t> marks;
    template <class A>
    void serialize(A& a) {
      a(key, weight, note, marks);
    }
    bool operator==(const Row&) const = default;
  };
  // Refers to itself: only the depth limit bounds it.
  struct Tree {
    std::string name;
    std::vector<Tree> children;
    template <class A>
    void serialize(A& a) {
      a(name, children);
    }
    bool operator==(const Tree&) const = default;
  };

  bool ready = false;
  Colour colour = Colour::kRed;
  std::uint32_t version = 0;
  double rate = 0;
  std::string name;
  std::vector<Row> rows;
  std::map<std::string, std::vector<double>> series;
  std::optional<Row> best;
  Tree tree;
  template <class A>
  void serialize(A& a) {
    a(ready, colour, version, rate, name, rows, series, best, tree);
  }
  bool operator==(const SampleBody&) const = default;
};

inline SampleBody MakeSampleBody() {
  SampleBody body;
  body.ready = true;
  body.colour = SampleBody::Colour::kBlue;
  body.version = 3;
  body.rate = 0.25;
  body.name = "sample";
  body.rows = {{1, 0.5f, "first", {1, 2, 3}}, {-2, 1.5f, std::nullopt, {}}};
  body.series = {{"loss", {1.0, 0.5}}, {"return", {}}};
  body.best = SampleBody::Row{9, 2.0f, "best", {7}};
  body.tree = {"root", {{"left", {}}, {"right", {{"leaf", {}}}}}};
  return body;
}

}  // namespace troop
