#include "verbs/stub/post_cost.h"

#include <gtest/gtest.h>

namespace dualpath::verbs::stub {
namespace {

TEST(PostCostTest, CountsOnePostAndOneCompletionAChain) {
  for (const uint32_t chain : {1u, 8u, 64u, 1000u}) {
    PostCostOptions options;
    options.chain = chain;
    options.chains = 50;
    options.bytes_per_token = 2;
    PostCost cost;
    const Status status = measure_post_cost(options, &cost);
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_GE(cost.chains, 50u);
    EXPECT_EQ(cost.requests, cost.chains * chain);
    EXPECT_EQ(cost.post_calls, cost.chains);
    EXPECT_EQ(cost.completions, cost.chains);
    EXPECT_GT(cost.expand_ns_per_request, 0);
    EXPECT_GT(cost.post_ns_per_request, 0);
  }
}

TEST(PostCostTest, RefusesAChainOfNothing) {
  PostCostOptions options;
  options.chain = 0;
  PostCost cost;
  EXPECT_STREQ(measure_post_cost(options, &cost).code, "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace dualpath::verbs::stub
