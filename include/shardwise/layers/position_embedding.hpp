#pragma once
// A learned vector for each position of a sequence, added to its token.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/table_loops.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/token_rows.hpp"

namespace shardwise {

namespace detail {

/// The layouts of tokens to which positions are added.
template <class L>
inline constexpr bool takes_positions =
    std::same_as<L, Invariant> || std::same_as<L, Partial> || ShardedLayout<L>;

/// positions[r] is the position of row r, or the largest number if it is larger; -1 for padding.
struct PositionOfRow {
  TokenRows rows;
  Sequences sequences;
  std::int32_t* positions;

  constexpr void operator()(std::size_t r) const {
    const Sequences::Row place = sequences[rows.global(r)];
    constexpr std::size_t largest = std::numeric_limits<std::int32_t>::max();
    const std::size_t position = place.position < largest ? place.position : largest;
    positions[r] = place.is_padding() ? -1 : static_cast<std::int32_t>(position);
  }
};

/// y[r] = x[r] + table[positions[r]]; NaN for a position behind the table.
template <class T>
struct AddedPositions {
  RowsHere rows;
  const std::int32_t* positions;
  const T* table;  ///< null for zeros
  const T* x;
  T* y;

  constexpr auto operator()(std::size_t r) const {
    const std::int32_t at = positions[r];
    const bool is_zero = table == nullptr || at < 0;
    const bool is_here = !is_zero && rows.have(at);
    const T* const from = x + r * rows.columns;
    const T* const row = is_here ? table + rows.of(at) * rows.columns : from;  // any to read
    using A = accumulate_t<T>;
    const A otherwise = is_zero ? A(0) : std::numeric_limits<A>::quiet_NaN();
    return [is_here, otherwise, from, row, to = y + r * rows.columns](std::size_t i) {
      const A added = select(is_here, static_cast<A>(row[i]), otherwise);
      to[i] = static_cast<T>(static_cast<A>(from[i]) + added);
    };
  }
};

}  // namespace detail

/// y[t, :] = x[t, :] + W[position of token t, :], from a table of Positions rows and N features.
/// Positions are those of the tokens' segments, see `Segment`; nothing is added to padding. x is
/// [batch, sequence, N] or [sequence, N].
///
/// layout           L -> L               W stored -> used                     gradient owes
///                  Partial              Invariant -> Partial: rank 0 adds    nothing
///                  Invariant            Invariant                            nothing
///                  Sharded<feature>     Sharded<input>                       nothing
///                  another Sharded      Invariant -> Replicated              all-reduce
///
/// W begins as N(0, 1), as torch.nn.Embedding does.
/// saves    nothing
/// sends    nothing
/// throws   argument_error for a position that is not in the table, if the tensors are on the host;
///          on a device the row is NaN. shape_error if x does not have such axes
/// source   Gehring et al. 2017, section 3.1; Radford et al. 2019 (GPT-2)
template <std::size_t Positions, std::size_t N>
class PositionEmbedding : public Sized<Positions, N> {
 public:
  using Sized<Positions, N>::Sized;
  using Sized<Positions, N>::in;
  using Sized<Positions, N>::out;

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return PositionEmbedding<dynamic, dynamic>(in(), out()).initialized_by(rule_);
  }

  /// The same layer with other initial values.
  constexpr PositionEmbedding initialized_by(init::Rule rule) const {
    PositionEmbedding other = *this;
    other.rule_ = rule;
    return other;
  }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;
  static constexpr bool keeps_shape = true;
  static constexpr std::size_t in_features = N;

  template <Layout Wanted>
  using desired_input_layout =
      std::conditional_t<detail::takes_positions<Wanted>, Wanted, Invariant>;

  template <Layout Offered, Layout Wanted>
  using input_layout =
      std::conditional_t<detail::takes_positions<Offered>, Offered, desired_input_layout<Wanted>>;

  template <Layout In>
  using output_layout = In;

  template <Layout In>
  using parameters = std::tuple<std::conditional_t<
      std::same_as<In, Sharded<Axis::feature>>,
      ParameterUse<Sharded<Axis::input>, Sharded<Axis::input>>,
      ParameterUse<Invariant,
                   std::conditional_t<std::same_as<In, Invariant> || std::same_as<In, Partial>, In,
                                      Replicated>>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    const Dim& last = x.back();
    if (last.axis == Axis::feature && (!last.known() || last.extent() == out()) &&
        detail::sequence_position(x) + 2 == x.rank())
      return x;
    throw shape_error({"the input is a tensor ", x, ", but a PositionEmbedding adds to tokens of ",
                       out(),
                       " features: its axes must be [batch, sequence, feature] with that "
                       "extent"});
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Dim features = x.rank() > 0 ? x.back() : Dim{Axis::feature, out()};
    return std::array{
        ParameterSpec{"weight",
                      {{Axis::output, in()}, {Axis::input, features.units, features.grain}},
                      rule_,
                      {in(), out()}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    const Buffer memory = positions(frame, x);
    const auto* const at = static_cast<const std::int32_t*>(memory.data());
    if constexpr (!DeviceBackend<typename Frame::backend_type>) require_rows(frame, x, at);
    const auto [table] = frame.parameters();
    detail::for_each_in_rows(
        frame.backend(), x.rows(), x.columns(),
        detail::AddedPositions<T>{rows_of(x), at, table.data(), x.data(), y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    const Buffer memory = positions(frame, dy);
    const auto [gradient] = frame.gradients();
    detail::add_rows(frame, rows_of(dy), static_cast<const std::int32_t*>(memory.data()), dy.rows(),
                     dy.data(), gradient.data());
    if constexpr (Frame::input_gradient)
      detail::copy(frame.backend(), dy.data(), dy.size(), dx.data());
  }
  ///@}

 private:
  template <class X>
  detail::RowsHere rows_of(const X& x) const {
    return {in(), 0, in(), x.columns()};
  }

  /// The position of each row of the rank, -1 for padding.
  template <class Frame, class X>
  static Buffer positions(Frame& frame, const X& x) {
    Buffer memory = frame.take(x.rows() * sizeof(std::int32_t));
    frame.backend().for_each(
        x.rows(), detail::PositionOfRow{token_rows(frame.held_part(x)), frame.sequences(x.global()),
                                        static_cast<std::int32_t*>(memory.data())});
    return memory;
  }

  template <class Frame, class X>
  void require_rows(const Frame& frame, const X& x, const std::int32_t* positions) const {
    for (std::size_t r = 0; r < x.rows(); ++r) {
      if (positions[r] < 0 || static_cast<std::size_t>(positions[r]) < in()) continue;
      throw argument_error({"row ", token_rows(frame.held_part(x)).global(r),
                            " of the input is at position ", positions[r], ", but the table has ",
                            in(),
                            " positions, numbered from 0. Give shorter sequences, or a larger "
                            "table"});
    }
  }

  init::Rule rule_ = init::torch_embedding;
};

}  // namespace shardwise
