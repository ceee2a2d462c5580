#pragma once
// Sums as kernels, in both of their rounds.

#include <type_traits>

#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/core/tensor_memory.hpp"

template <class A, class Terms, class Combine, class Put>
void compile_rows(shardwise::detail::cuda::Session& session, const Terms& terms,
                  const Combine& combine, const Put& put) {
  static_assert(std::is_trivially_copyable_v<Terms> && std::is_trivially_copyable_v<Put>);
  shardwise::detail::cuda::launch_reduce_each(session, 5, 7, shardwise::Adjacent::terms, A{}, terms,
                                              combine, put);
}

template <class A, class Term, class Combine>
void compile_sum(shardwise::detail::cuda::Session& session, A, const Term& term,
                 const Combine& combine, A* out) {
  compile_rows<A>(session, shardwise::detail::OnlyRow<Term>{term}, combine,
                  shardwise::detail::PutInto<A>{out});
}
