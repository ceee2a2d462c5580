#pragma once
// An id of NCCL that rank 0 gives to the other ranks in a file.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"

namespace shardwise {

namespace detail::nccl {

inline constexpr const char* id_file = "NCCL id file";

/// Writes the file under another name and renames it, so that no rank reads a part of it.
inline ncclUniqueId write_id(const std::filesystem::path& path) {
  if (std::filesystem::exists(path))
    throw argument_error(
        {id_file, " ", path.string(),
         " exists already, so another rank may have read an old id from it; give each start of the "
         "job a new path, for example one with the number of the job, and run rank 0 once"});
  const ncclUniqueId id = new_id();
  const std::string unfinished = path.string() + ".tmp" + std::to_string(::getpid());
  File::create(unfinished, id_file).write(0, std::as_bytes(std::span(id.internal)));
  rename_file(unfinished, path, id_file);
  return id;
}

/// Nothing if the file is not there yet. `write_id` shows a file only when it is whole. `rank` is
/// the one that reads.
inline std::optional<ncclUniqueId> read_id(const std::filesystem::path& path, int rank) {
  if (!is_there(path, id_file)) return std::nullopt;
  ncclUniqueId id;
  const auto file = File::open(path, id_file);
  if (file.size() != sizeof id.internal)
    file.fail("has " + std::to_string(file.size()) + " bytes, and an id of NCCL has " +
              std::to_string(sizeof id.internal) + ", so rank 0 has not written it; give rank " +
              std::to_string(rank) + " the path that rank 0 writes");
  file.read(0, std::as_writable_bytes(std::span(id.internal)));
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
///         data_error on rank 0 if the file cannot be written, and on another rank if it cannot be
///         read or has another length than an id
///         peer_error on another rank after the time-out
inline ncclUniqueId nccl_id_in_file(const std::filesystem::path& path, int rank,
                                    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  if (rank == 0) return detail::nccl::write_id(path);
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    if (const auto id = detail::nccl::read_id(path, rank)) return *id;
    if (std::chrono::steady_clock::now() >= until)
      throw peer_error({"rank ", rank, ": after ", timeout.count(), " ms, there is no NCCL id in ",
                        path.string(),
                        ". Does rank 0 run, with this path, and do both see the same folder?"});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace shardwise
