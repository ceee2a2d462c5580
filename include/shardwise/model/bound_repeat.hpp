#pragma once
// A Repeat that runs.

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound.hpp"
#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/repeat.hpp"

namespace shardwise::detail {

/// The first block has a type of its own if the model needs no gradient of its input.
template <class L, class S, class E>
requires detail::RepeatsBlock<L>
class Bound<L, S, E> {
  using Ctx = typename S::context;
  using T = typename Ctx::dtype;
  using Stream = input_layout_at_t<L, E>;
  using Block = typename L::repeated_block;
  using BlockEnds = typename L::template block_ends<Stream>;
  using BlockOutput = output_layout_at_t<Block, BlockEnds>;

  using First = Bound<Block, Setting<Ctx, use_of<S::trains, S::input_gradient>>, BlockEnds>;
  using Later = Bound<Block, Setting<Ctx, use_behind<L, S, E>>, BlockEnds>;

 public:
  using parameter_types = decltype(typename First::parameter_types{} |
                                   typename Later::parameter_types{});

  Bound(const L& repeat, const Shape& in, Binder<Ctx>& binder)
      : repeat_(repeat),
        first_(at_block(binder.run, 0, [&] { return First(repeat.block(), in, binder); })) {
    repeat_.output_shape(in);
    for (std::size_t i = 1; i < repeat_.times(); ++i) {
      at_block(binder.run, i, [&] { later_.emplace_back(repeat.block(), in, binder); });
    }
  }

  Value<T, Stream> forward(Run<Ctx>& run, Value<T, typename E::offered>&& offered) {
    Value<T, Stream> x = converted<Stream>(run, std::move(offered));
    if (!run.pass.flight->batch.has(Axis::height)) repeat_.output_shape(x.global());
    x = at_block(run, 0, [&] { return converted<Stream>(run, first_.forward(run, std::move(x))); });
    for (std::size_t i = 1; i < repeat_.times(); ++i) {
      x = at_block(
          run, i, [&] { return converted<Stream>(run, later_[i - 1].forward(run, std::move(x))); });
    }
    return x;
  }

  input_gradient_t<T, E, S> backward(Run<Ctx>& run, Value<T, dual_t<Stream>>&& dy) {
    for (std::size_t i = repeat_.times(); i-- > 1;) {
      dy = at_block(run, i, [&] {
        return later_[i - 1].backward(run, converted<dual_t<BlockOutput>>(run, std::move(dy)));
      });
    }
    auto dx = at_block(run, 0, [&] {
      return first_.backward(run, converted<dual_t<BlockOutput>>(run, std::move(dy)));
    });
    if constexpr (S::input_gradient) {
      return converted<dual_t<typename E::offered>>(run, std::move(dx));
    } else {
      return dx;
    }
  }

  template <class Visitor>
  void visit_buffers(const std::string& path, Visitor&& f) {
    first_.visit_buffers(detail::path_of_part(path, L::first_number), f);
    for (std::size_t i = 1; i < repeat_.times(); ++i) {
      later_[i - 1].visit_buffers(detail::path_of_part(path, L::first_number + i), f);
    }
  }

 private:
  template <class Call>
  static auto at_block(Run<Ctx>& run, std::size_t i, Call&& call) {
    const detail::InNumberedPart<Ctx> here(
        run, {L::first_number + i, name_of<Block>, detail::IsComposition<Block>, true});
    return call();
  }

  [[no_unique_address]] L repeat_;
  First first_;
  std::deque<Later> later_;
};

}  // namespace shardwise::detail
