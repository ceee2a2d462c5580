#pragma once
// Views from and to multi-dimensional spans: std::mdspan, CCCL's cuda::std::mdspan, Kokkos' mdspan
// and others with their interface. No library is included here, so any of them can be used.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/interop/dense.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// A multi-dimensional span over plain memory: its elements are references, and not proxies of an
/// accessor.
/// valid: `Mdspan<std::mdspan<const float, std::dextents<int, 2>>>`
template <class M>
concept Mdspan = requires(const M span, typename M::rank_type axis) {
  typename M::index_type;
  requires Element<std::remove_const_t<typename M::element_type>>;
  requires std::same_as<typename M::reference, typename M::element_type&>;
  { M::rank() } -> std::convertible_to<std::size_t>;
  { M::static_extent(axis) } -> std::convertible_to<std::size_t>;
  { span.extent(axis) } -> std::convertible_to<typename M::index_type>;
  { span.stride(axis) } -> std::convertible_to<typename M::index_type>;
  { span.data_handle() } -> std::convertible_to<typename M::element_type*>;
};

namespace detail {

/// Whether M is constructed from a pointer and its extents, as for layouts without parameters.
template <Mdspan M, class T>
constexpr bool is_made_of_extents() {
  return []<std::size_t... Index>(std::index_sequence<Index...>) {
    return std::constructible_from<M, T*, decltype((void)Index, typename M::index_type{})...>;
  }
  (std::make_index_sequence<M::rank()>{});
}

template <Mdspan M>
std::vector<std::int64_t> strides_of(const M& span) {
  std::vector<std::int64_t> strides;
  strides.reserve(M::rank());
  for (typename M::rank_type i = 0; i < M::rank(); ++i)
    strides.push_back(static_cast<std::int64_t>(span.stride(i)));
  return strides;
}

/// Whether M can have the extents of `shape`: those that it fixes are equal, and its index type can
/// number the elements.
template <Mdspan M>
bool can_show(const Shape& shape) {
  if (shape.rank() != M::rank()) return false;
  if (!std::in_range<typename M::index_type>(shape.elements())) return false;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    const auto fixed = static_cast<std::size_t>(M::static_extent(i));
    const std::size_t extent = shape[i].extent();
    if (fixed != dynamic && fixed != extent) return false;
    if (!std::in_range<typename M::index_type>(extent)) return false;
  }
  return true;
}

}  // namespace detail

/// A view of the memory of `span`, whole on this rank, with a name for each axis: `view_of(span,
/// {Axis::batch, Axis::feature})`.
/// throws   shape_error if the numbers of names and axes differ, or if the memory is not dense and
///          row-major
template <Mdspan M>
View<typename M::element_type, Invariant> view_of(const M& span, const std::vector<Axis>& axes) {
  std::vector<std::uint64_t> extents;
  extents.reserve(M::rank());
  for (typename M::rank_type i = 0; i < M::rank(); ++i)
    extents.push_back(static_cast<std::uint64_t>(span.extent(i)));
  const Shape shape = detail::named_shape(axes, extents, "mdspan");
  detail::require_dense(shape, detail::strides_of(span), "mdspan");
  return {span.data_handle(), shape, Place{}};
}

/// The rank's part of `view` as a span of the type M:
/// `to_mdspan<std::mdspan<float, std::dextents<int, 2>>>(view)`.
/// throws   shape_error if M has another rank or fixes other extents, if its index type cannot
///          number the elements, or if it is not row-major
template <Mdspan M, class T, Layout L, class E>
requires(std::convertible_to<T*, typename M::data_handle_type>&& detail::is_made_of_extents<M, T>())
    M to_mdspan(const View<T, L, E>& view) {
  const Shape& local = view.local();
  if (!detail::can_show<M>(local)) {
    throw shape_error({"mdspan: the span of ", M::rank(), " axes cannot show a tensor ", local,
                       "; take one of as many axes, whose fixed extents are equal and whose index "
                       "type can number the elements"});
  }
  const M span = [&]<std::size_t... Index>(std::index_sequence<Index...>) {
    return M(view.data(), static_cast<typename M::index_type>(local[Index].extent())...);
  }
  (std::make_index_sequence<M::rank()>{});
  detail::require_dense(local, detail::strides_of(span), "mdspan");
  return span;
}

}  // namespace shardwise
