// Learning-rate schedules against PyTorch, and the options that they refuse.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "shardwise/train/schedules.hpp"
#include "support/messages.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using namespace testing;

namespace {

template <class Schedule>
void follows(const Schedule& schedule, std::span<const double> expected) {
  schedule.check();
  for (std::size_t done = 0; done < expected.size(); ++done) {
    INFO("step " << done);
    CHECK(std::abs(schedule(done) - expected[done]) <= 1e-15);  // PyTorch multiplies step by step
  }
}

template <class Schedule>
std::string refusal(const Schedule& schedule) {
  return message_of([&] { schedule.check(); });
}

constexpr WarmUp five{.steps = 5, .from = 0.1};

// Constant rates and step decay are known to the compiler.
static_assert(ConstantRate{.rate = 0.5}(7) == 0.5);
static_assert(StepDecay{.rate = 1, .every = 2, .factor = 0.5}(6) == 0.125);
static_assert(StepDecay{.rate = 1, .every = 2, .factor = 0.5, .warm_up = {.steps = 4}}(3) == 0.75);

}  // namespace

TEST_CASE("schedules give PyTorch's rates") {
  const witness::Values theirs("training/schedules");
  follows(ConstantRate{.rate = 0.4, .warm_up = five}, theirs["warm_constant"]);
  follows(StepDecay{.rate = 0.4, .every = 7, .factor = 0.3}, theirs["step"]);
  follows(StepDecay{.rate = 0.4, .every = 7, .factor = 0.3, .warm_up = five}, theirs["warm_step"]);
  follows(CosineDecay{.rate = 0.4, .steps = 20, .final_rate = 0.01}, theirs["cosine"]);
  follows(CosineDecay{.rate = 0.4, .steps = 25, .final_rate = 0.01, .warm_up = five},
          theirs["warm_cosine"]);
}

TEST_CASE("a cosine stays at its end, and a warm-up from nothing begins with nothing") {
  const CosineDecay cosine{.rate = 1, .steps = 10, .final_rate = 0.25, .warm_up = {.steps = 4}};
  CHECK(cosine(0) == 0);
  CHECK(cosine(4) == 1);
  CHECK(cosine(7) == 0.625);
  CHECK(cosine(10) == 0.25);
  CHECK(cosine(11) == 0.25);
  CHECK(cosine(1'000'000) == 0.25);
}

TEST_CASE("schedules that make no sense are refused by name") {
  CHECK(refusal(ConstantRate{}) == "");
  CHECK(refusal(StepDecay{}) == "");
  CHECK(refusal(CosineDecay{}) == "");
  CHECK(contains(refusal(ConstantRate{.rate = -1}), "ConstantRate: rate is -1"));
  CHECK(
      contains(refusal(ConstantRate{.warm_up = {.steps = 5, .from = 1.5}}), "warm_up.from is 1.5"));
  CHECK(contains(refusal(StepDecay{.every = 0}), "every is 0"));
  CHECK(contains(refusal(StepDecay{.factor = std::nan("")}), "factor"));
  CHECK(contains(refusal(CosineDecay{.steps = 5, .final_rate = -0.1}), "final_rate"));
  const std::string too_long = refusal(CosineDecay{.steps = 5, .warm_up = {.steps = 5}});
  CHECK(contains(too_long, "warm_up has 5 steps, but the schedule has 5"));
}
