#pragma once
// Views from and to the spans of any library: `Spans` names its templates.
//
//     struct Spans {
//       template <class T, std::size_t... Extents> using span = ...;  // dynamic for an open one
//       template <class T> using left = ...;                          // column-major, two axes
//       template <class T> static auto strided(T*, extents..., strides...)
//     };

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "shardwise/interop/mdspan.hpp"
#include "shardwise/layout/tensor.hpp"
#include "support/error_of.hpp"

namespace testing {

using shardwise::Axis;

inline const shardwise::Shape table{{Axis::batch, 2}, {Axis::feature, 3}};

template <class Spans, class T>
using DynamicSpan = typename Spans::template span<T, shardwise::dynamic, shardwise::dynamic>;

template <class Spans>
void check_views_of_spans() {
  using namespace shardwise;
  static_assert(Mdspan<DynamicSpan<Spans, float>> && Mdspan<DynamicSpan<Spans, const double>>);
  static_assert(!Mdspan<DynamicSpan<Spans, bool>>);  // no element of a tensor

  std::vector<float> memory{0, 1, 2, 3, 4, 5};
  const View<float, Invariant> open =
      view_of(DynamicSpan<Spans, float>(memory.data(), 2, 3), {Axis::batch, Axis::feature});
  CHECK(open.global() == table);
  CHECK(open.data() == memory.data());
  open[4] = 40;
  CHECK(memory[4] == 40);

  using Fixed = typename Spans::template span<const float, 2, 3>;
  const View<const float, Invariant> fixed =
      view_of(Fixed(memory.data()), {Axis::batch, Axis::feature});
  CHECK(fixed.global() == table);
  CHECK(fixed[4] == 40);

  const auto dense = Spans::strided(memory.data(), 2, 3, 3, 1);
  CHECK(view_of(dense, {Axis::batch, Axis::feature}).data() == memory.data());
  const auto one_column = Spans::strided(memory.data(), 6, 1, 1, 7);  // the 7 says nothing
  CHECK(view_of(one_column, {Axis::batch, Axis::feature}).size() == 6);
}

template <class Spans>
void check_refused_spans() {
  using namespace shardwise;
  std::vector<float> memory(12);
  const std::vector<Axis> axes{Axis::batch, Axis::feature};
  const auto refusal = [&](const auto& span) { return error_of([&] { view_of(span, axes); }); };
  CHECK(says(refusal(typename Spans::template left<float>(memory.data(), 2, 3)), "shape_error",
             "mdspan: axis 0 of [batch 2, feature 3] has the stride 1 where dense row-major memory "
             "has 3"));
  CHECK(says(refusal(Spans::strided(memory.data(), 2, 3, 4, 1)), "shape_error", "the stride 4"));
  CHECK(says(refusal(Spans::strided(memory.data(), 2, 3, 6, 2)), "shape_error", "the stride 6"));
  CHECK(says(
      error_of([&] { view_of(DynamicSpan<Spans, float>(memory.data(), 2, 3), {Axis::batch}); }),
      "shape_error", "mdspan: has 2 axes, [2, 3], but 1 names"));
}

template <class Spans>
void check_spans_of_views() {
  using namespace shardwise;
  Tensor<float, Invariant> whole(table);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  const auto span = to_mdspan<DynamicSpan<Spans, float>>(whole.view());
  CHECK(span.data_handle() == whole.data());
  CHECK(span.extent(0) == 2);
  CHECK(span.extent(1) == 3);
  CHECK(span.data_handle()[span.stride(0) + 2 * span.stride(1)] == 5);
  CHECK(view_of(span, {Axis::batch, Axis::feature}).global() == table);

  const Tensor<float, Invariant>& constant = whole;
  using Fixed = typename Spans::template span<const float, 2, 3>;
  CHECK(to_mdspan<Fixed>(constant.view()).data_handle() == whole.data());
  CHECK(to_mdspan<Fixed>(whole.view()).data_handle() == whole.data());

  const Tensor<float, Sharded<Axis::feature>> part(table, {0, 2});  // 2 of 3 features
  CHECK(to_mdspan<DynamicSpan<Spans, const float>>(part.view()).extent(1) == 2);
  const Tensor<float, Sharded<Axis::batch>> none(table, {2, 3});
  CHECK(to_mdspan<DynamicSpan<Spans, const float>>(none.view()).extent(0) == 0);
}

template <class Spans>
void check_refused_views() {
  using namespace shardwise;
  const Tensor<float, Invariant> whole(table);
  const auto refusal = [&]<class M>(std::type_identity<M>) {
    return error_of([&] { to_mdspan<M>(whole.view()); });
  };
  using Fixed = typename Spans::template span<const float, 2, 4>;
  CHECK(says(refusal(std::type_identity<Fixed>{}), "shape_error",
             "mdspan: the span of 2 axes cannot show a tensor [batch 2, feature 3]"));
  using Line = typename Spans::template span<const float, dynamic>;
  CHECK(says(refusal(std::type_identity<Line>{}), "shape_error", "the span of 1 axes"));
  using Left = typename Spans::template left<const float>;
  CHECK(says(refusal(std::type_identity<Left>{}), "shape_error", "has the stride 1"));
}

/// `Small` numbers elements with a signed char.
template <class Small>
void check_small_index() {
  using namespace shardwise;
  const Tensor<float, Invariant> fits(Shape{{Axis::batch, 1}, {Axis::feature, 127}});
  CHECK(to_mdspan<Small>(fits.view()).extent(1) == 127);
  const Tensor<float, Invariant> many(Shape{{Axis::batch, 64}, {Axis::feature, 2}});
  CHECK(says(error_of([&] { to_mdspan<Small>(many.view()); }), "shape_error",
             "whose index type can number the elements"));
}

}  // namespace testing
