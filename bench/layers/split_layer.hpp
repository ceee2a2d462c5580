#pragma once
// A layer as the only one of a model, on one rank or split over ranks; and against free halves.

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/interleaved.hpp"
#include "support/moves.hpp"
#include "support/require_equal.hpp"
#include "support/together.hpp"

namespace bench {

namespace sw = shardwise;
using Ranks = sw::ThreadCommunicator;

/// How a layer is split, and the layouts at its ends: those that neighbouring layers would have, so
/// that only what the split itself needs is sent.
template <class S, sw::Layout In, sw::Layout Out>
struct SplitWay {
  using split = S;
  using in = In;
  using out = Out;
};

///@{
/// By what goes along the axis A, by the batch, and not at all.
template <sw::Axis A>
using ByOutput = SplitWay<sw::split::output, sw::Invariant, sw::Sharded<A>>;
template <sw::Axis A>
using ByInput = SplitWay<sw::split::input, sw::Sharded<A>, sw::Invariant>;
using ByBatch =
    SplitWay<sw::split::none, sw::Sharded<sw::Axis::batch>, sw::Sharded<sw::Axis::batch>>;
using NotSplit = SplitWay<sw::split::none, sw::Invariant, sw::Invariant>;
///@}

/// The most products that one element of y, dx and dw is a sum of; db has as many summands as dw.
struct Terms {
  std::size_t y, dx, dw;
};

/// The layer on some ranks, with the weights and inputs of `whole`, all of them.
template <class W, class Layer, class T = float, class C = Ranks>
struct SplitLayer {
  using Model = sw::Model<Layer, sw::Context<T, sw::OneDnn, C>,
                          sw::Ends<typename W::in, typename W::out>, sw::TrainWithInputGradient>;

  template <class Whole>
  SplitLayer(C& ranks, const Layer& layer, const sw::Shape& inputs, const Whole& whole)
      : place(sw::place_of(ranks)),
        in(inputs),
        model(layer, ranks, sw::Seed{1}, in),
        out(model.layers().output_shape(in)),
        x(in, place),
        dy(out, place) {
    slice(ranks, whole.x, x);
    slice(ranks, whole.dy, dy);
    const auto specs = model.layers().parameter_specs(in);
    model.set("weight", {whole.w.data(), specs[0].shape, place});
    model.set("bias", {whole.bias.data(), specs[1].shape, place});
  }

  /// This rank's part of a whole tensor.
  template <sw::Layout L>
  void slice(C& ranks, const std::vector<T>& from, sw::Tensor<T, L>& to) {
    const sw::View<const T, sw::Invariant> view(from.data(), to.global(), place);
    sw::redistribute(ranks, pool, view, to.view());
  }

  void forward() { model.evaluate(x_view()); }
  void train() {
    model.forward(x_view());
    model.backward(dy_view());
    model.settle_gradients();
    model.next_step();
  }

  /// Throws unless forward, and with `training` a step, gives the y, dx, dw and db that are `exact`
  /// for all of it.
  template <class Exact>
  void require_results(C& ranks, const Exact& exact, const Terms& terms, bool training) {
    sw::Tensor<T, typename W::out> y(out, place);
    slice(ranks, exact.y, y);
    const auto require_y = [&](const char* what, const T* got) {
      require_equal(what, y.data(), got, y.size(), terms.y);
    };
    require_y("y for use", model.evaluate(x_view()).data());
    if (!training) return;
    sw::Tensor<T, typename W::in> dx(in, place);
    slice(ranks, exact.dx, dx);
    require_y("y", model.forward(x_view()).data());
    require_equal("dx", dx.data(), model.backward(dy_view()).data(), dx.size(), terms.dx);
    model.settle_gradients();
    const auto dw = model.gather_gradient("weight"), db = model.gather_gradient("bias");
    require_equal("dw", exact.dw.data(), dw.data(), exact.dw.size(), terms.dw);
    require_equal("db", exact.db.data(), db.data(), exact.db.size(), terms.dw);
    model.next_step();
  }

  sw::View<const T, typename W::in> x_view() const { return x.view(); }
  sw::View<const T, sw::dual_t<typename W::out>> dy_view() const { return {dy.data(), out, place}; }

  sw::Place place;
  sw::Shape in;
  Model model;
  sw::Shape out;
  sw::Tensor<T, typename W::in> x;
  sw::Tensor<T, sw::dual_t<typename W::out>> dy;
  sw::Pool pool;
};

/// The sums over ranks of a layer, and nothing else: of y by input, of dx by output, else of dw.
template <class W, class Layer>
Moves<float, Ranks> sums_of(Ranks& ranks, const SplitLayer<W, Layer>& layer, bool training) {
  constexpr bool by_input = std::same_as<typename W::split, sw::split::input>;
  constexpr bool by_output = std::same_as<typename W::split, sw::split::output>;
  Moves<float, Ranks> moves(ranks);
  if (by_input) moves.sum(layer.out);
  if (by_output && training) moves.sum(layer.in);
  if (!by_input && !by_output && training)
    moves.sum(layer.model.layers().parameter_specs(layer.in)[0].shape);
  return moves;
}

/// The layer on one rank; `halves`, which send nothing: the most that two cores can give; and the
/// layer on two ranks, with the shares of its time that `products` and what it sends take alone.
/// All in turns, from a barrier to a barrier. A sample has several calls, of which only the first
/// one finds cold caches.
template <class Layer>
std::vector<Timing> compare(Ranks& ranks, Layer& one, const std::vector<Candidate>& halves,
                            Layer& two, const std::function<void()>& products,
                            const std::function<void()>& sent, bool training, int rounds) {
  const auto run = [training](auto& way) { training ? way.train() : way.forward(); };
  std::vector<std::string> names{"one rank"};
  std::vector<Run> runs{[&] {
    if (ranks.rank() == 0) run(one);
  }};
  for (const Candidate& half : halves) {
    names.push_back(half.name);
    runs.push_back(half.run);
  }
  names.push_back("two ranks");
  runs.insert(runs.end(), {[&] { run(two); }, products, sent});

  auto seconds = in_turns(ranks, runs, rounds, 2e-2);
  const double of_sent = Spread::of(seconds.back()).median;
  const double of_products = Spread::of(seconds[names.size()]).median;
  seconds.resize(names.size());
  auto timings = timings_of(names, seconds);
  Timing& ours = timings.back();
  ours.also = {{"share of products", of_products / ours.seconds.median},
               {"share of what is sent", of_sent / ours.seconds.median}};
  return timings;
}

}  // namespace bench
