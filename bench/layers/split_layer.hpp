#pragma once
// A convolution as the only layer of a model, on one rank or split over ranks.

#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "kernels/convolution_oracle.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"
#include "support/require_equal.hpp"

namespace bench {

namespace sw = shardwise;

/// How a layer is split, and the layouts at its ends: those that neighbouring layers would have, so
/// that only what the split itself needs is sent.
template <class S, sw::Layout In, sw::Layout Out>
struct SplitWay {
  using split = S;
  using in = In;
  using out = Out;
};

/// The layer on some ranks, with the weights and inputs of `whole`, all of them.
template <class W, class Layer, class T, class C>
struct SplitLayer {
  using Model = sw::Model<Layer, sw::Context<T, sw::OneDnn, C>,
                          sw::Ends<typename W::in, typename W::out>, sw::TrainWithInputGradient>;

  SplitLayer(C& ranks, const Layer& layer, const sw::Shape& inputs,
             const by_hand::ConvolutionOf<T>& whole)
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

  /// Throws unless forward, and in training a step, gives what is exact for all of it.
  void require_results(C& ranks, const ConvolutionOracle<T>& exact) {
    const ConvolutionShard& terms = exact.shard;
    sw::Tensor<T, typename W::out> y(out, place);
    slice(ranks, exact.y, y);
    const auto require_y = [&](const char* what, const T* got) {
      require_equal(what, y.data(), got, y.size(), terms.y_terms());
    };
    require_y("y for use", model.evaluate(x_view()).data());
    if (!exact.training) return;
    sw::Tensor<T, typename W::in> dx(in, place);
    slice(ranks, exact.dx, dx);
    require_y("y", model.forward(x_view()).data());
    require_equal("dx", dx.data(), model.backward(dy_view()).data(), dx.size(), terms.dx_terms());
    model.settle_gradients();
    const auto dw = model.gather_gradient("weight"), db = model.gather_gradient("bias");
    require_equal("dw", exact.dw.data(), dw.data(), exact.dw.size(), terms.dw_terms());
    require_equal("db", exact.db.data(), db.data(), exact.db.size(), terms.dw_terms());
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

}  // namespace bench
