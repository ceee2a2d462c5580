#include <oneapi/dnnl/dnnl.h>

#include "found.hpp"

std::string info::onednn() {
  const dnnl_version_t& version = *dnnl_version();
  return "oneDNN " + std::to_string(version.major) + '.' + std::to_string(version.minor) + '.' +
         std::to_string(version.patch);
}
