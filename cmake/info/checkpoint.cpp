#include <nlohmann/json.hpp>

#include "found.hpp"

std::string info::checkpoint() {
  return "nlohmann-json " + std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + '.' +
         std::to_string(NLOHMANN_JSON_VERSION_MINOR) + '.' +
         std::to_string(NLOHMANN_JSON_VERSION_PATCH);
}
