#pragma once
// How tests steer the stand-in for NCCL and CUDA (stand_in.cpp).

#include <nccl.h>

#include <atomic>

namespace stand_in {

/// Of each process: how many devices there are, and whether the driver is missing.
inline std::atomic<int> devices{8};
inline std::atomic<bool> has_driver{true};

/// How many communicators of NCCL, streams, events, graphs and blocks of memory are there.
inline std::atomic<int> alive{0};

/// What the next call of ncclCommGetAsyncError on any communicator reports; once.
inline std::atomic<ncclResult_t> next_async_error{ncclSuccess};
/// What the next collective returns; once.
inline std::atomic<ncclResult_t> next_result{ncclSuccess};
/// ncclCommGetAsyncError says ncclInProgress so often after each call.
inline std::atomic<int> progress_turns{0};

/// Whether kernels have failed.
inline std::atomic<bool> device_is_broken{false};

/// Whether two calls of NCCL were ever under way on one device, which may then end on none.
inline std::atomic<bool> some_at_once{false};

/// Calls so far.
inline std::atomic<int> events{0};
inline std::atomic<int> aborted{0};
inline std::atomic<int> destroyed{0};

}  // namespace stand_in
