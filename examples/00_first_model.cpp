// The first model: a perceptron split over four ranks, trained on synthetic data.
//
//            rank 0      rank 1      rank 2      rank 3
//     x     [ whole ]   [ whole ]   [ whole ]   [ whole ]    Invariant
//     W1     rows 0-7    rows 8-15   ...         ...         ColumnParallelLinear
//     h      0-7         8-15        16-23       24-31       Sharded<feature>, through Relu
//     W2     cols 0-7    cols 8-15   ...         ...         RowParallelLinear
//     y      summand  +  summand  +  summand  +  summand     Partial: one all-reduce
//
// test:

// begin: program
#include <cstdio>

#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

// begin: model
// The architecture only: no rank count, no dtype, no device.
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<16, 32>, sw::Relu, sw::RowParallelLinear<32, 4>> {};
// end: model

// begin: plan
// The compiler knows what it will send: one all-reduce of 64 x 4 numbers, and nothing backward.
static_assert(std::same_as<sw::output_layout_t<Mlp>, sw::Partial>);
static_assert(sw::plan<Mlp, 4>(sw::batch{64}).forward ==
              sw::CollectiveList{sw::all_reduce(64 * 4)});
static_assert(sw::plan<Mlp, 4>(sw::batch{64}).backward.empty());
// end: plan

int main() {
  sw::run_ranks(4, [](sw::ThreadCommunicator& ranks) {
    using Context = sw::Context<float, sw::Reference, sw::ThreadCommunicator>;
    sw::Model<Mlp, Context> model(ranks, sw::Seed{1});
    sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.1, .momentum = 0.9});

    const sw::Place place = sw::place_of(ranks);
    sw::Tensor<float, sw::Invariant> x({{sw::Axis::batch, 64}, {sw::Axis::feature, 16}}, place);
    sw::Tensor<std::int32_t, sw::Invariant> labels({{sw::Axis::batch, 64}}, place);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<std::int32_t>(i % 4);  // the class says which four inputs are large
      for (std::size_t k = 0; k < 16; ++k) x[i * 16 + k] = k / 4 == i % 4 ? 1.0F : 0.1F;
    }
    for (int step = 1; step <= 20; ++step) {
      const double loss = sw::train_step(model, x, labels, sw::CrossEntropy{}, optimizer);
      if (ranks.rank() == 0 && step % 5 == 0) std::printf("step %2d  loss %.4f\n", step, loss);
    }
  });
}
// end: program
