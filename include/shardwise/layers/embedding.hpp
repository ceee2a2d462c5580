#pragma once
// A table of rows, one for each token id.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/table_loops.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layers/weight_and_bias.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// The layouts of a table, by split. The weight is laid out as that of a linear layer with this
/// split whose outputs are the ids.
template <class S>
struct TableLayouts : ProductLayouts<S, Axis::feature> {};
template <>
struct TableLayouts<split::output> : ProductLayouts<split::output, Axis::feature> {
  template <Layout In>
  using output_layout = Partial;
};
template <>
struct TableLayouts<split::input> : ProductLayouts<split::output, Axis::feature> {
  template <Layout In>
  using weight = ProductLayouts<split::input, Axis::feature>::weight<In>;
};

}  // namespace detail

/// y[..., :] = W[x[...], :] for token ids x: row x of a table of V rows and N features.
///
///                split::output             split::input              split::none
/// x per rank     [...] ids                 [...]                     [...]
/// W per rank     [V/P, N]                  [V, N/P]                  [V, N]
/// y per rank     [..., N], a summand       [..., N/P]                [..., N]
/// layout         Replicated -> Partial     Replicated ->             L -> L for Invariant,
///                                          Sharded<feature>          Sharded<batch>, <sequence>
/// gradient owes  nothing                   nothing                   all-reduce unless Invariant
///
/// Ids are std::int32_t and have no gradient. W begins as N(0, 1), as torch.nn.Embedding does. It
/// is laid out as the weight of `Linear<S, N, V>`, so both can share it:
/// `Owns<Tag, Embedding<V, N>>` and `Borrows<Tag, ColumnParallelLinear<N, V, false>>`. The gradient
/// adds the rows of equal ids in accumulate_t; for bf16 and fp16 that takes memory of V/P rows.
/// sends    nothing
/// throws   argument_error for an id that is not in [0, V), if the tensors are on the host; on a
///          device the row is NaN, since to look there would wait for the device in every forward.
///          shape_error if x has an axis feature
/// source   Shoeybi et al. 2019, section 3
template <std::size_t V, std::size_t N, class S = split::output>
class Embedding : public detail::TableLayouts<S>, public Sized<V, N>, public WeightAndBias<1> {
 public:
  using Sized<V, N>::Sized;
  using Sized<V, N>::in;
  using Sized<V, N>::out;

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    return Embedding<dynamic, dynamic, S>(in(), out()).initialized_by(rule_);
  }

  /// The same layer with other initial values.
  constexpr Embedding initialized_by(init::Rule rule) const {
    Embedding other = *this;
    other.rule_ = rule;
    return other;
  }

  ///@{
  /// As `Layer` says.
  using input_element = std::int32_t;
  static constexpr Saves saves = Saves::input;
  static constexpr std::size_t in_features = dynamic;

  template <Layout In>
  using parameters = std::tuple<typename detail::TableLayouts<S>::template weight<In>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() > 0 && x.back().axis == Axis::feature) {
      throw shape_error({"the input is a tensor ", x,
                         ", but an Embedding takes one id in place of features: an input without "
                         "the axis feature"});
    }
    Shape y = x;
    y.append({Axis::feature, out()});
    return y;
  }

  constexpr auto parameter_specs(const Shape&) const {
    return std::array{ParameterSpec{
        "weight", {{Axis::output, in()}, {Axis::input, out()}}, rule_, {in(), out()}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    if constexpr (!DeviceBackend<typename Frame::backend_type>) require_ids(x);
    const auto [table] = frame.parameters();
    detail::for_each_in_rows(
        frame.backend(), x.size(), y.columns(),
        detail::TakenRows<T>{rows_of(table), x.data(), table.data(), y.data()});
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX&) const {
    const auto [gradient] = frame.gradients();
    detail::add_rows(frame, rows_of(gradient), x.data(), x.size(), dy.data(), gradient.data());
  }
  ///@}

 private:
  template <class Table>
  static detail::RowsHere rows_of(const Table& table) {
    const Shape here = table.local();
    const std::size_t first =
        std::same_as<S, split::output> ? block_of(table.global()[0], table.place()).offset : 0;
    return {table.global()[0].extent(), first, here[0].extent(), here[1].extent()};
  }

  template <class X>
  void require_ids(const X& x) const {
    for_each_global_run(x, [&](std::size_t global, std::size_t local, std::size_t length) {
      for (std::size_t i = 0; i < length; ++i) {
        const std::int32_t id = x[local + i];
        if (static_cast<std::size_t>(id) < in()) continue;
        throw argument_error(
            {"token id ", id, " at element ", global + i,
             " of the input is not in the table: it has ", in(),
             " rows, numbered from 0. Look at the ids, or at the size of the table"});
      }
    });
  }

  init::Rule rule_ = init::torch_embedding;
};

/// "Embedding<50257, 768>", "Embedding<50257, 768, split::input>".
template <std::size_t V, std::size_t N, class S>
struct NameOf<Embedding<V, N, S>> {
  static std::string name() {
    constexpr const char* end = std::same_as<S, split::output>  ? ">"
                                : std::same_as<S, split::input> ? ", split::input>"
                                                                : ", split::none>";
    return "Embedding<" + detail::size_name(V) + ", " + detail::size_name(N) + end;
  }
};

}  // namespace shardwise
