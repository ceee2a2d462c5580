#pragma once
// What a launcher told this process: which rank it is, of how many, and where the first one is.

#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "shardwise/core/error.hpp"

namespace shardwise {

/// How a variable is looked up: its value, or nothing where it is not set.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process.
inline std::optional<std::string> process_variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// A process of a job, as its launcher describes it.
struct LaunchEnvironment {
  std::string launcher;            ///< "torchrun", "MPI", "PMI" or "SLURM"
  int rank = 0;                    ///< 0 to size - 1
  int size = 1;                    ///< processes in the job
  std::optional<int> local_rank;   ///< among the processes of this machine, where it is told
  std::string master_address;      ///< of rank 0: a name or a number; empty where it is not told
  std::optional<int> master_port;  ///< where it listens, if that is told
  std::string token;  ///< what only processes of this job know; empty where it is not told
};

namespace detail {

/// The variables in which one launcher tells its three numbers.
struct LauncherVariables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
};

/// A launcher that was started by another one comes before it.
inline constexpr LauncherVariables launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}};

[[noreturn]] inline void wrong_variable(const std::string& what) {
  throw argument_error({"launch environment: ", what});
}

/// The variable as a whole number of `least` to `most`; nothing where it is not set or empty.
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

/// What one launcher told, if it told anything.
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
  LaunchEnvironment told;
  told.launcher = names.launcher;
  told.rank = *rank;
  told.size = *size;
  told.local_rank = number_variable(lookup, names.local_rank, 0, *size - 1);
  return told;
}

/// The same of a launcher around the one that has told all. What it tells by half, or what makes no
/// sense, is no error: a batch script of SLURM is rank 0 of a job whose size may not be told, and
/// torchrun or mpirun may be started in it.
inline std::optional<LaunchEnvironment> from_outer_launcher(const Lookup& lookup,
                                                            const LauncherVariables& names) {
  try {
    return from_launcher(lookup, names);
  } catch (const argument_error&) {
    return std::nullopt;
  }
}

/// MPICH under srun tells no local rank, and who sets RANK by hand may not either; but what started
/// them can. Another launcher that counts the same processes in the same order knows it.
inline void complete(LaunchEnvironment& told, const LaunchEnvironment& other) {
  if (!told.local_rank && told.rank == other.rank && told.size == other.size)
    told.local_rank = other.local_rank;
}

/// RANK that was set by hand is often left over from another job: then it must agree with what MPI
/// says. torchrun may run inside of an MPI or SLURM job, with other numbers.
inline void check_agreement(const Lookup& lookup, const LaunchEnvironment& by_hand,
                            const LaunchEnvironment& other) {
  if (lookup("TORCHELASTIC_RUN_ID") || other.launcher == "SLURM") return;
  if (by_hand.rank == other.rank && by_hand.size == other.size) return;
  wrong_variable("RANK and WORLD_SIZE say rank " + std::to_string(by_hand.rank) + " of " +
                 std::to_string(by_hand.size) + ", but " + other.launcher + " says rank " +
                 std::to_string(other.rank) + " of " + std::to_string(other.size) +
                 "; unset the ones that are left over");
}

}  // namespace detail

/// Reads, whichever is set first:
///
///     torchrun   RANK, WORLD_SIZE, LOCAL_RANK
///     Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///     MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
///     SLURM      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID
///
/// (the local rank of a later one, where the first tells none and their other numbers agree), and
/// besides MASTER_ADDR and MASTER_PORT; SHARDWISE_PORT goes before the latter, which torchrun's
/// own store may hold. The token is SHARDWISE_TOKEN, or else the number of the SLURM step.
///
/// throws  argument_error if no launcher has told anything; if the first that did told only half of
///         it, or what is no number, or a rank that is none; if RANK and MPI contradict each other
inline LaunchEnvironment read_launch_environment(const Lookup& lookup = process_variable) {
  std::optional<LaunchEnvironment> told;
  for (const detail::LauncherVariables& names : detail::launchers) {
    if (!told) {
      told = detail::from_launcher(lookup, names);
      continue;
    }
    const std::optional<LaunchEnvironment> other = detail::from_outer_launcher(lookup, names);
    if (!other) continue;
    if (told->launcher == "torchrun") detail::check_agreement(lookup, *told, *other);
    detail::complete(*told, *other);
  }
  if (!told)
    detail::wrong_variable(
        "no launcher has told which rank this is. Looked for RANK and WORLD_SIZE, "
        "OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID; start the program with torchrun, mpiexec "
        "or srun, or set RANK and WORLD_SIZE");

  told->master_address = lookup("MASTER_ADDR").value_or("");
  told->master_port = detail::number_variable(lookup, "SHARDWISE_PORT", 1, 65535);
  if (!told->master_port)
    told->master_port = detail::number_variable(lookup, "MASTER_PORT", 1, 65535);
  told->token = lookup("SHARDWISE_TOKEN").value_or("");
  const std::optional<std::string> job = lookup("SLURM_JOB_ID");
  if (told->token.empty() && job)
    told->token = "slurm " + *job + '.' + lookup("SLURM_STEP_ID").value_or("") + '.' +
                  lookup("SLURM_RESTART_COUNT").value_or("0");
  return *told;
}

}  // namespace shardwise
