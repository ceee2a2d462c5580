#pragma once
// Backends. A backend is an object that computes: it owns handles, settings and caches of its
// library.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "shardwise/backend/activation.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise {

/// A weight, the number of its changes, and whether it stays. A kernel that keeps a packed copy
/// packs again if the version is not that of its copy. Products with a copy may round otherwise, so
/// whether there is one depends only on what the call is given: equal calls give equal bits.
template <class T>
struct Weight {
  const T* data = nullptr;    ///< [out, in], row-major
  std::uint64_t version = 0;  ///< changes whenever the numbers change
  /// Whether the numbers stay for many calls, so that a packed copy pays. A model sets it in
  /// evaluate, and not in training, which changes its weights in every step.
  bool stays = false;
};

/// Whether a result replaces the old output or is added to it.
enum class Write : bool { replace, add };

namespace detail {

/// The products of one linear layer, see `Backend`.
template <class K, class T>
concept LinearKernel = requires(K& kernel, std::size_t rows, const T* in, Weight<T> weight, T* out,
                                Write write) {
  kernel.forward(rows, in, weight, in, Activation::relu, out);
  kernel.backward_input(rows, in, weight, out);
  kernel.backward_weight(rows, in, in, write, out, out);
};

}  // namespace detail

/// A computing engine for the dtype T.
///
///     B::Linear<T>(backend, in, out)   the kernel of one linear layer
///     backend.for_each(n, f)           calls f(i) once for every i in [0, n), in any order
///
/// A dtype that the backend lacks has no `B::Linear<T>`. A backend whose tensors are on a device is
/// also a DeviceBackend.
///
/// A kernel has the products of its layer, with the state of a library (packed weights, plans for
/// each number of rows, scratch memory). All matrices are row-major and dense. Each of rows, in and
/// out may be zero; an empty sum writes zeros (or adds nothing).
///
///     kernel.forward(rows, x, weight, bias, activation, y)
///         y[rows, out]  = activation(x[rows, in] · w[out, in]ᵀ + bias[out])
///     kernel.backward_input(rows, dy, weight, dx)
///         dx[rows, in]  = dy[rows, out] · w[out, in]
///     kernel.backward_weight(rows, x, dy, write, dw, db)
///         dw[out, in]  (+)= dy[rows, out]ᵀ · x[rows, in],   db[out] (+)= Σ_rows dy
///
/// `weight` is a `Weight`, `write` a `Write`. `bias` and `db` may be null. Products accumulate in
/// accumulate_t<T>.
/// valid: `Backend<Reference, double>`      invalid: `Backend<OneDnn, double>` (oneDNN has no
/// double)
template <class B, class T>
concept Backend = Real<T> && requires(B& backend) {
  typename B::template Linear<T>;
  requires detail::LinearKernel<typename B::template Linear<T>, T>;
  requires std::constructible_from<typename B::template Linear<T>, B&, std::size_t, std::size_t>;
  backend.for_each(std::size_t{}, detail::EachArchetype{});
};

}  // namespace shardwise
