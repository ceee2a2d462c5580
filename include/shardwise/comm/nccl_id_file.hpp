#pragma once
// An id of NCCL that rank 0 gives to the other ranks in a file.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

namespace detail::nccl {

/// Writes the file under another name and renames it, so that no rank reads a part of it.
inline ncclUniqueId write_id(const std::filesystem::path& path) {
  constexpr const char* kind = "NCCL id file";
  if (std::filesystem::exists(path))
    throw argument_error(
        {kind, " ", path.string(),
         " exists already, so another rank may have read an old id from it; give each start of the "
         "job a new path, for example one with the number of the job, and run rank 0 once"});
  const ncclUniqueId id = new_id();
  const std::string unfinished = path.string() + ".tmp" + std::to_string(::getpid());
  File::create(unfinished, kind).write(0, std::as_bytes(std::span(id.internal)));
  rename_file(unfinished, path, kind);
  return id;
}

/// Nothing if the file is not there yet.
inline std::optional<ncclUniqueId> read_id(const std::filesystem::path& path) {
  ncclUniqueId id;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(id.internal, sizeof id.internal)) return std::nullopt;
  return id;
}

}  // namespace detail::nccl

/// Rank 0 makes an id of NCCL and writes it to `path`; the other ranks wait for the file and read
/// it. All ranks return the same id, for a constructor of NcclCommunicator:
///
///     const ncclUniqueId id = nccl_id_in_file("/shared/id." + job, rank);
///     NcclCommunicator ranks(id, rank, size, options);
///
/// Each start of a job, also a restart, needs a new path: ranks cannot see that a file is from an
/// earlier start. Nothing removes the file; the job may remove it when the ranks are connected.
///
/// throws  argument_error on rank 0 if the file exists
///         data_error on rank 0 if the file cannot be written
///         peer_error on another rank after the time-out
inline ncclUniqueId nccl_id_in_file(const std::filesystem::path& path, int rank,
                                    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  if (rank == 0) return detail::nccl::write_id(path);
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    if (const auto id = detail::nccl::read_id(path)) return *id;
    if (std::chrono::steady_clock::now() >= until)
      throw peer_error({"rank ", rank, ": after ", timeout.count(), " ms, there is no NCCL id in ",
                        path.string(),
                        ". Does rank 0 run, with this path, and do both see the same folder?"});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace shardwise
