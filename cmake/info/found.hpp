#pragma once
// What there is to print, and who knows it.

#include <string>
#include <vector>

namespace info {

/// `found` is the version of what was found; if it is empty, `missing` says what to do.
struct Row {
  std::string name;
  std::string found;
  std::string missing;
};

std::vector<Row> parts();    ///< of the library, by target
std::vector<Row> headers();  ///< of NVIDIA's libraries

// What the library behind a part says of itself. Defined only where the part was found.
std::string onednn();
std::string cblas();
std::string mpi();
std::string checkpoint();

}  // namespace info
