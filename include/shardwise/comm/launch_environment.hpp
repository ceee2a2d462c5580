#pragma once
// The variables that a launcher sets for a process: its rank, the number of ranks, and the address
// of rank 0.

#include <functional>
#include <optional>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

namespace detail {

/// Looks up a variable: its value, or nothing if it is not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process.
std::optional<std::string> process_variable(const std::string& name);

}  // namespace detail

/// A process of a job, as its launcher describes it.
struct LaunchEnvironment {
  std::string launcher;            ///< "torchrun", "MPI", "PMI" or "SLURM"
  int rank = 0;                    ///< 0 to size - 1
  int size = 1;                    ///< processes in the job
  std::optional<int> local_rank;   ///< among the processes of this machine, if known
  std::string master_address;      ///< name or number of the machine of rank 0; empty if not known
  std::optional<int> master_port;  ///< where rank 0 listens, if known
};

/// Reads the first of these that is set:
///
///     torchrun   RANK, WORLD_SIZE, LOCAL_RANK
///     Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///     MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
///     SLURM      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
///
/// If the first has no local rank, it is that of a later one whose rank and size agree. Reads also
/// MASTER_ADDR, and SHARDWISE_PORT or else MASTER_PORT, because torchrun's own store may use the
/// latter.
///
/// throws  argument_error if no launcher has set its variables; if those of the first one are
///         incomplete, are not integers, or have a rank that is not below the size; if RANK and MPI
///         disagree
LaunchEnvironment read_launch_environment(const detail::Lookup& lookup = detail::process_variable);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <charconv>
#include <cstdlib>
#include <system_error>

namespace shardwise::detail {

/// The variables of one launcher.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
};

/// The inner launcher comes before the one that started it.
inline constexpr LauncherVariables launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

[[noreturn]] inline void wrong_variable(const std::string& what) {
  throw argument_error({"launch environment: ", what});
}

/// The variable as an integer of `least` to `most`; nothing if it is not set or empty.
inline std::optional<int> number_variable(const Lookup& lookup, const char* name, int least,
                                          int most) {
  const std::optional<std::string> text = lookup(name);
  if (!text || text->empty()) return std::nullopt;
  int value = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (code != std::errc() || end != text->data() + text->size() || value < least || value > most)
    wrong_variable(std::string(name) + " is '" + *text + "'; it must be a whole number of " +
                   std::to_string(least) + " to " + std::to_string(most));
  return value;
}

/// The variables of one launcher, if it has set any.
inline std::optional<LaunchEnvironment> from_launcher(const Lookup& lookup,
                                                      const LauncherVariables& names) {
  constexpr int most = 1 << 24;
  const std::optional<int> rank = number_variable(lookup, names.rank, 0, most);
  const std::optional<int> size = number_variable(lookup, names.size, 1, most);
  if (!rank && !size) return std::nullopt;
  if (!rank || !size)
    wrong_variable(std::string(rank ? names.rank : names.size) + " is set and " +
                   (rank ? names.size : names.rank) +
                   " is not; start all processes with one launcher, or set both");
  if (*rank >= *size)
    wrong_variable(std::string(names.rank) + " is " + std::to_string(*rank) + " and " + names.size +
                   " is " + std::to_string(*size) + "; ranks are 0 to " +
                   std::to_string(*size - 1));
  LaunchEnvironment found;
  found.launcher = names.launcher;
  found.rank = *rank;
  found.size = *size;
  found.local_rank = number_variable(lookup, names.local_rank, 0, *size - 1);
  return found;
}

/// The same for an outer launcher. If its variables are incomplete or not valid, that is not an
/// error: a batch script of SLURM is rank 0 of a job whose size may not be set, and it may start
/// torchrun or mpirun.
inline std::optional<LaunchEnvironment> from_outer_launcher(const Lookup& lookup,
                                                            const LauncherVariables& names) {
  try {
    return from_launcher(lookup, names);
  } catch (const argument_error&) {
    return std::nullopt;
  }
}

/// MPICH under srun does not set a local rank, and a user who sets RANK may not either. An outer
/// launcher with the same rank and size can have it.
inline void complete(LaunchEnvironment& found, const LaunchEnvironment& other) {
  if (!found.local_rank && found.rank == other.rank && found.size == other.size)
    found.local_rank = other.local_rank;
}

/// A RANK that was set by hand is often left from another job, so it must agree with MPI. torchrun
/// may run inside an MPI or SLURM job with other numbers.
inline void check_agreement(const Lookup& lookup, const LaunchEnvironment& manual,
                            const LaunchEnvironment& other) {
  if (lookup("TORCHELASTIC_RUN_ID") || other.launcher == "SLURM") return;
  if (manual.rank == other.rank && manual.size == other.size) return;
  wrong_variable("RANK and WORLD_SIZE say rank " + std::to_string(manual.rank) + " of " +
                 std::to_string(manual.size) + ", but " + other.launcher + " says rank " +
                 std::to_string(other.rank) + " of " + std::to_string(other.size) +
                 "; unset the ones that are left over");
}

}  // namespace shardwise::detail

namespace shardwise {

namespace detail {

SHARDWISE_INLINE std::optional<std::string> process_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace detail

SHARDWISE_INLINE LaunchEnvironment read_launch_environment(const detail::Lookup& lookup) {
  std::optional<LaunchEnvironment> found;
  for (const detail::LauncherVariables& names : detail::launchers) {
    if (!found) {
      found = detail::from_launcher(lookup, names);
      continue;
    }
    const std::optional<LaunchEnvironment> other = detail::from_outer_launcher(lookup, names);
    if (!other) continue;
    if (found->launcher == "torchrun") detail::check_agreement(lookup, *found, *other);
    detail::complete(*found, *other);
  }
  if (!found)
    detail::wrong_variable(
        "no launcher has set the rank of this process. Looked for RANK and WORLD_SIZE, "
        "OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID; start the program with torchrun, mpiexec "
        "or srun, or set RANK and WORLD_SIZE");

  found->master_address = lookup("MASTER_ADDR").value_or("");
  found->master_port = detail::number_variable(lookup, "SHARDWISE_PORT", 1, 65535);
  if (!found->master_port)
    found->master_port = detail::number_variable(lookup, "MASTER_PORT", 1, 65535);
  return *found;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
