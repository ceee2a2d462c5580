#include <cblas.h>
#include <dlfcn.h>

#include "found.hpp"

namespace {

/// The text that function `name` gives, or nothing if the library has no such function.
std::string told_by(const char* name) {
  using Function = const char*();
  auto* const function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? "" : function();
}

}  // namespace

std::string info::cblas() {
  const double one = 1;
  if (cblas_ddot(1, &one, 1, &one, 1) != 1) return "a CBLAS that computes 1 * 1 != 1";
  const std::string config = told_by("openblas_get_config");
  if (config.empty()) return "a CBLAS that does not tell its name";
  return config.substr(config.find_first_not_of(' ')) + ", core " +
         told_by("openblas_get_corename");
}
