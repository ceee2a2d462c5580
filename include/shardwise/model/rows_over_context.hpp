#pragma once
// Layers on a mesh whose ranks along `context` have different tokens of a sample or different rows
// of an image: which of them run there, and how rows come to a layer.

#include <concepts>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/rows_begin.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/other_axes.hpp"
#include "shardwise/model/over_context.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

///@{
/// Whether L takes rows; whether it may need others than those of the rank's block, or give others.
template <class L>
concept TakesRows =
    RuleOfRows<L, Axis::height>::takes_rows || RuleOfRows<L, Axis::sequence>::takes_rows;
template <class L>
concept MovesRows =
    RuleOfRows<L, Axis::height>::moves_taken || RuleOfRows<L, Axis::sequence>::moves_taken;
template <class L>
concept GivesRows =
    RuleOfRows<L, Axis::height>::moves_given || RuleOfRows<L, Axis::sequence>::moves_given;
///@}

/// Calls f.operator()<Rule>() if L takes rows of inputs that `cut` cuts. Returns whether it does.
template <class L, class F>
constexpr bool if_takes_rows([[maybe_unused]] Axis cut, F&& f) {
  const auto by = [&]<class Rule>() {
    if constexpr (Rule::takes_rows)
      if (cut == Rule::cut) f.template operator()<Rule>();
    return Rule::takes_rows && cut == Rule::cut;
  };
  return by.template operator()<RuleOfRows<L, Axis::height>>() ||
         by.template operator()<RuleOfRows<L, Axis::sequence>>();
}

/// Whether of an input, whose rows become tokens, the blocks of rows over so many ranks are blocks
/// of tokens, so that no rank needs whole samples: of the axes of space, rows are then the
/// outermost one, and ranks have as many of them or a row is one token.
template <class Rule>
constexpr bool keeps_blocks([[maybe_unused]] const Shape& in, [[maybe_unused]] int ranks) {
  if constexpr (Rule::makes_tokens) {
    const std::size_t cut = in.find(Rule::cut);
    std::size_t outside = 1;
    for (std::size_t i = 0; i < cut; ++i)
      if (in[i].axis != Axis::batch && in[i].axis != Axis::channel) outside *= in[i].extent();
    return outside == 1 && (in[cut].extent() % static_cast<std::size_t>(ranks) == 0 ||
                            in.elements(cut + 1, in.rank()) == 1);
  }
  return false;
}

/// Calls f.operator()<R>() for the R that brings rows over `context` to L, for an input of the
/// shape `in` over all ranks, if anything moves.
template <class L, class F>
constexpr void for_rows_taken(const Shape& in, int ranks, F&& f) {
  if_takes_rows<L>(axis_over_context(in), [&]<class Rule>() {
    if constexpr (Rule::moves_taken)
      if (!keeps_blocks<Rule>(in, ranks))
        f.template operator()<Redistribute<Sharded<Rule::cut>, typename Rule::taken>>();
  });
}

/// The same for the R that makes of what L gives, a tensor of the shape `out` over all ranks, the
/// block of each rank.
template <class L, class F>
constexpr void for_rows_given(const Shape& in, const Shape& out, int ranks, F&& f) {
  const auto to = [&]<class Given, Axis Own>() {
    if constexpr (!std::same_as<Given, Sharded<Own>>)
      if (axis_over_context(out) == Own) f.template operator()<Redistribute<Given, Sharded<Own>>>();
  };
  if_takes_rows<L>(axis_over_context(in), [&]<class Rule>() {
    if constexpr (Rule::moves_given) {
      if (keeps_blocks<Rule>(in, ranks)) return;
      to.template operator()<typename Rule::given, Axis::batch>();
      to.template operator()<typename Rule::given, Axis::sequence>();
      to.template operator()<typename Rule::given, Axis::height>();
    }
  });
}

[[noreturn, gnu::cold]] void refuse_tokens(const mesh& sizes);

[[noreturn, gnu::cold]] void refuse_rows(const mesh& sizes, const Shape& whole, const char* why);

[[noreturn, gnu::cold]] void refuse_whole_samples(const mesh& sizes, const Shape& in,
                                                  const Shape& out);

/// For tensors of which the model does not know how many rows or tokens they have.
inline constexpr const char* unknown_rows =
    "their number is not known. Give the Model the shape of its input with it";

inline constexpr const char* other_rows =
    "it has another number of them than the model was bound to: it must have as many as the shape "
    "that the Model was given";

