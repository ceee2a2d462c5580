#pragma once
// One tensor or several: the inputs and outputs of a model. Several are a std::tuple.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"

namespace shardwise::detail {

template <class T, class L>
using value_of = Value<T, L>;

/// Values of tensors in the layout L: a Value for a Layout, a std::tuple of them for Layouts.
template <class T, EndLayout L>
using values_t = typename detail::layouts_of<L>::template each<detail::value_of, T>;

template <class T>
inline constexpr bool is_tuple = false;
template <class... Ts>
inline constexpr bool is_tuple<std::tuple<Ts...>> = true;

/// f(tensor...) for one tensor, or for all tensors of a std::tuple.
template <class Tensors, class F>
constexpr decltype(auto) with_tensors(Tensors&& tensors, F&& f) {
  if constexpr (is_tuple<std::remove_cvref_t<Tensors>>) {
    return std::apply(f, std::forward<Tensors>(tensors));
  } else {
    return f(std::forward<Tensors>(tensors));
  }
}

/// The global shapes of views or values.
template <class Tensors>
auto global_shapes(const Tensors& tensors) {
  return with_tensors(tensors, [](const auto&... one) { return std::array{one.global()...}; });
}

/// The global shape of one view or value, or an array of those of several.
template <class Tensors>
auto shapes_of_each(const Tensors& tensors) {
  if constexpr (is_tuple<Tensors>) {
    return global_shapes(tensors);
  } else {
    return tensors.global();
  }
}

/// Samples in a batch: the extent of the outermost axis of the first tensor.
template <class Views>
std::size_t samples_of(const Views& views) {
  return with_tensors(views, [](const auto& first, const auto&...) -> std::size_t {
    const Shape& shape = first.global();
    return shape.rank() > 0 ? shape[0].extent() : 1;
  });
}

///@{
/// Values in the memory of views.
template <class T, Layout L>
Value<T, L> values_of(const View<const T, L>& view) {
  return Value<T, L>(view);
}
template <class... Ts, Layout... Ls>
std::tuple<Value<Ts, Ls>...> values_of(const std::tuple<View<const Ts, Ls>...>& views) {
  return std::apply([](const auto&... one) { return std::tuple{values_of(one)...}; }, views);
}
///@}

///@{
/// Views of values; Nothing for Nothing.
template <class T, Layout L>
View<const T, L> views_of(const Value<T, L>& value) {
  return value.view();
}
inline Nothing views_of(Nothing) { return {}; }
template <class... Values>
auto views_of(const std::tuple<Values...>& values) {
  return std::apply([](const auto&... one) { return std::tuple(views_of(one)...); }, values);
}
///@}

///@{
/// The same tensors in the layout To, see `converted`; converted from the first to the last, or
/// from the last to the first.
template <Layout To, bool FromLast = false, class Context, class T, Layout From>
Value<T, To> converted_all(Run<Context>& run, Value<T, From>&& value) {
  return converted<To>(run, std::move(value));
}
template <EndLayout To, bool FromLast = false, class Context, class T, Layout... From>
values_t<T, To> converted_all(Run<Context>& run, std::tuple<Value<T, From>...>&& values) {
  constexpr std::size_t last = sizeof...(From) - 1;
  values_t<T, To> result;
  const auto convert = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
    std::get<K>(result) = converted<nth_layout_t<To, K>>(run, std::get<K>(std::move(values)));
  };
  [&]<std::size_t... Ks>(std::index_sequence<Ks...>) {
    (convert(std::integral_constant<std::size_t, (FromLast ? last - Ks : Ks)>{}), ...);
  }
  (std::index_sequence_for<From...>{});
  return result;
}
///@}

}  // namespace shardwise::detail
