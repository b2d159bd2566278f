// A shop decides each week how much to order. An order arrives a week later, demand is random,
// unmet demand is lost, and stock costs money.
#include <troop/environment.hpp>
using namespace troop::plugin;  // Options, Random, Span, Spec, StepResult

class Inventory {
 public:
  static constexpr const char* kId = "Inventory-v0";  // env.id of the config
  explicit Inventory(Options& options)                // [env.options] of the config
      : demand_max_(options.Integer("demand_max", 8)), profit_(options.Number("profit", 5)) {
    if (demand_max_ < 1) throw std::invalid_argument("option demand_max: give at least 1");
  }
  Spec spec() const { return Spec().Observe({2}).Scale(0.1).Discrete(11).Limit(52); }
  void Reset(std::uint64_t seed, Span<float> observation) {
    random_ = Random(seed);  // all randomness comes from the seed
    stock_ = 10, coming_ = 0;
    Observe(observation);
  }
  StepResult Step(std::int32_t order, Span<float> observation) {
    stock_ += coming_, coming_ = order;
    const std::int64_t sold = std::min(stock_, random_.Below(demand_max_ + 1));
    stock_ -= sold;
    Observe(observation);
    return {float(profit_ * double(sold) - 0.5 * double(stock_))};  // never terminates
  }

 private:
  void Observe(Span<float> o) const { o.Write({float(stock_), float(coming_)}); }
  std::int64_t demand_max_, stock_ = 0, coming_ = 0;
  double profit_;
  Random random_;
};
TROOP_ENVIRONMENT(Inventory)
