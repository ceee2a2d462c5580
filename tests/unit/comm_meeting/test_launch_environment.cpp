// What a launcher tells is read from a map, so that no variable of this process is touched.

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "shardwise/comm/launch_environment.hpp"

using namespace shardwise;

namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

void check_refused(const Variables& variables, const char* sentence) {
  CAPTURE(sentence);
  CHECK_THROWS_WITH_AS(read(variables), sentence, argument_error);
}

}  // namespace

TEST_CASE("launch environment: each launcher's variables are read") {
  const struct {
    const char* launcher;
    const char* names[3];
  } cases[] = {
      {"torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}},
      {"MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}},
      {"PMI", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"}},
      {"SLURM", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}};
  for (const auto& one : cases) {
    CAPTURE(one.launcher);
    Variables variables{{one.names[0], "5"}, {one.names[1], "8"}};
    CHECK(!read(variables).local_rank.has_value());
    variables[one.names[2]] = "7";
    const LaunchEnvironment told = read(variables);
    CHECK(told.launcher == one.launcher);
    CHECK(told.rank == 5);
    CHECK(told.size == 8);
    CHECK(told.local_rank == 7);
    CHECK(told.master_address.empty());
    CHECK(!told.master_port.has_value());
  }
}

TEST_CASE("launch environment: the inner launcher comes first") {
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  Variables both = slurm;
  both.insert({{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  CHECK(read(both).rank == 3);
  both = slurm;
  both.insert({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  CHECK(read(both).rank == 2);
  // torchrun, started once on each node by mpiexec
  both.insert({{"RANK", "9"}, {"WORLD_SIZE", "16"}, {"TORCHELASTIC_RUN_ID", "none"}});
  CHECK(read(both).rank == 9);
}

TEST_CASE("launch environment: what an outer launcher tells by half is no error") {
  const Variables inner[] = {{{"RANK", "0"}, {"WORLD_SIZE", "2"}},
                             {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                             {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}};
  const Variables outer[] = {
      {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}},  // a batch script without --ntasks
      {{"SLURM_NTASKS", "2"}},
      {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "2"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "2"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2(x3)"}}};
  for (const Variables& told : inner) {
    for (const Variables& half : outer) {
      CAPTURE(told.begin()->first);
      CAPTURE(half.begin()->first);
      Variables both = told;
      both.insert(half.begin(), half.end());
      CHECK(read(both).launcher == read(told).launcher);
      CHECK(read(both).rank == 0);
      CHECK(read(both).size == 2);
      CHECK(!read(both).local_rank.has_value());
      CHECK_THROWS_AS(read(half), argument_error);
    }
  }
  const LaunchEnvironment torchrun = read({{"RANK", "0"},
                                           {"WORLD_SIZE", "2"},
                                           {"LOCAL_RANK", "0"},
                                           {"TORCHELASTIC_RUN_ID", "none"},
                                           {"SLURM_PROCID", "0"}});
  CHECK(torchrun.launcher == "torchrun");
  CHECK(torchrun.local_rank == 0);
}

TEST_CASE("launch environment: a local rank that one launcher does not tell is that of another") {
  const Variables slurm{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};
  const Variables others[] = {{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}},  // srun --mpi=pmi2
                              {{"RANK", "5"}, {"WORLD_SIZE", "8"}}};   // set by a script
  for (const Variables& other : others) {
    CAPTURE(other.begin()->first);
    Variables both = slurm;
    both.insert(other.begin(), other.end());
    CHECK(read(both).local_rank == 1);
    both["SLURM_PROCID"] = "0";  // of the script, and not of this process
    CHECK(!read(both).local_rank.has_value());
    both["SLURM_PROCID"] = "5";
    both["SLURM_NTASKS"] = "6";
    CHECK(!read(both).local_rank.has_value());
  }
  Variables own = slurm;
  own.insert({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "3"}});
  CHECK(read(own).local_rank == 3);
  CHECK(read({{"RANK", "1"},
              {"WORLD_SIZE", "4"},
              {"OMPI_COMM_WORLD_RANK", "1"},
              {"OMPI_COMM_WORLD_SIZE", "4"},
              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}})
            .local_rank == 1);
}

TEST_CASE("launch environment: address and port") {
  Variables variables{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  CHECK(read(variables).master_address == "10.0.0.1");
  CHECK(read(variables).master_port == 29500);
  variables["SHARDWISE_PORT"] = "4000";
  CHECK(read(variables).master_port == 4000);
}

TEST_CASE("launch environment: what is missing, no number or contradictory") {
  check_refused(
      {},
      "launch environment: no launcher has set the rank of this process. Looked for RANK and "
      "WORLD_SIZE, OMPI_COMM_WORLD_RANK, PMI_RANK and SLURM_PROCID; start the program "
      "with torchrun, mpiexec or srun, or set RANK and WORLD_SIZE");
  check_refused({{"RANK", "1"}},
                "launch environment: RANK is set and WORLD_SIZE is not; start all processes with "
                "one launcher, or set both");
  check_refused({{"PMI_SIZE", "1"}, {"PMI_RANK", ""}},
                "launch environment: PMI_SIZE is set and PMI_RANK is not; start all processes with "
                "one launcher, or set both");
  check_refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}},
                "launch environment: RANK is 4 and WORLD_SIZE is 4; ranks are 0 to 3");
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}},
                "launch environment: LOCAL_RANK is '2'; it must be a whole number of 0 to 1");
  for (const char* const wrong : {"one", "-1", "1.5", "1 ", " 1", "0x1", "99999999999", "+1"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(read({{"RANK", wrong}, {"WORLD_SIZE", "2"}}), argument_error);
    CHECK_THROWS_AS(read({{"RANK", "0"}, {"WORLD_SIZE", wrong}, {"MASTER_PORT", wrong}}),
                    argument_error);
  }
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "65536"}},
                "launch environment: MASTER_PORT is '65536'; it must be a whole number of 1 to "
                "65535");
  check_refused({{"RANK", "0"},
                 {"WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_SIZE", "4"}},
                "launch environment: RANK and WORLD_SIZE say rank 0 of 4, but MPI says rank 1 of "
                "4; unset the ones that are left over");
}

TEST_CASE("launch environment: the variables of the process are looked up by default") {
  CHECK(!detail::process_variable("SHARDWISE_TEST_A_NAME_THAT_NOBODY_SETS").has_value());
  const char* const path = std::getenv("PATH");
  CHECK(detail::process_variable("PATH") ==
        (path == nullptr ? std::nullopt : std::optional<std::string>(path)));
}
