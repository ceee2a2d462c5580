#pragma once
// How tests steer the stand-ins for CUDA's runtime (stand_in.cpp) and cuBLASLt
// (cublaslt_stand_in.cpp).

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace stand_in {

/// The machine: its devices, of one compute capability, and how much memory each has free.
inline int devices = 2;
inline bool has_driver = true;
inline int major = 9;
inline std::size_t free_bytes = std::size_t{1} << 30;
/// Whether devices could reach each other's memory, and how many were told to.
inline bool has_peer_access = true;
inline int peers_reached = 0;
/// On which device all memory is said to lie, and whether devices reach the host's, too.
inline int memory_of_device = 0;
inline bool reaches_all = false;

/// Streams, events, pieces of memory, handles and descriptors that are there.
inline int alive = 0;
/// Calls that took memory of a device or pinned memory.
inline int allocations = 0;
/// Waits for an event behind which the stream had more to do.
inline int waits_with_work_behind = 0;

/// Calls of functions that can fail, and which of them is to: its number, from 1 on. Its name.
inline int calls = 0;
inline int fails_at = 0;
inline std::string failed;

/// Whether streams are being captured into a graph.
inline bool is_capturing = false;

/// What was done first against the documentation; empty if nothing.
inline std::string misuse;

/// True if the call fails that is just made.
bool fails(const char* name);
void report(const std::string& text);

/// Whether streams do their work at once, on memory of the host.
inline bool at_once = false;

/// Puts a kernel on a stream. It runs when somebody waits for the stream.
void push(cudaStream_t stream, std::function<void()> kernel);
/// The time of a device that passes while the kernel runs that calls this.
void take_time(float milliseconds);

/// Whether these bytes are memory of a device.
bool is_on_device(const void* from, std::size_t bytes);

// --- cuBLASLt
// ------------------------------------------------------------------------------------

/// Epilogue bits for which it has no algorithm and what it says to them, and whether it has one at
/// all.
inline std::uint32_t lacks = 0;
inline cublasStatus_t says_to_lacks = CUBLAS_STATUS_NOT_SUPPORTED;
inline bool has_algorithms = true;
/// Which of the eight algorithms is the fastest, and which of them refuse to run.
inline int fastest = 0;
inline std::uint32_t refusing = 0;
/// Calls so far, the algorithm that ran last, and the epilogue that it had.
inline int heuristics = 0;
inline int matmuls = 0;
inline int algorithm = -1;
inline std::uint32_t epilogue = 0;

}  // namespace stand_in
