#include "found.hpp"
#include "shardwise/comm/detail/mpi_library.hpp"

std::string info::mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);  // one of the few calls that MPI allows before its start
  const std::string version(text, static_cast<std::size_t>(length));
  std::string line;
  for (const char c : version.substr(0, version.find_first_of(",\n"))) {
    const bool is_space = c == ' ' || c == '\t';
    if (!is_space || (!line.empty() && line.back() != ' ')) line += is_space ? ' ' : c;
  }
  return line;
}
