// Whether the benchmark of steps on a GPU sees a step that does not learn; on memory that the host
// cannot touch, where graphs are recordings.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "gpu/trained_perceptron.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/sgd.hpp"
#include "support/far.hpp"

using namespace shardwise;
using testing::Far;

namespace {

using Mixed = Precision<bf16, float>;

const Sgd sgd{.learning_rate = 1.0};
const AdamW adamw{.learning_rate = 1e-2};

template <class P, class Rule>
std::vector<double> five_losses(const Rule& rule) {
  Reference loops;
  bench::Trained<P, Rule, Reference> model(loops, {32, 64, 256}, rule);
  return bench::losses_of([&] { return model.step(); });
}

/// What is left of a step whose gradients are all zero.
template <class Rule>
Rule without_gradients(Rule rule) {
  rule.learning_rate = 0;
  return rule;
}

}  // namespace

TEST_CASE_TEMPLATE("steps of a model lose what plain loops lose, called and recorded", P, Mixed,
                   float) {
  Far far;
  CHECK_NOTHROW(bench::require_losses<P>(far, sgd));
  CHECK_NOTHROW(bench::require_losses<P>(far, adamw));
}

TEST_CASE_TEMPLATE("steps without gradients are found, and so are losses that are no numbers", P,
                   Mixed, float) {
  const auto check = [](const auto& rule) {
    const std::vector<double> exact = five_losses<P>(rule);
    CHECK_THROWS_AS(bench::require_same_fall("it", five_losses<P>(without_gradients(rule)), exact),
                    std::runtime_error);
    std::vector<double> recorded_in_vain = exact;  // from the third step on
    recorded_in_vain[4] = exact[2];
    CHECK_THROWS_AS(bench::require_same_fall("it", recorded_in_vain, exact), std::runtime_error);
    recorded_in_vain[4] = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS(bench::require_same_fall("it", recorded_in_vain, exact), std::runtime_error);
  };
  check(sgd);
  check(adamw);
}

TEST_CASE("the bound is wider than what rounding to bf16 does") {
  CHECK_NOTHROW(bench::require_same_fall("sgd", five_losses<Mixed>(sgd), five_losses<float>(sgd)));
  CHECK_NOTHROW(
      bench::require_same_fall("adamw", five_losses<Mixed>(adamw), five_losses<float>(adamw)));
}
