#pragma once
// The collectives of a group by calls of NCCL. Arguments are right; blocks may be of any sizes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/checks.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::nccl {

/// Whether NCCL has one call for these blocks.
inline bool all_equal(std::span<const std::size_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

/// Calls f(rank, offset, count) for each block that is not empty. All ranks of a group leave out
/// the same ones.
template <class F>
void for_each_block(std::span<const std::size_t> counts, F&& f) {
  std::size_t offset = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) f(static_cast<int>(r), offset, counts[r]);
    offset += counts[r];
  }
}

/// A block that a rank has for itself.
template <class T>
void keep(Answers& answers, const T* from, T* to, std::size_t count, cudaStream_t stream) {
  if (from != to)
    answers(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToDevice, stream));
}

template <class T>
struct AllReduce {
  std::span<const T> in;
  std::span<T> out;
  Reduction reduction;

  Call call() const { return {Operation::all_reduce, dtype_v<T>, reduction, -1, 0, in.size(), {}}; }
  void operator()(Answers& answers, ncclComm_t comm, cudaStream_t stream) const {
    if (in.empty()) return;
    answers(ncclAllReduce(in.data(), out.data(), in.size(), type_of(dtype_v<T>),
                          operation_of(reduction), comm, stream));
  }
};

template <class T>
void all_reduce(Group& group, std::span<const T> in, std::span<T> out, Reduction reduction) {
  const AllReduce<T> sum{in, out, reduction};
  group.issue(sum.call(), sum);
}

template <class T>
Started start_all_reduce(Group& group, std::span<const T> in, std::span<T> out) {
  const AllReduce<T> sum{in, out, Reduction::sum};
  return group.start(sum.call(), sum);
}

/// Unequal blocks: each rank broadcasts its own.
template <class T>
void all_gather(Group& group, std::span<const T> in, std::span<T> out,
                std::span<const std::size_t> counts) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const Call call{Operation::all_gather, dtype_v<T>, {}, -1, 0, out.size(), counts};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (out.empty()) return;
    if (all_equal(counts)) {
      answers(ncclAllGather(in.data(), out.data(), counts[0], type, comm, stream));
      return;
    }
    for_each_block(counts, [&](int rank, std::size_t offset, std::size_t count) {
      T* const block = out.data() + offset;
      answers(ncclBroadcast(rank == group.rank() ? in.data() : block, block, count, type, rank,
                            comm, stream));
    });
  });
}

/// Unequal blocks: each is reduced onto its own rank.
template <class T>
void reduce_scatter(Group& group, std::span<const T> in, std::span<T> out,
                    std::span<const std::size_t> counts, Reduction reduction) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const ncclRedOp_t operation = operation_of(reduction);
  const Call call{Operation::reduce_scatter, dtype_v<T>, reduction, -1, 0, in.size(), counts};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (in.empty()) return;
    if (all_equal(counts)) {
      answers(ncclReduceScatter(in.data(), out.data(), counts[0], type, operation, comm, stream));
      return;
    }
    for_each_block(counts, [&](int rank, std::size_t offset, std::size_t count) {
      answers(ncclReduce(in.data() + offset, rank == group.rank() ? out.data() : nullptr, count,
                         type, operation, rank, comm, stream));
    });
  });
}

template <class T>
void broadcast(Group& group, std::span<T> data, int root) {
  const Call call{Operation::broadcast, dtype_v<T>, {}, root, 0, data.size(), {}};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (data.empty()) return;
    answers(ncclBroadcast(data.data(), data.data(), data.size(), type_of(dtype_v<T>), root, comm,
                          stream));
  });
}

template <class T>
void gather(Group& group, std::span<const T> in, std::span<T> out,
            std::span<const std::size_t> counts, int root) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const Call call{Operation::gather, dtype_v<T>, {}, root, 0, total(counts), counts};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (group.rank() != root) {
      if (!in.empty()) answers(ncclSend(in.data(), in.size(), type, root, comm, stream));
      return;
    }
    for_each_block(counts, [&](int rank, std::size_t offset, std::size_t count) {
      T* const block = out.data() + offset;
      if (rank == root)
        keep(answers, in.data(), block, count, stream);
      else
        answers(ncclRecv(block, count, type, rank, comm, stream));
    });
  });
}