inline constexpr const char* reads_other_rows =
    "the layer may read several of them. Give those ranks to another axis; a layer says by its "
    "rule for Sharded<Axis::height> that it takes these, or a halo of them";

/// The rows or tokens of a whole tensor that the rank has along `context`.
inline Interval rows_here(const Shape& whole, const Place& context) {
  return block_of(extent_of(whole, axis_over_context(whole)), context);
}

/// throws   argument_error for a layer or merge that does not run on such rows, or does not give
///          what its rule says; Ins are the layouts of its inputs
template <class Rule, PlainLayout... Ins>
void require_runs_on_rows(const mesh& sizes, const Shape& in, const Shape& out) {
  if constexpr (!std::same_as<typename Rule::taken, Sharded<Axis::sequence>>) {
    if ((layout_value<Ins>.cuts(Rule::cut) || ...))
      refuse_rows(sizes, in,
                  "they are split along tensor, too. Split channels, width or features along "
                  "tensor, or give context one rank");
    if (!in[in.find(Rule::cut)].known()) refuse_rows(sizes, in, unknown_rows);
  }
  if (Rule::takes_samples && (layout_value<Ins>.cuts(Axis::batch) || ...))
    refuse_rows(sizes, in,
                "the layer takes whole samples, other ones on each rank, and those are split "
                "along tensor. Split them behind the layer");
  const bool keeps_cut = axis_over_context(out) == Rule::cut;
  const bool makes_other_rows = std::same_as<typename Rule::taken, Sharded<Axis::height>> &&
                                keeps_cut && extent_of(in, Rule::cut) != extent_of(out, Rule::cut);
  if (!Rule::moves_given && (!keeps_cut || makes_other_rows))
    refuse_rows(sizes, in, reads_other_rows);
}

/// throws   argument_error for a layer or merge that may need tokens or rows of other ranks, or
///          makes them of whole samples; Ins are the layouts of its inputs, `in` is the shape of
///          the first one
template <class L, PlainLayout... Ins, class Context>
void require_runs_over_context([[maybe_unused]] Run<Context>& run, [[maybe_unused]] const Shape& in,
                               [[maybe_unused]] const Shape& out) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    static_assert(
        computes_sample_by_sample<L>,
        "On a mesh ranks along `data` have different samples, and L computes with several: "
        "its rule for Sharded<Axis::batch> is another than to keep it, or has an exchange that is "
        "no all-reduce. Give the model ranks of one axis. A layer with a split weight says in "
        "`along_other_axes` what it takes along other axes.");
    const mesh& sizes = run.all_ranks.sizes();
    constexpr bool moves_rows = MovesRows<L> || GivesRows<L>;
    constexpr bool is_merge = sizeof...(Ins) > 1;  // of whose first operand nothing moves
    const auto check = [&]<class Rule>() { require_runs_on_rows<Rule, Ins...>(sizes, in, out); };
    if (sizes.context == 1) return;
    const Axis cut = axis_over_context(in), given = axis_over_context(out);
    const bool has_as_many =
        given == cut && in.has(cut) && out.has(cut) && extent_of(in, cut) == extent_of(out, cut);
    if (!(is_merge && moves_rows) && if_takes_rows<L>(cut, check)) {
      // It runs there.
    } else if (!in.has(Axis::batch) || cut == Axis::sequence) {
      const bool is_unknown = in.rank() == 0;
      const bool keeps_tokens = cut != Axis::sequence || has_as_many;
      if (computes_token_by_token<L> && (is_unknown ? !moves_rows : keeps_tokens)) return;
      if (TakesRows<L> && is_unknown) refuse_rows(sizes, in, unknown_rows);
      refuse_tokens(sizes);
    } else if (cut == Axis::height) {
      refuse_rows(sizes, in, reads_other_rows);
    } else if (given != Axis::batch) {
      refuse_whole_samples(sizes, in, out);
    }
    if (given == Axis::sequence && !has_as_many) {
      if (extent_of(out, given) == dynamic) refuse_rows(sizes, out, unknown_rows);
      run.counts_tokens_as_bound = true;
    }
  }
}

/// Calls f.operator()<Rule>(place) if ranks along `context` have different rows of the input of L,
/// which is bound to `bound`; the rank has this place there. Returns whether they have.
template <class L, class Context, class F>
bool if_rows_are_cut([[maybe_unused]] const Run<Context>& run, [[maybe_unused]] const Shape& bound,
                     [[maybe_unused]] F&& f) {
  if constexpr (MeshCommunicator<typename Context::communicator> && TakesRows<L>) {
    const Place& along = run.all_ranks.place()[MeshAxis::context];
    return along.size > 1 && if_takes_rows<L>(axis_over_context(bound), [&]<class Rule>() {
             f.template operator()<Rule>(along);
           });
  } else {
    return false;
  }
}

