#pragma once
// A rank's part of a global tensor, in memory that it does not own.

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "shardwise/core/box.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layout/local_shape.hpp"

namespace shardwise {

template <class T, Layout L, class E = Extents<>>
class View;

namespace detail {

/// The same memory as a view in layout M. The caller knows that the rank's part is the same.
/// Throws shape_error if the tensor has no axis for M.
template <Layout M, class T, Layout L, class E>
View<T, M, E> relabelled(const View<T, L, E>& view) {
  if constexpr (SplitLayout<M>) split_position<M>(view.global());
  return {view.data_, view.global_, view.local(), view.place_};
}

/// Makes a view one of the same part of the same tensor at another address.
template <class T, Layout L, class E>
void set_address(View<T, L, E>& view, std::type_identity_t<T>* data) {
  view.data_ = data;
}

[[noreturn, gnu::cold]] void refuse_uncountable(const Shape& global);

/// Whether a rank's part may have another shape than the tensor.
template <class L>
inline constexpr bool has_own_local = SplitLayout<L> || MeshLayout<L>;

/// In place of a local shape that is the global one.
struct WholeShape {
  constexpr WholeShape() = default;
  constexpr explicit WholeShape(const Shape&) {}
};

}  // namespace detail

/// The part that the rank at `place` holds of a tensor of shape `global` in layout L: dense,
/// row-major, of shape `local()`. T may be const. E has the extents that the compiler knows.
template <class T, Layout L, class E>
class View {
 public:
  /// The dtype of the elements, without const.
  using value_type = std::remove_const_t<T>;
  /// The layout of the tensor.
  using layout = L;

  View() = default;

  /// Throws shape_error if `global` has no axis for L, has too many elements to count, or does not
  /// fit E.
  View(T* data, const Shape& global, const place_t<L>& place)
      : data_(data), global_(global), local_(local_shape<L>(global, place)), place_(place) {
    if (!global.countable()) detail::refuse_uncountable(global);
    if constexpr (!std::same_as<E, Extents<>>) {
      if (!E::admits(global)) {
        throw shape_error({"a view of extents ", E::pattern(), " cannot show a tensor ", global,
                           ": known extents must be equal"});
      }
    }
  }

  /// As above, and throws shape_error if `memory` does not hold exactly the local elements.
  View(std::span<T> memory, const Shape& global, const place_t<L>& place)
      : View(memory.data(), global, place) {
    if (memory.size() != size()) {
      throw shape_error({place, " holds ", local(), " of ", global, " as ", layout_name<L>(),
                         ", which is ", size(), " elements, but was given memory of ",
                         memory.size()});
    }
  }

  /// The same part of the same tensor at another address.
  template <class U>
  View<U, L, E> in_memory(U* data) const noexcept {
    return {data, global_, local(), place_};
  }

  ///@{
  /// Conversions to const elements, and to extents of which the compiler knows less. Templates,
  /// because nvcc warns about a conversion to the type itself before it checks constraints.
  template <class U>
  requires(std::same_as<U, const T> && !std::is_const_v<T>) operator View<U, L, E>() const {
    return in_memory<U>(data_);
  }
  template <class U>
  requires(std::same_as<U, const T> && !std::same_as<E, Extents<>>) operator View<U, L>() const {
    return {data_, global_, place_};
  }
  ///@}

  ///@{
  /// The elements that this rank holds. Data of an empty view may be null.
  T* data() const noexcept { return data_; }
  T& operator[](std::size_t i) const noexcept { return data_[i]; }
  std::span<T> span() const noexcept { return {data_, size()}; }
  ///@}

  ///@{
  /// The shape of the whole tensor, the shape of this rank's part, and the rank.
  const Shape& global() const noexcept { return global_; }
  const Shape& local() const noexcept {
    if constexpr (detail::has_own_local<L>) {
      return local_;
    } else {
      return global_;
    }
  }
  place_t<L> place() const noexcept { return place_; }
  ///@}

  /// Elements in local memory.
  std::size_t size() const noexcept { return local().elements(); }
  ///@{
  /// Number and length of the local runs along the innermost axis.
  std::size_t rows() const noexcept { return local().rows(); }
  std::size_t columns() const noexcept { return local().rank() == 0 ? 1 : local().back().extent(); }
  ///@}

 private:
  template <class U, Layout M, class F>
  friend class View;
  template <Layout M, class U, Layout From, class F>
  friend View<U, M, F> detail::relabelled(const View<U, From, F>& view);
  template <class U, Layout M, class F>
  friend void detail::set_address(View<U, M, F>& view, std::type_identity_t<U>* data);

  View(T* data, const Shape& global, const Shape& local, const place_t<L>& place)
      : data_(data), global_(global), local_(local), place_(place) {}

  T* data_ = nullptr;
  Shape global_;
  [[no_unique_address]] std::conditional_t<detail::has_own_local<L>, Shape, detail::WholeShape>
      local_;
  place_t<L> place_{};
};

namespace detail {

/// Whether a View or a Tensor has elements, but no memory, as one that was moved from.
template <class Given>
bool is_nowhere(const Given& given) {
  return given.data() == nullptr && given.local().elements() > 0;
}
[[noreturn, gnu::cold]] void refuse_nowhere(const std::string& what);

/// The number in the whole tensor of this rank's element `local`.
template <class T, Layout L, class E>
std::size_t number_in_whole(const View<T, L, E>& view, std::size_t local) {
  return detail::number_in_whole(view.global(), view.local(),
                                 local_begin<L>(view.global(), view.place()), local);
}

}  // namespace detail

/// Calls f(global index, local index, length) for every run of local elements that is contiguous in
/// the global tensor too. It gives local elements their global numbers.
template <class T, Layout L, class E, class F>
void for_each_global_run(const View<T, L, E>& view, F&& f) {
  const detail::BoxIn in_global{view.global(), detail::local_begin<L>(view.global(), view.place())};
  detail::for_each_run(view.local(), in_global, detail::BoxIn{view.local(), {}}, f);
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_uncountable(const Shape& global) {
  throw shape_error({"a tensor ", global,
                     " has extents that are not known or more elements than can be counted"});
}

SHARDWISE_INLINE void refuse_nowhere(const std::string& what) {
  throw argument_error({what,
                        " has a shape, but no memory: if its Tensor was moved from, give the "
                        "Tensor that has the elements now"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
