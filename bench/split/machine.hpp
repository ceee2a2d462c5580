#pragma once
// What /proc says of the machine.

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace split {

/// The processor's name, without commas and quotes; "unknown processor" where none is given.
inline std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    std::string name = line.substr(line.find(':') + 2);
    for (char& c : name)
      if (c == ',' || c == '"') c = ' ';
    return name;
  }
  return "unknown processor";
}

/// Bytes that programs may still take, or 0 if the system does not say.
inline double available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("MemAvailable:", 0) == 0)
      return 1024 * std::strtod(line.c_str() + line.find(':') + 1, nullptr);
  }
  return 0;
}

/// Programs that ran or waited to run, on average over the last minute.
inline double load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? average : 0;
}

}  // namespace split
