#include "apps/monitor/prometheus_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <sstream>

namespace troop {
namespace {

using testing::HasSubstr;
using testing::Not;

PrometheusState SomeState() {
  PrometheusState s{.name = "a \"b\"\\c\nd", .problem = "CartPole-v1", .version = "1"};
  s.view.steps = 1234;
  s.view.steps_total = 5000;
  s.rates.bottleneck = "learner (batches wait for it)";
  s.roles = {{.role = Role::kActor,
              .index = 0,
              .state = RoleView::State::kAlive,
              .incarnation = 7,
              .restarts = 2,
              .heartbeat_age_s = 0.25,
              .work = 99,
              .lag_updates = 12},
             {.role = Role::kActor, .index = 1, .restarts = 1}};
  return s;
}

MetricValue Value(MetricKind kind, double value) { return {.kind = kind, .value = value}; }

TEST(PrometheusTest, WritesNamesTypesAndLabels) {
  PrometheusState s = SomeState();
  s.view.metrics["replay/insert_blocked_s"] = Value(MetricKind::kCounter, 1.5);
  s.view.metrics["replay/items"] = Value(MetricKind::kGaugeSum, 10);
  s.view.metrics["replay/expert/items"] = Value(MetricKind::kGaugeSum, 4);
  s.view.metrics["actor/episode_return_sum"] = Value(MetricKind::kCounter, -21);
  s.view.metrics["learner/loss"] =
      Value(MetricKind::kGaugeMean, std::numeric_limits<double>::quiet_NaN());
  const std::string text = PrometheusText(s);
  for (const char* line : {
           "troop_run_info{name=\"a \\\"b\\\"\\\\c\\nd\",problem=\"CartPole-v1\",version=\"1\"} "
           "1\n",
           "# TYPE troop_run_steps_total counter\ntroop_run_steps_total 1234\n",
           "troop_run_phase{phase=\"running\"} 1\n",
           "troop_run_bottleneck{part=\"learner\"} 1\n",
           "troop_run_bottleneck{part=\"actors\"} 0\n",
           "troop_roles{role=\"actor\",state=\"alive\"} 1\n",
           "troop_roles{role=\"actor\",state=\"missing\"} 1\n",
           "troop_role_restarts_total{role=\"actor\"} 3\n",
           "troop_role_up{role=\"actor\",index=\"0\"} 1\n",
           "troop_role_up{role=\"actor\",index=\"1\"} 0\n",
           "troop_role_heartbeat_age_seconds{role=\"actor\",index=\"0\"} 0.25\n",
           "troop_role_weights_lag_updates{role=\"actor\",index=\"0\"} 12\n",
           "# TYPE troop_replay_insert_blocked_seconds_total counter\n",
           "troop_replay_insert_blocked_seconds_total 1.5\n",
           "troop_replay_items{table=\"expert\"} 4\n",
           "troop_replay_items 10\n",
           "# TYPE troop_actor_returns gauge\ntroop_actor_returns -21\n",
           "troop_learner_loss NaN\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("heartbeat_age_seconds{role=\"actor\",index=\"1\"}")));
}

// Prometheus refuses a page on which a family comes twice or in pieces.
TEST(PrometheusTest, GroupsEachFamilyOnce) {
  PrometheusState s = SomeState();
  s.view.metrics["replay/items"] = s.view.metrics["replay/a/items"] =
      s.view.metrics["replay/b/items"] = Value(MetricKind::kGaugeSum, 1);
  s.view.metrics["replay/fill"] = s.view.metrics["replay/a/fill"] =
      Value(MetricKind::kGaugeMean, 1);
  std::istringstream lines(PrometheusText(s));
  std::set<std::string> begun, samples;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(begun.insert(family).second) << family;
    } else if (!line.starts_with("#")) {
      EXPECT_TRUE(line.starts_with(family)) << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
}

TEST(PrometheusTest, HistogramBucketsAreCumulative) {
  PrometheusState s = SomeState();
  MetricValue& ages = s.view.metrics["paramserver/staleness"];
  ages.kind = MetricKind::kHistogram;
  for (const double v : {0.0, 1.0, 1.5, 3.0, 4.0, 1000.0}) ages.histogram.Add(v);
  std::istringstream lines(PrometheusText(s));
  const std::string bucket = "troop_paramserver_staleness_bucket{le=\"";
  int buckets = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(bucket) || line.find("+Inf") != std::string::npos) continue;
    const double limit = std::stod(line.substr(bucket.size()));
    const double count = std::stod(line.substr(line.rfind(' ')));
    double expected = 0;
    for (const double v : {0.0, 1.0, 1.5, 3.0, 4.0, 1000.0}) expected += v <= limit ? 1 : 0;
    EXPECT_EQ(count, expected) << line;
    ++buckets;
  }
  EXPECT_EQ(buckets, 65);  // 2^-20 to 2^44
  const std::string text = PrometheusText(s);
  EXPECT_THAT(text, HasSubstr("troop_paramserver_staleness_bucket{le=\"+Inf\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("troop_paramserver_staleness_sum 1009.5\n"));
  EXPECT_THAT(text, HasSubstr("troop_paramserver_staleness_count 6\n"));
}

TEST(PrometheusTest, BoundsPageOfLargeFleet) {
  PrometheusState s = SomeState();
  s.roles.assign(5000, {.role = Role::kActor, .incarnation = 1});
  for (std::size_t i = 0; i < s.roles.size(); ++i) s.roles[i].index = std::int32_t(i);
  const std::string text = PrometheusText(s);
  EXPECT_THAT(text, HasSubstr("troop_roles_not_exported 3000\n"));
  EXPECT_THAT(text, HasSubstr("index=\"1999\""));
  EXPECT_THAT(text, Not(HasSubstr("index=\"2000\"")));
  EXPECT_THAT(text, HasSubstr("troop_roles{role=\"actor\",state=\"missing\"} 5000\n"));
}

}  // namespace
}  // namespace troop
