#include "learners/node/weight_publication.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/metrics/metrics.h"
#include "paramserver/weights/weights_server.h"
#include "tests/testing/coordinator_fake.h"

namespace troop {
namespace {

// A publication with a real weights server of two parameters.
class WeightPublicationTest : public testing::Test {
 protected:
  WeightPublicationTest() : coordinator_(hub_.get()) {
    network_ = hub_->MakeNetwork();
    servers_ = hub_->MakeNetwork();
    member_ = coordinator_.Member(network_.get(), Role::kLearner, 4);
    publication_ = std::make_unique<WeightPublication>(WeightPublication::Options{
        .network = network_.get(), .member = member_.get(), .every_updates = 5});
  }
  void StartServer(std::uint64_t incarnation) {
    listener_.reset();
    server_ = MakeWeightsServer({.parameters = 2});
    listener_ = *servers_->Listen("inproc://weights", server_.get());
    coordinator_.AddPeer(Role::kParamServer, "inproc://weights", incarnation);
  }
  void Rounds(int count) {
    Metrics metrics;
    for (int i = 0; i < count; ++i) {
      now_ += Milliseconds(1);
      network_->Pump(now_);
      coordinator_.Pump(now_);
      servers_->Pump(now_);
      member_->Poll(now_, metrics);
      EXPECT_TRUE(publication_->Poll(now_).ok());
    }
  }
  bool Connect() {
    const Result<bool> connected =
        publication_->Connect({.origin = {.role = Role::kLearner, .incarnation = 4}, .window = 4});
    EXPECT_TRUE(connected.ok()) << connected.status().ToString();
    return connected.ok() && *connected;
  }
  void Publish(std::uint64_t version) {
    const std::vector<float> value{1, 2};
    publication_->Publish(version, Buffer::Copy(std::as_bytes(std::span(value))));
  }

  std::unique_ptr<SimHub> hub_ = MakeSimHub();
  CoordinatorFake coordinator_;
  std::unique_ptr<Network> network_, servers_;
  std::unique_ptr<WeightsServer> server_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<FleetMember> member_;
  std::unique_ptr<WeightPublication> publication_;
  Time now_{Seconds(1)};
};

TEST_F(WeightPublicationTest, ConnectsOnceWhenServerIsKnown) {
  EXPECT_FALSE(Connect());
  EXPECT_FALSE(publication_->connected());
  StartServer(2);
  Rounds(1000);
  EXPECT_TRUE(Connect());
  EXPECT_TRUE(publication_->connected());
  EXPECT_FALSE(Connect());
}

TEST_F(WeightPublicationTest, PublishesVersionToServer) {
  StartServer(2);
  Rounds(1000);
  ASSERT_TRUE(Connect());
  Publish(WeightsVersion(4, 3));
  EXPECT_EQ(publication_->published(), WeightsVersion(4, 3));
  EXPECT_FALSE(publication_->Has(WeightsVersion(4, 3)));
  Rounds(20);
  EXPECT_TRUE(publication_->Has(WeightsVersion(4, 3)));
  EXPECT_FALSE(publication_->Has(WeightsVersion(4, 4)));
  EXPECT_EQ(server_->version(), WeightsVersion(4, 3));
}

TEST_F(WeightPublicationTest, DetectsReplacedServer) {
  EXPECT_FALSE(publication_->ServerReplaced());
  StartServer(2);
  Rounds(1000);
  ASSERT_TRUE(Connect());
  EXPECT_TRUE(publication_->ServerReplaced());  // nothing was published to it
  Publish(WeightsVersion(4, 0));
  EXPECT_FALSE(publication_->ServerReplaced());
  StartServer(8);
  Rounds(1000);
  EXPECT_TRUE(publication_->ServerReplaced());
}

TEST_F(WeightPublicationTest, IsDueOncePerInterval) {
  EXPECT_FALSE(publication_->TakeDue(4));
  EXPECT_TRUE(publication_->TakeDue(6));
  EXPECT_FALSE(publication_->TakeDue(10));
  EXPECT_TRUE(publication_->TakeDue(11));
  publication_->Begin(20);
  EXPECT_FALSE(publication_->TakeDue(24));
  publication_->ReturnTo(10);  // updates were lost
  EXPECT_TRUE(publication_->TakeDue(15));
  publication_->ReturnTo(40);
  EXPECT_TRUE(publication_->TakeDue(20));
}

}  // namespace
}  // namespace troop
