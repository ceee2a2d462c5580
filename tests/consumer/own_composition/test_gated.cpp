// Runs, trains, plans, draws and saves a composition that the library does not know.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

#include "gated.hpp"
#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/testing/testing.hpp"

using Net = sw::Sequential<Gated<6, 5>, sw::RowParallelLinear<5, 3>>;
using Context = sw::Context<double, sw::Reference, sw::ThreadCommunicator>;

// begin: asked
// Both branches share what brings x to them: one sum of gradients, and x is kept once.
constexpr auto asked = [] {
  return sw::plan<Net, 4, sw::Invariant, sw::Invariant, true>(sw::batch{64});
};
static_assert(asked().forward == sw::CollectiveList{sw::all_reduce(64 * 3)});
static_assert(asked().backward == sw::CollectiveList{sw::all_reduce(64 * 6)});
static_assert(sw::memory_of<Net, 1>(sw::batch{64})[0].saved == 64 * (5 + 5 + 5));
// end: asked

namespace {

const sw::Shape in{{sw::Axis::batch, 3}, {sw::Axis::feature, 6}};

void require(bool holds, const char* what) {
  if (!holds) throw sw::argument_error(what);
}

/// The losses of three steps, and the weights in a file.
void train(const std::filesystem::path& file, int count, std::array<double, 3>& losses) {
  sw::run_ranks(count, [&](sw::ThreadCommunicator& ranks) {
    sw::Model<Net, Context> model(ranks, sw::Seed{1});
    sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.1});
    sw::Tensor<double, sw::Invariant> x(in, sw::place_of(ranks));
    for (std::size_t i = 0; i < x.view().size(); ++i) x.view()[i] = static_cast<double>(i % 5) - 2;
    sw::Tensor<std::int32_t, sw::Invariant> labels({{sw::Axis::batch, 3}}, sw::place_of(ranks));
    for (double& loss : losses) {
      const double mean =
          sw::train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
      if (ranks.rank() == 0) loss = mean;
    }
    sw::save_weights(file, model);
    sw::Model<Net, Context> again(ranks, sw::Seed{2});
    sw::load_weights(file, again);
    const auto gathered = again.gather("0.1.weight");
    require(gathered.size() == 5 * 6 && gathered.data()[7] == model.gather("0.1.weight").data()[7],
            "a weight of the second branch is lost");
  });
}

}  // namespace

int main() try {
  const sw::LayerChecks checks{.ranks = {1, 2, 3, 8}, .gradients = 5};
  sw::check_layer(Gated<6, 5>{}, in, checks).require();
  sw::check_layer(Net{}, in, checks).require();

  const std::filesystem::path file = "gated.safetensors";
  std::array<double, 3> alone{}, together{};
  train(file, 1, alone);
  train(file, 3, together);
  std::filesystem::remove(file);
  for (std::size_t i = 0; i < 3; ++i)
    require(std::abs(alone[i] - together[i]) < 1e-12, "three ranks lose otherwise than one");
  require(alone[2] < alone[0], "it does not learn");

  const auto drawn =
      sw::describe_graph<sw::Ends<sw::Invariant, sw::Invariant>, sw::Train>(Net{}, {0, 2}, in);
  require(drawn.find("0.2 Product") != std::string::npos, "its merge is not drawn");
  try {
    Net{}.output_shape({{sw::Axis::batch, 3}, {sw::Axis::feature, 7}});
    return 1;
  } catch (const sw::shape_error& e) {
    std::printf("%s\n", e.what());
  }
  return 0;
} catch (const sw::error& e) {
  std::printf("%s\n", e.what());
  return 1;
}
