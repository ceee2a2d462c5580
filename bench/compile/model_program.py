"""Programs that train a model for one step, on thread ranks."""

PROGRAM = """#include "shardwise/shardwise.hpp"
namespace sw = shardwise;
struct Net : sw::Sequential<{layers}> {{}};
int main() {{
  sw::run_ranks(2, [](sw::ThreadCommunicator& ranks) {{
    sw::Model<Net, sw::Context<float, sw::Reference, sw::ThreadCommunicator>> model(ranks,
                                                                                    sw::Seed{{1}});
    sw::Optimizer optimizer(model, sw::Sgd{{.learning_rate = 0.1}});
    const sw::Place place = sw::place_of(ranks);
    sw::Tensor<float, sw::Invariant> x({{{{sw::Axis::batch, 4}}, {{sw::Axis::feature, 64}}}}, place);
    sw::Tensor<std::int32_t, sw::Invariant> labels({{{{sw::Axis::batch, 4}}}}, place);
    sw::train_step(model, x.view(), labels.view(), sw::CrossEntropy{{}}, optimizer);
  }});
}}
"""

LLAMA = """#include "shardwise/shardwise.hpp"
namespace sw = shardwise;
int main() {
  sw::run_ranks(2, [](sw::ThreadCommunicator& ranks) {
    const sw::Shape text{{sw::Axis::batch, 4}, {sw::Axis::sequence, 16}};
    const auto llama = sw::llama({.vocabulary = 64, .features = 32, .hidden = 64, .heads = 4,
                                  .groups = 2, .head_size = 8, .layers = 2});
    sw::Model<std::remove_const_t<decltype(llama)>,
              sw::Context<float, sw::Reference, sw::ThreadCommunicator>,
              sw::Ends<sw::TensorParallel::ids, sw::TensorParallel::logits>>
        model(llama, ranks, sw::Seed{1}, text);
    sw::Optimizer optimizer(model, sw::AdamW{});
    sw::Tensor<std::int32_t, sw::Invariant> ids(text, sw::place_of(ranks));
    sw::train_step(model, ids.view(), ids.view(), sw::CrossEntropy{}, optimizer);
  });
}
"""

UMBRELLA = '#include "shardwise/shardwise.hpp"\nint main() {}\n'


def model_program(layers):
    """A model of so many linear layers, an even number; all of different sizes, so of different
    types, with a ReLU in each pair."""
    pairs = [
        f"sw::ColumnParallelLinear<{64 + i}, {128 + i}>, sw::Relu, "
        f"sw::RowParallelLinear<{128 + i}, {65 + i}>"
        for i in range(layers // 2)
    ]
    return PROGRAM.format(layers=", ".join(pairs))