template <class T>
void scatter(Group& group, std::span<const T> in, std::span<T> out,
             std::span<const std::size_t> counts, int root) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const Call call{Operation::scatter, dtype_v<T>, {}, root, 0, total(counts), counts};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (group.rank() != root) {
      if (!out.empty()) answers(ncclRecv(out.data(), out.size(), type, root, comm, stream));
      return;
    }
    for_each_block(counts, [&](int rank, std::size_t offset, std::size_t count) {
      const T* const block = in.data() + offset;
      if (rank == root)
        keep(answers, block, out.data(), count, stream);
      else
        answers(ncclSend(block, count, type, rank, comm, stream));
    });
  });
}

template <class T>
void all_to_all(Group& group, std::span<const T> in, std::span<const std::size_t> sent,
                std::span<T> out, std::span<const std::size_t> received) {
  constexpr ncclDataType_t type = type_of(dtype_v<T>);
  const T* const own = in.data() + offset(sent, group.rank());
  const Call call{Operation::all_to_all, dtype_v<T>, {}, -1, 0, in.size(), {}};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    for_each_block(sent, [&](int rank, std::size_t begin, std::size_t count) {
      if (rank != group.rank())
        answers(ncclSend(in.data() + begin, count, type, rank, comm, stream));
    });
    for_each_block(received, [&](int rank, std::size_t begin, std::size_t count) {
      if (rank != group.rank())
        answers(ncclRecv(out.data() + begin, count, type, rank, comm, stream));
      else
        keep(answers, own, out.data() + begin, count, stream);
    });
  });
}

template <class T>
void send(Group& group, std::span<const T> data, int to, int tag) {
  const Call call{Operation::send, dtype_v<T>, {}, to, tag, data.size(), {}};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (!data.empty())
      answers(ncclSend(data.data(), data.size(), type_of(dtype_v<T>), to, comm, stream));
  });
}

template <class T>
void receive(Group& group, std::span<T> data, int from, int tag) {
  const Call call{Operation::receive, dtype_v<T>, {}, from, tag, data.size(), {}};
  group.issue(call, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    if (!data.empty())
      answers(ncclRecv(data.data(), data.size(), type_of(dtype_v<T>), from, comm, stream));
  });
}

/// Done on a rank when all ranks have called.
inline void meet(Group& group) {
  group.issue(Call{Operation::barrier}, [&](Answers& answers, ncclComm_t comm,
                                            cudaStream_t stream) {
    answers(ncclAllReduce(group.scratch(), group.scratch(), 1, ncclInt32, ncclMax, comm, stream));
  });
}

/// Where a rank belongs that a split gives a color and a key.
struct Part {
  int name;      ///< of the color: its first rank, since NCCL's colors are not negative
  int position;  ///< in the part, by key and then by rank
};

/// A collective; waits for it.
inline Part part_of(Group& group, int color, int key) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::int32_t mine[] = {color, key};
  std::vector<std::int32_t> all(2 * ranks);
  std::int32_t* const own = group.scratch() + 2 * ranks;
  group.issue(Call{Operation::split}, [&](Answers& answers, ncclComm_t comm, cudaStream_t stream) {
    answers(cudaMemcpyAsync(own, mine, sizeof mine, cudaMemcpyHostToDevice, stream));
    answers(ncclAllGather(own, group.scratch(), 2, ncclInt32, comm, stream));
  });
  group.wait();
  check(cudaMemcpyAsync(all.data(), group.scratch(), all.size() * sizeof(std::int32_t),
                        cudaMemcpyDeviceToHost, group.terms().stream),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(group.terms().stream), "cudaStreamSynchronize");

  Part part{-1, 0};
  for (std::size_t r = 0; r < ranks; ++r) {
    if (all[2 * r] != color) continue;
    if (part.name < 0) part.name = static_cast<int>(r);
    const bool is_before =
        all[2 * r + 1] != key ? all[2 * r + 1] < key : r < static_cast<std::size_t>(group.rank());
    part.position += is_before ? 1 : 0;
  }
  return part;
}

}  // namespace shardwise::detail::nccl
