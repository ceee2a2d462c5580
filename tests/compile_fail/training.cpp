// Training that cannot be: without gradients, and with labels that lie otherwise than the logits.

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"

using namespace shardwise;

#if CASE == 1  // expect: an Optimizer needs gradients, and a model for ForwardOnly has none
using Use = ForwardOnly;
#else
using Use = Train;
#endif

#if CASE == 2  // expect: labels and targets are Invariant.*or Sharded as the prediction is
using Labels = Sharded<Axis::sequence>;
#else
using Labels = Sharded<Axis::batch>;
#endif

using BatchEnds = Ends<Sharded<Axis::batch>, Sharded<Axis::batch>>;
using Net = Model<Linear<split::none, 8, 4>, Context<float, Reference, SingleRank>, BatchEnds, Use>;

double step(Net& model, Net::input_view x, View<const std::int32_t, Labels> labels) {
  Optimizer optimizer(model, Sgd{});
  return train_step(model, x, labels, CrossEntropy{}, optimizer);
}
