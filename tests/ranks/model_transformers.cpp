// A small GPT-2 against transformers: logits, loss and all gradients, in a tensor and a context
// plan.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ranks/model_gpt.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/ranks.hpp"
#include "witness/formula.hpp"
#include "witness/values.hpp"

using namespace shardwise;
using namespace testing::gpt;
using testing::filled;
using testing::Ranks;

namespace {

/// Parameters are made by formula, in the order in which the model visits them. A step of SGD with
/// rate 1 takes their gradients away from them.
template <class P>
void check(int ranks) {
  CAPTURE(ranks);
  const witness::Values theirs("transformers/gpt2");
  testing::run_on_ranks(ranks, [&](Ranks& group) {
    const Place place = place_of(group);
    using Net = Gpt2<P, heads, 0>;
    Model<Net, Context<double, Reference, Ranks>, Ends<typename P::ids, typename P::logits>> model(
        Net{}, group, Seed{3}, text);
    std::vector<std::pair<std::string, Shape>> parameters;
    model.visit_parameters([&](auto& p) { parameters.emplace_back(p.name, p.spec.shape); });
    const auto value = [](std::size_t number, std::size_t i) {
      return witness::made(static_cast<std::int64_t>(30 + number), static_cast<std::int64_t>(i)) /
             2;
    };
    for (std::size_t n = 0; n < parameters.size(); ++n) {
      const auto& [name, shape] = parameters[n];
      const auto whole =
          filled<double, Invariant>(shape, place, [&](std::size_t i) { return value(n, i); });
      model.set(name, whole.view());
    }
    const auto ids = filled<std::int32_t, typename P::ids>(text, place, token);
    const auto labels = filled<std::int32_t, Invariant>(text, place, [&](std::size_t i) {
      return i == 3 || i == positions - 1 ? -100 : token(i + 1);
    });
    const auto logits = model.evaluate(ids.view());
    CHECK(testing::largest_difference_of_part(
              logits, [&](std::size_t i) { return theirs["logits"][i]; }) < 1e-11);
    Optimizer optimizer(model, Sgd{.learning_rate = 1});
    const double loss =
        train_step(model, ids.view(), labels.view(), MaskedCrossEntropy{}, optimizer);
    CHECK(loss == doctest::Approx(theirs.number("loss")).epsilon(1e-12));
    std::size_t n = 0;
    model.visit_parameters([&](auto& p) {
      CAPTURE(p.name);
      const auto gradient = theirs["gradient " + std::to_string(n)];
      CHECK(testing::largest_difference_of_part(
                p.value, [&](std::size_t i) { return value(n, i) - gradient[i]; }) < 1e-11);
      ++n;
    });
  });
}

}  // namespace

TEST_CASE("a GPT-2 computes what transformers does") {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 7})) check<TensorPlan>(ranks);
  for (const int ranks : testing::rank_counts({1, 3})) check<ContextPlan>(ranks);
}
