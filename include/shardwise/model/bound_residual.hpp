#pragma once
// A Residual that runs.

#include <cstddef>
#include <string>
#include <utility>

#include "shardwise/model/bound.hpp"
#include "shardwise/model/bound_sequential.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/residual.hpp"

namespace shardwise {

namespace detail {

/// sum = a + b.
template <class T>
struct Added {
  const T* a;
  const T* b;
  T* sum;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    sum[i] = static_cast<T>(static_cast<A>(a[i]) + static_cast<A>(b[i]));
  }
};

/// sum + addend, in the memory of `sum` if nobody else holds it. Both are whole values of the same
/// layout, never Partial and Replicated.
template <class Context, class T, Layout L>
Value<T, L> added(Run<Context>& run, Value<T, L> sum, const Value<T, L>& addend) {
  const Observation here(run.observer, [] {
    return Work{Work::Kind::compute, [] { return std::string("the residual's sum"); }, 0, {}};
  });
  const View<const T, L> a = sum.view();
  Value<T, L> result =
      sum.may_write() ? std::move(sum) : Value<T, L>(run.pool, a.global(), run.place());
  run.backend.for_each(a.size(),
                       Added<T>{a.data(), addend.view().data(), result.writable().data()});
  if (run.finds_non_finite)
    require_finite(run.backend, run.pool, run.ranks, result.view().span(), "the residual's sum");
  return result;
}

}  // namespace detail

template <class L, class S, class E>
requires requires { typename L::residual_block; }
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using Stream = takes_t<L, E>;
  using Block = typename L::residual_block;
  using BlockEnds = Ends<Stream, Stream>;
  using BlockGives = gives_t<Block, BlockEnds>;

 public:
  Bound(const L& residual, const Shape& in, Binder<Ctx>& binder)
      : residual_(residual),
        block_(at_block([&] { return Bound<Block, S, BlockEnds>(residual.block(), in, binder); })) {
    residual.output_shape(in);
  }

  Value<T, Stream> forward(Run<Ctx>& run, Value<T, typename E::offered>&& offered) {
    const Value<T, Stream> x = converted<Stream>(run, std::move(offered));
    residual_.output_shape(x.global());
    return at_block([&] {
      return detail::added(run, converted<Stream>(run, block_.forward(run, Value<T, Stream>(x))),
                           x);
    });
  }

  input_gradient_t<T, E, S> backward(Run<Ctx>& run, Value<T, dual_t<Stream>>&& dy) {
    auto dx = at_block(
        [&] { return block_.backward(run, converted<dual_t<BlockGives>>(run, Value(dy))); });
    if constexpr (S::input_gradient) {
      Value<T, dual_t<Stream>> sum = detail::added(run, std::move(dx), dy);
      dy.release();
      return converted<dual_t<typename E::offered>>(run, std::move(sum));
    } else {
      return dx;
    }
  }

  template <class Visitor>
  void visit_parameters(Run<Ctx>& run, const std::string& path, Visitor&& f) {
    block_.visit_parameters(run, path, f);
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    block_.visit_buffers(path, f);
  }

  void forget() { block_.forget(); }

 private:
  /// Adds the block's name to the place of an error that passes; a composition has added numbers.
  template <class Call>
  static auto at_block(Call&& call) {
    try {
      return call();
    } catch (error& e) {
      if constexpr (!detail::IsComposition<Block>) e.add_place(name_of<Block>());
      throw;
    }
  }

  [[no_unique_address]] L residual_;
  Bound<Block, S, BlockEnds> block_;
};

}  // namespace shardwise
