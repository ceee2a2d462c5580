// Training that cannot be: without gradients, with labels that are none or lie otherwise than the
// logits, with a loss or a rule that is none.

#include <tuple>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

#if CASE == 1  // expect: an Optimizer needs gradients, and a model for ForwardOnly has none
using Use = ForwardOnly;
#elif CASE == 3  // expect: an Optimizer needs gradients, and a model for ForwardOnly has none
using Use = ForwardOnly;
#else
using Use = Train;
#endif

#if CASE == 2  // expect: labels and targets are Invariant.*or Sharded as the prediction is
using Labels = View<const std::int32_t, Sharded<Axis::sequence>>;
#elif CASE == 4  // expect: labels and targets are a View<const T, ...>: labels of std::int32_t
using Labels = View<const std::int64_t, Sharded<Axis::batch>>;
#elif CASE == 5  // expect: Given is no tensor: labels and targets are a View
using Labels = std::vector<std::int32_t>;
#else
using Labels = View<const std::int32_t, Sharded<Axis::batch>>;
#endif

#if CASE == 6  // expect: Chosen is no loss: give an object like CrossEntropy
using Chosen = Sgd;
#elif CASE == 9  // expect: a model with several outputs takes a loss and a target for each
using Chosen = std::tuple<CrossEntropy, MeanSquaredError>;
#else
using Chosen = CrossEntropy;
#endif

#if CASE == 7  // expect: Rule is no rule by which an Optimizer could change parameters
using Rule = CrossEntropy;
#else
using Rule = Sgd;
#endif

#if CASE == 8  // expect: a loss of class labels takes logits that are Invariant, or Sharded
using Ending = Partial;
#else
using Ending = Sharded<Axis::batch>;
#endif

using BatchEnds = Ends<Sharded<Axis::batch>, Ending>;
using Net = Model<Linear<split::none, 8, 4>, Context<float, Reference, SingleRank>, BatchEnds, Use>;

#if CASE != 3
double step(Net& model, Net::input_view x, const Labels& labels) {
  Optimizer<Rule, Net> optimizer(model, Rule{});
  return train_step(model, x, labels, Chosen{}, optimizer);
}
#else
double step(Optimizer<Rule, Net>& optimizer, Net::input_view x, const Labels& labels) {
  Step step(optimizer, 4);
  return step.add(x, labels, Chosen{});
}
#endif
