#pragma once
// The exchanges of a layer or loss, for its code that runs.

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "shardwise/layers/layer.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// Runs the exchanges of a std::tuple<Exchange<...>, ...>. The layer does not see the communicator.
template <class Context, class Exchanges>
class Exchanger {
  template <std::size_t I>
  using exchange_type = std::tuple_element_t<I, Exchanges>;
  template <std::size_t I>
  using R = typename exchange_type<I>::redistribution;
  template <std::size_t I>
  using A = typename exchange_type<I>::template value_type<accumulate_t<typename Context::dtype>>;

 public:
  static constexpr std::size_t count = std::tuple_size_v<Exchanges>;  ///< of exchanges
  using Shapes = std::array<Shape, count>;                            ///< global, one for each

  /// `shapes` are the global shapes of the values in the exchanges.
  Exchanger(Run<Context>& run, const Shapes& shapes) : run_(run), shapes_(shapes) {}

  /// Memory for the values of exchange I: fill `writable()`, then call `exchange<I>`.
  template <std::size_t I>
  Value<A<I>, typename R<I>::from> exchange_input() {
    return {run_.pool, shapes_[I], run_.place()};
  }

  /// Runs exchange I. Every rank runs all exchanges in the order of the list.
  template <std::size_t I>
  Value<A<I>, typename R<I>::to> exchange(Value<A<I>, typename R<I>::from> in) {
    using C = typename Context::communicator;
    if constexpr (exchange_type<I>::reduction == Reduction::sum || moves_nothing<R<I>, C>) {
      return converted<typename R<I>::to>(run_, std::move(in));
    } else {
      const Observation here(
          run_.observer, [&] { return detail::redistributing<R<I>>(shapes_[I], dtype_v<A<I>>); });
      Value<A<I>, typename R<I>::to> out(run_.pool, shapes_[I], run_.place());
      redistribute(run_.backend, run_.ranks, run_.pool, in.view(), out.writable(),
                   exchange_type<I>::reduction);
      return out;
    }
  }

  /// Memory for the values of the adjoint of exchange I, in backward.
  template <std::size_t I>
  Value<A<I>, typename adjoint_t<R<I>>::from> adjoint_input() {
    return {run_.pool, shapes_[I], run_.place()};
  }

  /// Runs the adjoint of exchange I. Every rank runs all adjoints in the reverse order.
  template <std::size_t I>
  Value<A<I>, typename adjoint_t<R<I>>::to> exchange_adjoint(
      Value<A<I>, typename adjoint_t<R<I>>::from> in) {
    static_assert(exchange_type<I>::reduction == Reduction::sum,
                  "an exchange by maximum or minimum has no adjoint.");
    return converted<typename adjoint_t<R<I>>::to>(run_, std::move(in));
  }

 private:
  Run<Context>& run_;
  Shapes shapes_;
};

}  // namespace shardwise
