#pragma once
// Runs redistributions over a mesh of ranks, step by step along its axes.

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/redistribute/redistribute.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise {

namespace detail {

/// The ranks along one axis of a mesh.
template <MeshCommunicator M>
using ranks_along_t = std::remove_reference_t<decltype(std::declval<M&>().along(MeshAxis::tensor))>;

/// Redistributes a tensor over the ranks along one mesh axis. `shared` is the shape of the part
/// that these ranks hold together.
template <class B, Communicator C, class T>
using AxisStep = void (*)(B& backend, C& ranks, Pool& pool, const Shape& shared, const T* in,
                          T* out, Reduction reduction);

template <PlainLayout From, PlainLayout To, class B, Communicator C, class T>
void run_axis_step(B& backend, C& ranks, Pool& pool, const Shape& shared, const T* in, T* out,
                   Reduction reduction) {
  const Place place = place_of(ranks);
  redistribute(backend, ranks, pool, View<const T, From>(in, shared, place),
               View<T, To>(out, shared, place), reduction);
}

/// A redistribution over a mesh as values, so that the code below is compiled once for all layouts.
template <class B, MeshCommunicator M, class T>
struct MeshRedistribution {
  using Step = AxisStep<B, ranks_along_t<M>, T>;

  MeshLayoutValue from, to;
  MeshSteps steps;
  std::array<Step, mesh_axes.size()> run{};  // in the order of mesh_axes; null without a step
};

template <class R, class B, MeshCommunicator M, class T>
constexpr MeshRedistribution<B, M, T> mesh_redistribution() {
  MeshRedistribution<B, M, T> result{layout_value<typename R::from>, layout_value<typename R::to>,
                                     R::steps};
  const auto add = [&]<MeshAxis A>() {
    using Along = typename R::template along<A>;
    if constexpr (R::steps.has(A))
      result.run[static_cast<std::size_t>(A)] =
          run_axis_step<typename Along::from, typename Along::to, B, ranks_along_t<M>, T>;
  };
  add.template operator()<MeshAxis::pipeline>();
  add.template operator()<MeshAxis::replica>();
  add.template operator()<MeshAxis::data>();
  add.template operator()<MeshAxis::context>();
  add.template operator()<MeshAxis::tensor>();
  return result;
}

/// Those of the steps that are not along one rank, to which all layouts are the same.
constexpr MeshSteps steps_on(const mesh& sizes, const MeshSteps& steps) {
  MeshSteps result;
  for (const MeshAxis axis : steps)
    if (sizes[axis] > 1) result.add(axis);
  return result;
}

/// out = in, laid out anew. Each step but the last writes to memory of the pool.
template <class B, MeshCommunicator M, class T>
void run_steps(B& backend, M& ranks, Pool& pool, const MeshRedistribution<B, M, T>& change,
               const Shape& global, const T* in, T* out, Reduction reduction = Reduction::sum) {
  const MeshPlace& place = ranks.place();
  const MeshSteps steps = steps_on(ranks.sizes(), change.steps);
  if (steps.size() == 0)
    return copy(backend, in, local_shape(change.from, global, place).elements(), out);
  MeshLayoutValue now = change.from;
  Buffer held;  // what `in` points to after the first step
  std::size_t left = steps.size();
  for (const MeshAxis axis : steps) {
    now[axis] = {};
    const Shape shared = local_shape(now, global, place);
    now[axis] = change.to[axis];
    Buffer next;
    if (--left > 0) next = pool.take(local_shape(now, global, place).elements() * sizeof(T));
    T* const target = left > 0 ? static_cast<T*>(next.data()) : out;
    change.run[static_cast<std::size_t>(axis)](backend, ranks.along(axis), pool, shared, in, target,
                                               reduction);
    in = target;
    held = std::move(next);
  }
}

[[gnu::cold]] void refuse_mesh_views(const Shape& in, const Shape& out, bool overlap,
                                     const MeshPlace& place, const std::string& what);

}  // namespace detail

/// out = in, in layout To, on ranks that form a mesh. A collective: every rank of the mesh calls
/// it, with the same shape, and with views whose place is `place_for<Layout>(ranks.place())`. A
/// plain layout is one along `tensor`, and Invariant along all other axes.
///
/// It runs the steps of `Redistribute<From, To>`, each over the ranks along its axis; a step along
/// an axis of one rank is left out. `pool` lends memory for packing, and for the tensor between two
/// steps. What is allowed depends on the layouts, and not on the sizes of the mesh: in and out may
/// be the same memory only if each step is an all-reduce or moves no element, and `reduction` may
/// differ from a sum only if there are steps and each is an all-reduce.
///
///     using In = Over<On<MeshAxis::data, Sharded<Axis::batch>>, On<MeshAxis::tensor, Partial>>;
///     Tensor<float, In> in(shape, ranks.place());
///     Tensor<float, Invariant> out(shape, place_for<Invariant>(ranks.place()));
///     redistribute(ranks, pool, std::as_const(in).view(), out.view());
/// sends    what each step sends of the part that the ranks along its axis hold together
/// throws   before anything is sent: shape_error, argument_error for views that do not fit, or that
///          overlap; argument_error for another reduction than a sum if a step is not an
///          all-reduce; later the communicator's errors
template <class B, detail::MeshCommunicator M, class T, Layout From, Layout To>
void redistribute(B& backend, M& ranks, Pool& pool, const View<const T, From>& in,
                  const View<T, To>& out, Reduction reduction = Reduction::sum) {
  const MeshPlace& place = ranks.place();
  if constexpr (detail::checks_locally<M>()) {
    constexpr detail::MeshLayoutValue from = detail::layout_value<From>;
    constexpr detail::MeshLayoutValue to = detail::layout_value<To>;
    const bool in_place = detail::may_work_in_place(from, to) && in.data() == out.data();
    const bool overlap =
        !in_place && detail::overlaps(std::as_bytes(in.span()), std::as_bytes(out.span()));
    if (overlap || !(in.global() == out.global()) || !(in.place() == place_for<From>(place)) ||
        !(out.place() == place_for<To>(place)))
      detail::refuse_mesh_views(in.global(), out.global(), overlap, place,
                                layout_name<From>() + " -> " + layout_name<To>());
    if (reduction != Reduction::sum && !detail::only_reduces(from, to))
      detail::refuse_reduction<From, To>(reduction);
  }
  if constexpr (detail::MeshLayout<From> || detail::MeshLayout<To>) {
    constexpr auto change = detail::mesh_redistribution<Redistribute<From, To>, B, M, T>();
    detail::run_steps(backend, ranks, pool, change, in.global(), in.data(), out.data(), reduction);
  } else {
    redistribute(backend, ranks.along(MeshAxis::tensor), pool, in, out, reduction);
  }
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_mesh_views(const Shape& in, const Shape& out, bool overlap,
                                        const MeshPlace& place, const std::string& what) {
  if (!(in == out))
    throw shape_error({place, ", ", what, ": the input is a tensor ", in, " and the output ", out,
                       "; a redistribution changes the layout alone, so they must be equal"});
  if (overlap)
    throw argument_error({place, ", ", what,
                          ": the input and the output overlap in memory; they may be exactly the "
                          "same memory if each step is an all-reduce or moves no element, and must "
                          "not overlap otherwise, so give the output other memory"});
  throw argument_error({place, ", ", what,
                        ": the views were made for another place or mesh than that of the ranks; "
                        "make them with place_for<Layout>(ranks.place())"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
