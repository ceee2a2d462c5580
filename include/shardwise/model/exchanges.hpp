#pragma once
// The exchanges of a layer or loss, for its code that runs.

#include <array>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>

#include "shardwise/layers/layer.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/other_axes.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// Runs the exchanges of a std::tuple<Exchange<...>, ...>, or ExchangesOnMesh. The layer does not
/// see the communicator.
template <class Context, class Exchanges>
class Exchanger {
  using AlongTensor = exchanges_along_tensor_t<Exchanges>;
  template <std::size_t Index>
  using exchange_type = std::tuple_element_t<Index, AlongTensor>;
  template <std::size_t Index>
  using R = typename exchange_type<Index>::redistribution;
  template <std::size_t Index>
  using A =
      typename exchange_type<Index>::template value_type<accumulate_t<typename Context::dtype>>;

 public:
  static constexpr std::size_t count = std::tuple_size_v<AlongTensor>;  ///< of exchanges
  using Shapes = std::array<Shape, count>;                              ///< global, one for each

  /// `shapes` are the global shapes of the values in the exchanges; a layer was bound to `input`.
  Exchanger(Run<Context>& run, const Shapes& shapes, const Shape* input = nullptr)
      : run_(run), shapes_(shapes), input_(input) {}

  /// Memory for the values of exchange Index: fill `writable()`, then call `exchange<Index>`.
  template <std::size_t Index>
  Value<A<Index>, typename R<Index>::from> exchange_input() {
    return {run_.pool, shapes_[Index], run_.place()};
  }

  /// Runs exchange Index. Every rank runs all exchanges in the order of the list.
  template <std::size_t Index>
  Value<A<Index>, typename R<Index>::to> exchange(Value<A<Index>, typename R<Index>::from> in) {
    using C = typename Context::communicator;
    if constexpr (exchange_type<Index>::reduction == Reduction::sum || moves_nothing<R<Index>, C>) {
      return over_slices<Index, false>(converted<typename R<Index>::to>(run_, std::move(in)));
    } else {
      const Observation here(run_.observer, [&] {
        return redistributing<R<Index>>(shapes_[Index], dtype_v<A<Index>>);
      });
      Value<A<Index>, typename R<Index>::to> out(run_.pool, shapes_[Index], run_.place());
      redistribute(run_.backend, run_.ranks, run_.pool, in.view(), out.writable(),
                   exchange_type<Index>::reduction);
      return over_slices<Index, false>(std::move(out));
    }
  }

  /// Memory for the values of the adjoint of exchange Index, in backward.
  template <std::size_t Index>
  Value<A<Index>, typename adjoint_t<R<Index>>::from> adjoint_input() {
    return {run_.pool, shapes_[Index], run_.place()};
  }

  /// Runs the adjoint of exchange Index. Every rank runs all adjoints in the reverse order.
  template <std::size_t Index>
  Value<A<Index>, typename adjoint_t<R<Index>>::to> exchange_adjoint(
      Value<A<Index>, typename adjoint_t<R<Index>>::from> in) {
    static_assert(has_adjoint<exchange_type<Index>>,
                  "an exchange by maximum or minimum has no adjoint.");
    return over_slices<Index, true>(
        converted<typename adjoint_t<R<Index>>::to>(run_, std::move(in)));
  }

 private:
  /// The same values, combined over the ranks that have other samples, tokens or rows if the
  /// exchange says so.
  template <std::size_t Index, bool Back, class V>
  V over_slices(V values) {
    constexpr CombinedOver combined = combined_over<Exchanges, Index, Back>;
    if constexpr (combined.any()) {
      const MarkedGiven without_slice(run_.step.given_to_all);
      const Axis cut = axis_over_context(sliced_axes(run_, *input_));
      for (const MeshAxis axis : sample_axes)
        if (combined.has(axis_cut_along(axis, cut)))
          reduce_along(
              run_, axis, [] { return std::string("numbers over slices"); },
              values.writable().span(), exchange_type<Index>::reduction);
    }
    return values;
  }

  Run<Context>& run_;
  Shapes shapes_;
  const Shape* input_;
};

}  // namespace shardwise::detail
