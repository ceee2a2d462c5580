// The linear layer 1024 -> 4096 split over two thread ranks along each axis, as the layer of a
// model, float.
//
//     bench_layers_linear [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// For each: the layer on one rank; oneDNN called by hand on the two shards at once with nothing
// sent, the most that two cores can give; and the layer on two ranks, with the shares of its time
// that its products and what it sends take alone. All in turns, from a barrier to a barrier.
// Layouts at the ends are those that neighbouring layers would have, so that only what the split
// itself needs is sent: output sums dx, input sums y, batch sums dw. Forward keeps its weights; in
// training they change in every step.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kernels/linear_by_hand.hpp"
#include "kernels/linear_layer.hpp"
#include "layers/split_layer.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"

namespace {

namespace sw = shardwise;
using bench::LinearProduct;
using bench::LinearShape;
using bench::Ranks;
using Part = bench::LinearLayer<sw::OneDnn, float>;
using ByOutputs = bench::ByOutput<sw::Axis::feature>;
using ByInputs = bench::ByInput<sw::Axis::feature>;

constexpr LinearProduct steps[] = {LinearProduct::forward, LinearProduct::backward_weight,
                                   LinearProduct::backward_input};

template <class W>
LinearShape shard_of(LinearShape shape, sw::Place place) {
  const auto share = [&](std::size_t& units) {
    units = sw::block_of({sw::Axis::feature, units}, place).size;
  };
  if constexpr (std::same_as<W, ByOutputs>) share(shape.out);
  if constexpr (std::same_as<W, ByInputs>) share(shape.in);
  if constexpr (std::same_as<W, bench::ByBatch>) share(shape.rows);
  return shape;
}

/// A shard's forward with packed weights, or its step, each product in the way that is the best one
/// at most shapes.
std::function<void()> by_hand_of(by_hand::Library& library, Part& part, bool training) {
  const by_hand::Linear<float> ways(library, part);
  const auto checked = [&](LinearProduct product, const bench::Candidate& way) {
    part.require(product, {way});
    return way.run;
  };
  if (!training)
    return checked(LinearProduct::forward, ways.with_packed_weight(LinearProduct::forward).front());
  std::vector<std::function<void()>> all;
  for (const LinearProduct step : steps)
    all.push_back(checked(step, ways.with_plain_weight(step).front()));
  return [all] {
    for (const auto& step : all) step();
  };
}

template <class W>
std::vector<bench::Timing> measure(Ranks& ranks, const LinearShape& shape, bool training,
                                   int rounds) {
  using Layer = sw::Linear<typename W::split, sw::dynamic, sw::dynamic>;
  const sw::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  by_hand::Library library;
  bench::LinearLayer<sw::Reference, float> whole(shape, sw::Activation::none);
  Part part(shard_of<W>(shape, sw::place_of(ranks)), sw::Activation::none);
  const Layer layer(shape.in, shape.out);
  const sw::Shape in{{sw::Axis::batch, shape.rows}, {sw::Axis::feature, shape.in}};
  Ranks alone = ranks.split(ranks.rank(), 0);
  bench::SplitLayer<W, Layer> one(alone, layer, in, whole), two(ranks, layer, in, whole);
  const auto sent = bench::sums_of(ranks, two, training);
  const auto half = by_hand_of(library, part, training);
  const auto products = [&] {
    if (!training) return part.run(LinearProduct::forward);
    part.run_with_changed_weight(steps[0]);
    part.run(steps[1]);
    part.run(steps[2]);
  };

  for (int use = 0; !training && use < 20; ++use)  // until weights are packed
    one.forward(), two.forward(), products();
  for (const LinearProduct step : steps)
    if (training || step == LinearProduct::forward) {
      whole.run(step);
      part.require(step, {{"products", products}});
    }
  const bench::Terms terms{shape.in, shape.out, shape.rows};
  two.require_results(ranks, whole.results, terms, training);
  one.require_results(alone, whole.results, terms, training);
  return bench::compare(ranks, one, {{"two free halves, by hand", half}}, two, products, sent,
                        training, rounds);
}

template <class W>
void add(bench::Program& program, const std::string& way, const LinearShape& shape) {
  const int rounds = program.rounds();
  for (const bool training : {false, true})
    program.add(shape.name() + "/by " + way + (training ? "/forward and backward" : "/forward"),
                [=] {
                  return bench::on_threads(
                      2, [&](Ranks& ranks) { return measure<W>(ranks, shape, training, rounds); });
                });
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 9);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  for (const std::size_t rows : program.sizes<std::size_t>({16, 128, 512})) {
    const LinearShape shape{rows, 1024, 4096};
    add<ByOutputs>(program, "output", shape);
    add<ByInputs>(program, "input", shape);
    add<bench::ByBatch>(program, "batch", shape);
  }
  return program.run();
}
