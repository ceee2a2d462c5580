#pragma once
// Loops and sums as kernels of a device. nvcc must compile programs that run them, with
// --expt-relaxed-constexpr: a loop's body is a constexpr function of the host.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/cuda/check.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/detail/row_order.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail::cuda {

#ifdef __CUDACC__

/// f(i) for each i in [0, n).
template <class F>
__global__ void run_each(std::size_t n, F f) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

/// put(r * parts + part, result) for part blockIdx.y of the rows of block blockIdx.x.
template <class A, class Terms, class Combine, class Put>
__global__ void combine_rows(std::size_t rows, RowOrder order, A first, Terms terms,
                             Combine combine, Put put) {
  __shared__ A results[RowOrder::threads];
  const unsigned thread = threadIdx.x;
  const unsigned lane = order.lane_of(thread);
  const std::size_t row = std::size_t{blockIdx.x} * order.rows_of_block() + order.row_of(thread);
  const bool is_here = row < rows;
  if (is_here) results[thread] = order.of_lane(blockIdx.y, lane, first, terms(row), combine);
  for (unsigned half = order.lanes() / 2; half > 0; half /= 2) {
    __syncthreads();
    if (is_here) order.meet(results, thread, half, combine);
  }
  if (is_here && lane == 0) put(row * order.parts() + blockIdx.y, results[thread]);
}

template <class F>
void launch_each(Session& session, std::size_t n, const F& f) {
  if (n == 0) return;
  constexpr unsigned threads = 256;
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>((n + threads - 1) / threads, 8192));
  const OnDevice on(session.device().index);
  run_each<<<blocks, threads, 0, session.stream().get()>>>(n, f);
  check(cudaGetLastError(), "the launch of a loop");
}

template <class A, class Terms, class Combine, class Put>
void launch_round(Session& session, std::size_t rows, const RowOrder& order, A first,
                  const Terms& terms, const Combine& combine, const Put& put) {
  const std::size_t in_block = order.rows_of_block();
  const dim3 blocks(static_cast<unsigned>((rows + in_block - 1) / in_block), order.parts());
  combine_rows<<<blocks, RowOrder::threads, 0, session.stream().get()>>>(rows, order, first, terms,
                                                                         combine, put);
  check(cudaGetLastError(), "the launch of a sum");
}

template <class A, class Terms, class Combine, class Put>
void launch_reduce_each(Session& session, std::size_t rows, std::size_t n, Adjacent adjacent,
                        A first, const Terms& terms, const Combine& combine, const Put& put) {
  if (rows == 0) return;
  const OnDevice on(session.device().index);
  const RowOrder order(n, adjacent);
  const unsigned parts = order.parts();
  if (parts == 1) return launch_round(session, rows, order, first, terms, combine, put);
  A* const results = static_cast<A*>(session.scratch(rows * parts * sizeof(A)));
  launch_round(session, rows, order, first, terms, combine, PutInto<A>{results});
  launch_round(session, rows, RowOrder(parts, Adjacent::terms), first,
               PartsOfRow<A>{results, parts}, combine, put);
}

#else

template <class F>
void launch_each(Session&, std::size_t, const F&) {
  static_assert(sizeof(F) == 0,
                "the loops of the Cuda backend are kernels: compile this file with nvcc, as CUDA "
                "(.cu), with -std=c++20 --expt-relaxed-constexpr.");
}

template <class A, class Terms, class Combine, class Put>
void launch_reduce_each(Session&, std::size_t, std::size_t, Adjacent, A, const Terms&,
                        const Combine&, const Put&) {
  static_assert(sizeof(Terms) == 0,
                "the sums of the Cuda backend are kernels: compile this file with nvcc, as CUDA "
                "(.cu), with -std=c++20 --expt-relaxed-constexpr.");
}

#endif

}  // namespace shardwise::detail::cuda
