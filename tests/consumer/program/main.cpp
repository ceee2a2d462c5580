// Trains one step on two ranks. Two translation units include everything: a function that is not
// inline would be there twice.
#include <cstdio>

#include "everything.hpp"
#include "use_parts.hpp"

namespace sw = shardwise;

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<4, 3>, sw::Relu, sw::RowParallelLinear<3, 2>> {
};

int main() {
  std::printf("shardwise %s\n", SHARDWISE_VERSION);
  sw::run_ranks(2, [](sw::ThreadCommunicator& ranks) {
    using Context = sw::Context<float, sw::Reference, sw::ThreadCommunicator>;
    sw::Model<Mlp, Context> model(ranks, sw::Seed{1});
    sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.1});
    const sw::Place place = sw::place_of(ranks);
    sw::Tensor<float, sw::Invariant> x({{sw::Axis::batch, 1}, {sw::Axis::feature, 4}}, place);
    sw::Tensor<std::int32_t, sw::Invariant> labels({{sw::Axis::batch, 1}}, place);
    sw::train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
  });
  return use_parts() ? 0 : 1;
}
