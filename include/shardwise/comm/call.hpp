#pragma once
// The call of a rank: the part of a collective on which all ranks must agree, and its text for
// messages.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

/// The operations of a communicator. Messages and plans print these names.
enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  gather,
  scatter,
  all_to_all,
  send,
  receive,
  barrier,
  split,
  halo_exchange,     ///< of neighbours, where ranks read each other's memory; else an all_to_all
  halo_sum,          ///< its adjoint
  recorded,          ///< all calls of a recording that is launched
  begin_all_reduce,  ///< where ranks that make an all_reduce make another call
  begin_reduce_scatter,  ///< the same of a reduce_scatter
  begin_all_gather       ///< the same of an all_gather
};

/// "all_reduce".
constexpr std::string_view name(Operation operation) {
  constexpr std::string_view names[] = {"all_reduce",
                                        "all_gather",
                                        "reduce_scatter",
                                        "broadcast",
                                        "gather",
                                        "scatter",
                                        "all_to_all",
                                        "send",
                                        "receive",
                                        "barrier",
                                        "split",
                                        "halo_exchange",
                                        "halo_sum",
                                        "recorded",
                                        "begin_all_reduce",
                                        "begin_reduce_scatter",
                                        "begin_all_gather"};
  return names[static_cast<std::size_t>(operation)];
}

namespace detail {

/// The operation that begins this one.
constexpr Operation that_begins(Operation operation) {
  if (operation == Operation::all_reduce) return Operation::begin_all_reduce;
  return operation == Operation::all_gather ? Operation::begin_all_gather
                                            : Operation::begin_reduce_scatter;
}

/// Whether it combines the values of the ranks.
constexpr bool reduces(Operation operation) {
  return operation == Operation::all_reduce || operation == Operation::reduce_scatter ||
         operation == Operation::begin_all_reduce || operation == Operation::begin_reduce_scatter;
}

}  // namespace detail

/// How the values of the ranks are combined. A NaN on any rank gives NaN, in max and min too.
enum class Reduction : std::uint8_t { sum, max, min };

/// "sum".
constexpr std::string_view name(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "max", "min"};
  return names[static_cast<std::size_t>(reduction)];
}

/// One call of one rank. All fields but `mine` must be the same on all ranks of the group; only a
/// send and its receive name each other in `root`, and may be at different layers.
struct Call {
  Operation operation = Operation::barrier;  ///< which one
  Dtype dtype = Dtype::uint8;                ///< of the elements
  Reduction reduction = Reduction::sum;      ///< of an all_reduce or reduce_scatter
  int root = -1;     ///< the root; the partner of a send or receive; -1 if there is none
  int tag = 0;       ///< of a send or receive
  int axis = 0;      ///< that the blocks split, if ranks read peers' memory
  int to_axis = -1;  ///< that they split after such an all_to_all; else -1
  /// Elements of one rank's buffer, or of all blocks together if counts are given.
  std::size_t elements = 0;
  std::span<const std::size_t> counts{};  ///< elements of each rank's block, in rank order
  std::size_t mine = 0;              ///< elements that this rank passes in; no message prints them
  Mark mark = detail::current_mark;  ///< where the rank makes it
};

namespace detail {

/// For example "all_reduce(sum, float32, 640 elements)", "barrier()".
[[gnu::cold]] std::string text_without_mark(const Call& call);

}  // namespace detail

/// For example "barrier()", "barrier() at step 12", or "all_reduce(sum, float32, 640 elements) at
/// step 12, 0/3: RowParallelLinear, backward".
std::string to_string(const Call& call);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string text_without_mark(const Call& call) {
  if (call.operation == Operation::barrier || call.operation == Operation::split ||
      call.operation == Operation::recorded)
    return sentence({name(call.operation), "()"});
  const bool reduces = detail::reduces(call.operation);
  std::string text = sentence({name(call.operation), "(", reduces ? name(call.reduction) : "",
                               reduces ? ", " : "", name(call.dtype), ", ", call.elements,
                               call.elements == 1 ? " element" : " elements",
                               call.counts.empty() ? "" : " in counts"});
  for (const std::size_t count : call.counts) append(text, {" ", count});
  if (call.operation == Operation::send || call.operation == Operation::receive) {
    const char* partner = call.operation == Operation::send ? ", to " : ", from ";
    return sentence({text, partner, call.root, ", tag ", call.tag, ")"});
  }
  if (call.root >= 0) append(text, {", root ", call.root});
  if (call.axis > 0 || call.to_axis >= 0) append(text, {", axis ", call.axis});
  if (call.to_axis >= 0) append(text, {" to axis ", call.to_axis});
  return sentence({text, ")"});
}

}  // namespace shardwise::detail

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Call& call) {
  const std::string mark = to_string(call.mark);
  return detail::sentence({detail::text_without_mark(call), mark.empty() ? "" : " at ", mark});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
