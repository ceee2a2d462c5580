#pragma once
// A Recompute that runs.

#include <cstddef>
#include <string>
#include <utility>

#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/recompute.hpp"

namespace shardwise::detail {

/// The first forward in training saves the input, and nothing of the block. backward runs the block
/// forward again, which then saves, and backward at once.
template <class L, class S, class E>
requires detail::Recomputes<L>
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using In = input_layout_at_t<L, E>;
  using Input = Value<input_element_t<L, T>, In>;
  using Output = Value<T, output_layout_at_t<L, E>>;
  using Block = Bound<typename L::recomputed, S, Ends<In, typename E::wanted>>;

 public:
  using parameter_types = typename Block::parameter_types;

  Bound(const L& layer, const Shape& in, Binder<Ctx>& binder)
      : saved_(binder.saved.add()),
        block_(bind(layer, in, binder)),
        saved_end_(binder.saved.size()) {}

  Output forward(Run<Ctx>& run, input_values_t<L, T, typename E::offered>&& offered) {
    Input x = converted<In>(run, std::move(offered));
    if (!goes_backward<L, S, E> || !run.pass.saves()) return block_.forward(run, std::move(x));
    saved(run).save(x);
    const detail::SetMeanwhile later(run.pass.goes_forward_again, true);
    Output y = block_.forward(run, std::move(x));
    run.pass.flight->parts.forget(saved_ + 1, saved_end_);
    return y;
  }

  input_gradients_t<T, E, S> backward(Run<Ctx>& run,
                                      Value<T, dual_t<output_layout_at_t<L, E>>>&& dy) {
    const detail::SetMeanwhile nothing_left(run.pass.leaves_parameters, false);
    {
      const detail::SetMeanwhile again(run.pass.is_again, true);
      block_.forward(run, saved(run).template take<Input>());
    }
    auto dx = block_.backward(run, std::move(dy));
    if constexpr (S::input_gradient) {
      return converted<dual_t<typename E::offered>>(run, std::move(dx));
    } else {
      return dx;
    }
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    block_.visit_buffers(path, f);
  }

 private:
  Block bind(const L& layer, const Shape& in, Binder<Ctx>& binder) const {
    const detail::SetMeanwhile inside(binder.recomputed, saved_);
    return Block(layer, in, binder);
  }
  detail::SavedValue& saved(Run<Ctx>& run) const { return run.pass.flight->parts[saved_].saved; }

  std::size_t saved_;  // the number of what it saves, in each flight; behind it is the block's
  Block block_;
  std::size_t saved_end_;  // behind the block's
};

}  // namespace shardwise::detail