/// How what L takes lies over `context`, if its rule says it; Invariant for the rank's slice.
template <class L, class Context>
LayoutValue taken_over_context(const Run<Context>& run, const Shape& bound) {
  LayoutValue taken;
  if_rows_are_cut<L>(run, bound, [&]<class Rule>(const Place& along) {
    if (!keeps_blocks<Rule>(bound, along.size)) taken = layout_value<typename Rule::taken>;
  });
  return taken;
}

/// Where the rows of the rank begin in what L takes and gives: tensors of these shapes.
template <class L, class Context>
RowsBegin rows_begin(const Run<Context>& run, const Shape& bound, const Shape& out) {
  RowsBegin begin;
  if_rows_are_cut<L>(run, bound, [&]<class Rule>(const Place& along) {
    if constexpr (!Rule::takes_samples)
      begin.in = local_block<typename Rule::taken>(bound, along).offset;
    if (axis_over_context(out) != Axis::batch) begin.out = rows_here(out, along).offset;
  });
  return begin;
}

/// The shape of what L gives for its input of shape `in`, which has the rows that L reads.
template <class L, class Context>
Shape output_shape_here(const Run<Context>& run, const L& layer, const Shape& in,
                        const Shape& bound) {
  Shape out;
  const bool is_cut = if_rows_are_cut<L>(run, bound, [&]<class Rule>(const Place& along) {
    out = layer.output_shape(with_extent_of(in, Rule::cut, extent_of(bound, Rule::cut)));
    const Axis given = axis_over_context(out);
    if (given != Axis::batch && (!Rule::moves_given || keeps_blocks<Rule>(bound, along.size)))
      out = with_extent_of(out, given, rows_here(out, along).size);
  });
  return is_cut ? out : layer.output_shape(in);
}

/// Gives the input of L the rows that L reads in place of those of the rank's block; with Back, the
/// way back of its gradient.
template <class L, bool Back, class Context, class T, PlainLayout In>
void take_rows([[maybe_unused]] Run<Context>& run, [[maybe_unused]] Value<T, In>& value,
               [[maybe_unused]] const Shape& bound) {
  if constexpr (MeshCommunicator<typename Context::communicator> && MovesRows<L>) {
    const int ranks = run.all_ranks.sizes().context;
    if (ranks > 1)
      for_rows_taken<L>(bound, ranks, [&]<class R>() {
        value = moved_over_context<std::conditional_t<Back, adjoint_t<R>, R>>(
            run, std::move(value), extent_of(bound, axis_over_context(bound)));
      });
  }
}

/// Makes what L gives the rank's block of rows; with Back, the way back of its gradient.
template <class L, bool Back, class Context, class T, PlainLayout Out>
void give_rows(Run<Context>& run, Value<T, Out>& value, const L& layer, const Shape& bound) {
  const int ranks = run.all_ranks.sizes().context;
  if (ranks == 1) return;
  const Shape out = layer.output_shape(bound);
  for_rows_given<L>(bound, out, ranks, [&]<class R>() {
    value = moved_over_context<std::conditional_t<Back, adjoint_t<R>, R>>(
        run, std::move(value), extent_of(out, axis_over_context(out)));
  });
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_tokens(const mesh& sizes) {
  throw argument_error({"the layer may read several tokens of a sample, and on the mesh ", sizes,
                        " ranks along context have different ones. Give those ranks to another "
                        "axis; a layer whose result for a token depends on that token alone says "
                        "so by its rule for Sharded<Axis::sequence>: it keeps that layout"});
}

SHARDWISE_INLINE void refuse_rows(const mesh& sizes, const Shape& whole, const char* why) {
  throw argument_error(
      {"of a tensor ", whole, ", on the mesh ", sizes, " ranks along context have different ",
       whole.has(Axis::sequence) ? "tokens (sequence)" : "rows (height)", ", but ", why});
}

SHARDWISE_INLINE void refuse_whole_samples(const mesh& sizes, const Shape& in, const Shape& out) {
  throw argument_error(
      {"the layer gives a tensor ", out, " for ", in, ", of which, on the mesh ", sizes,
       ", ranks along context have different samples, but layers behind "
       "it take ",
       out, " cut by ", name(axis_over_context(out)), ". Give those ranks to another axis"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
