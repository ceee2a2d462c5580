#pragma once
// Loops and sums as kernels of a device. Programs that run them are compiled by nvcc, with
// --expt-relaxed-constexpr: a loop's body is a constexpr function of the host.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/session.hpp"

namespace shardwise::detail::cuda {

/// Threads of a block.
inline constexpr unsigned block_threads = 256;

/// Blocks for n elements, `each` of them or more a thread; a function of n alone, since the order
/// of sums follows from it.
constexpr unsigned blocks_for(std::size_t n, std::size_t each, std::size_t most) {
  const std::size_t in_block = block_threads * each;
  return static_cast<unsigned>(std::clamp<std::size_t>((n + in_block - 1) / in_block, 1, most));
}

#ifdef __CUDACC__

/// f(i) for each i in [0, n).
template <class F>
__global__ void run_each(std::size_t n, F f) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

/// results[b] = first and the terms of block b, combined: those of a thread in order, and these in
/// halves.
template <class A, class Term, class Combine>
__global__ void combine_blocks(std::size_t n, A first, Term term, Combine combine, A* results) {
  __shared__ A lanes[block_threads];
  const unsigned lane = threadIdx.x;
  A mine = first;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + lane; i < n; i += step)
    mine = combine(mine, static_cast<A>(term(i)));
  lanes[lane] = mine;
  for (unsigned half = block_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) lanes[lane] = combine(lanes[lane], lanes[lane + half]);
  }
  if (lane == 0) results[blockIdx.x] = lanes[0];
}

template <class A>
struct Load {
  const A* numbers;
  constexpr A operator()(std::size_t i) const { return numbers[i]; }
};

template <class F>
void launch_each(Session& session, std::size_t n, const F& f) {
  if (n == 0) return;
  const OnDevice on(session.device().index);
  run_each<<<blocks_for(n, 1, 8192), block_threads, 0, session.stream().get()>>>(n, f);
  check(cudaGetLastError(), "the launch of a loop");
}

template <class A, class Term, class Combine>
void launch_reduce(Session& session, std::size_t n, A first, const Term& term,
                   const Combine& combine, A* out) {
  const OnDevice on(session.device().index);
  cudaStream_t const stream = session.stream().get();
  const unsigned blocks = blocks_for(n, 4, 1024);
  A* const parts = blocks == 1 ? out : static_cast<A*>(session.scratch(blocks * sizeof(A)));
  combine_blocks<<<blocks, block_threads, 0, stream>>>(n, first, term, combine, parts);
  check(cudaGetLastError(), "the launch of a sum");
  if (blocks == 1) return;
  combine_blocks<<<1, block_threads, 0, stream>>>(std::size_t{blocks}, first, Load<A>{parts},
                                                  combine, out);
  check(cudaGetLastError(), "the launch of a sum");
}

#else

template <class F>
void launch_each(Session&, std::size_t, const F&) {
  static_assert(sizeof(F) == 0,
                "the loops of the Cuda backend are kernels: compile this file with nvcc, as CUDA "
                "(.cu), with -std=c++20 --expt-relaxed-constexpr.");
}

template <class A, class Term, class Combine>
void launch_reduce(Session&, std::size_t, A, const Term&, const Combine&, A*) {
  static_assert(sizeof(Term) == 0,
                "the sums of the Cuda backend are kernels: compile this file with nvcc, as CUDA "
                "(.cu), with -std=c++20 --expt-relaxed-constexpr.");
}

#endif

}  // namespace shardwise::detail::cuda
