#pragma once
// The first or the last token of each sample.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layers/detail/table_loops.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/token_rows.hpp"

namespace shardwise {

namespace detail {

/// Which token of a sample a layer takes.
enum class SampleEnd : std::uint8_t { first, last };

/// In place of the row of a token that is on another rank or does not exist.
inline constexpr std::size_t no_row = static_cast<std::size_t>(-1);

/// taken[s] is the rank's row of the first or last token of its sample s, or `no_row`.
struct EndRowOf {
  SampleEnd end;
  TokenRows rows;
  Sequences sequences;
  std::size_t* taken;

  constexpr void operator()(std::size_t s) const {
    const std::size_t begin = (rows.first_sample + s) * rows.length;
    taken[s] = no_row;
    for (std::size_t i = 0; i < rows.length; ++i) {
      const std::size_t row = begin + (end == SampleEnd::first ? i : rows.length - 1 - i);
      if (sequences[row].is_padding()) continue;
      const Interval held = rows.local(s, row, row + 1);
      if (held.size == 1) taken[s] = held.offset;
      return;
    }
  }
};

/// y[s] = x[taken[s]], or zeros.
template <class T>
struct EndRow {
  std::size_t columns;
  const std::size_t* taken;
  const T* x;
  T* y;

  constexpr TakenRow<T> operator()(std::size_t s) const {
    const bool is_here = taken[s] != no_row;
    return {is_here ? x + taken[s] * columns : nullptr, T(0), y + s * columns};
  }
};

/// dx[taken[s]] = dy[s], and zeros in all other rows; a sample has `here` rows on the rank.
template <class T>
struct EndRowGradient {
  std::size_t here;
  std::size_t columns;
  const std::size_t* taken;
  const T* dy;
  T* dx;

  constexpr TakenRow<T> operator()(std::size_t r) const {
    const std::size_t s = r / here;
    return {taken[s] == r ? dy + s * columns : nullptr, T(0), dx + r * columns};
  }
};

/// What FirstRows and LastRows have in common.
template <SampleEnd End>
struct EndRows {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Partial>, Invariant, Wanted>;
  template <Layout Offered, Layout Wanted>
  using input_layout = Offered;
  template <Layout In>
  using output_layout = std::conditional_t<std::same_as<In, Sharded<Axis::sequence>>, Partial, In>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    if (x.rank() != 3 || x[0].axis != Axis::batch || x[1].axis != Axis::sequence ||
        x[2].axis != Axis::feature) {
      throw shape_error({"the input is a tensor ", x, ", but the ",
                         End == SampleEnd::first ? "first" : "last",
                         " token of each sample is a row of [batch, sequence, feature]"});
    }
    return {x[0], x[2]};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    const Buffer memory = rows_of(frame, x);
    const auto* const taken = static_cast<const std::size_t*>(memory.data());
    for_each_in_rows(frame.backend(), y.rows(), y.columns(),
                     EndRow<T>{y.columns(), taken, x.data(), y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const Buffer memory = rows_of(frame, dx);
    const auto* const taken = static_cast<const std::size_t*>(memory.data());
    for_each_in_rows(
        frame.backend(), dx.rows(), dx.columns(),
        EndRowGradient<T>{dx.local()[1].extent(), dx.columns(), taken, dy.data(), dx.data()});
  }
  ///@}

 private:
  /// The rank's row of each of its samples.
  template <class Frame, class X>
  static Buffer rows_of(Frame& frame, const X& x) {
    const TokenRows rows = token_rows(frame.held_part(x));
    Buffer memory = frame.take(rows.samples * sizeof(std::size_t));
    frame.backend().for_each(rows.samples, EndRowOf{End, rows, frame.sequences(x.global()),
                                                    static_cast<std::size_t*>(memory.data())});
    return memory;
  }
};

}  // namespace detail

/// [batch, sequence, feature] -> [batch, feature]: of each sample the row of its first token, such
/// as a class token. That is the first row which lies in a segment, see `Segment`. A sample without
/// a token gives zeros.
///
/// layout   Sharded<sequence> -> Partial: the rank that has the row gives it, the others zeros;
///          L -> L for any other L, also Partial, since the layer is linear
/// saves    nothing
/// sends    nothing
/// throws   shape_error if x is not [batch, sequence, feature]
struct FirstRows : detail::EndRows<detail::SampleEnd::first> {};

/// As FirstRows, of the last token: in a padded sample the one next to the padding. In front of the
/// last layer of a model that writes text, it makes the logits of no other token.
struct LastRows : detail::EndRows<detail::SampleEnd::last> {};

}  // namespace shardwise
