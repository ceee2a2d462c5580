#pragma once
// What the processor can do.

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>

#include "shardwise/core/independent_loop.hpp"

namespace shardwise::detail::onednn {

/// Whether the library uses all that `isa` names.
inline bool has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

/// Whether the processor multiplies bf16. With AVX-512 alone, the library computes such products
/// from floats, and takes three times as long as for products of floats.
inline bool multiplies_bf16() { return has(dnnl_cpu_isa_avx512_core_bf16); }

/// Whether it multiplies bf16 in tiles of 16 rows and columns (AMX).
inline bool multiplies_tiles() { return has(dnnl_cpu_isa_avx512_core_amx); }

/// Whether it multiplies pairs of bf16 (AVX-512 BF16), and not in tiles.
inline bool multiplies_pairs() { return multiplies_bf16() && !multiplies_tiles(); }

/// Whether so many bytes do not stay in the cache of a core, which has 1 to 2 MiB.
constexpr bool is_in_no_cache(std::size_t bytes) { return bytes > std::size_t{2} << 20; }

/// Whether loops have vectors: without optimisation none has.
#ifdef __OPTIMIZE__
inline constexpr bool has_vectors = true;
#else
inline constexpr bool has_vectors = false;
#endif

#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__AVX512F__)

/// Calls f(), compiled for vectors of 16 floats, which the processor must have.
template <class F>
[[gnu::target("avx512f"), gnu::flatten]] void in_vectors_of_16(const F& f) {
  f();
}

/// Calls f(), compiled for vectors of 16 floats where the processor has them. Unlike in
/// `in_widest_vectors`, a multiplication and an addition may then round once, so on unlike
/// processors f has unlike bits. So have the library's products.
template <class F>
void in_fused_vectors(const F& f) {
  __builtin_cpu_supports("avx512f") ? in_vectors_of_16(f) : in_widest_vectors(f);
}

#else

///@{
/// Calls f().
template <class F>
void in_vectors_of_16(const F& f) {
  f();
}
template <class F>
void in_fused_vectors(const F& f) {
  in_widest_vectors(f);
}
///@}

#endif

}  // namespace shardwise::detail::onednn
