#pragma once
// How much a collective must move at least, and the two bandwidths that follow from its time.
//
// The algorithm bandwidth is the size of the buffer over the time: how quickly data is dealt with,
// as a user sees it. It cannot be compared between operations and numbers of ranks, because they
// need not move the same. The bus bandwidth can: it is what the busiest rank has to send (or to
// receive, if that is more) whatever the algorithm, over the time, so with a perfect algorithm it
// is the speed of that rank's connection.
// source   nccl-tests, doc/PERFORMANCE.md, whose factors these are; that no all-reduce sends less:
//          Patarasu and Yuan 2009

#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/call.hpp"

namespace bench {

/// Bytes that the busiest of `ranks` ranks must send or receive. `bytes` is the whole buffer: what
/// each rank passes to all_reduce, reduce_scatter, all_to_all and send, what each has behind an
/// all_gather, and what the root has of a broadcast, gather or scatter. Blocks are equal.
constexpr double least_bytes(shardwise::Operation operation, int ranks, double bytes) {
  using enum shardwise::Operation;
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case all_reduce:  // all but one block out as summands, and as many sums out again
      return 2 * others * bytes;
    case all_gather:
    case reduce_scatter:
    case gather:
    case scatter:
    case all_to_all:
      return others * bytes;
    case broadcast:
    case send:
      return ranks > 1 ? bytes : 0;
    default:
      return 0;
  }
}

/// What one call moves, on the busiest rank.
struct Traffic {
  double bytes = 0;    // of the whole buffer; 0 for what moves nothing
  double least = 0;    // that must be sent or received
  double planned = 0;  // that the library's plans count, the mean of the ranks; 0 without a plan
};

/// For the table and for JSON; bandwidths in units of 10^9 bytes in a second.
inline std::vector<std::pair<std::string, double>> described(const Traffic& traffic,
                                                             double seconds) {
  if (traffic.bytes == 0) return {};
  std::vector<std::pair<std::string, double>> all{{"bytes", traffic.bytes},
                                                  {"least bytes", traffic.least}};
  if (traffic.planned > 0) all.emplace_back("planned bytes", traffic.planned);
  all.emplace_back("algorithm GB/s", 1e-9 * traffic.bytes / seconds);
  all.emplace_back("bus GB/s", 1e-9 * traffic.least / seconds);
  return all;
}

}  // namespace bench
