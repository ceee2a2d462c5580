// A stand-in for NVIDIA's driver, libcuda.so.1, for a machine that has none. cuDNN compiles most of
// its attention when it makes a plan, and then gives the machine code to the driver. This one takes
// code for any device, remembers for which, and runs none.

#include <cstdint>
#include <cstring>

namespace {

constexpr int success = 0;
constexpr int not_there = 34;  // as NVIDIA's own stub of the driver says

/// The capability, as 90, for which an object file of machine code was made; 0 if it is none.
int capability_of(const void* code) {
  constexpr std::size_t machine_at = 18, flags_at = 48;
  constexpr std::uint16_t machine_of_gpus = 190;
  const auto* const bytes = static_cast<const unsigned char*>(code);
  std::uint16_t machine = 0;
  std::uint32_t flags = 0;
  std::memcpy(&machine, bytes + machine_at, sizeof(machine));
  std::memcpy(&flags, bytes + flags_at, sizeof(flags));
  const bool is_code = std::memcmp(bytes, "\177ELF", 4) == 0 && machine == machine_of_gpus;
  return is_code ? static_cast<int>(flags >> 8U & 0xFFU) : 0;
}

int last_capability = 0;
char library = 0;  // its address stands for all code and all kernels

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVIDIA's
extern "C" {

/// The capability, as 90, of the code that was loaded last since the call before; 0 without any.
int shardwise_test_loaded() {
  const int last = last_capability;
  last_capability = 0;
  return last;
}

int cuLibraryLoadData(void** loaded, const void* code, void*, void*, unsigned, void*, void*,
                      unsigned) {
  last_capability = capability_of(code);
  *loaded = &library;
  return success;
}
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  *kernel = &library;
  return success;
}
int cuKernelSetAttribute(int, int, void*, int) { return success; }
int cuKernelGetAttribute(int* value, int, void*, int) {
  *value = 0;
  return success;
}
int cuLibraryUnload(void*) { return success; }

// What cuDNN wants to find, and does not need for a plan.
int cuGetErrorName() { return not_there; }
int cuGetErrorString() { return not_there; }
int cuCtxGetCurrent() { return not_there; }
int cuCtxGetLimit() { return not_there; }
int cuCtxPopCurrent() { return not_there; }
int cuCtxPushCurrent() { return not_there; }
int cuStreamGetCtx() { return not_there; }
int cuDriverGetVersion() { return not_there; }
int cuLinkCreate() { return not_there; }
int cuLinkAddData() { return not_there; }
int cuLinkComplete() { return not_there; }
int cuLinkDestroy() { return not_there; }
int cuLaunchKernel() { return not_there; }
int cuLaunchKernelEx() { return not_there; }
int cuLaunchCooperativeKernel() { return not_there; }
int cuDeviceGetCount() { return not_there; }
int cuDeviceGet() { return not_there; }
int cuKernelGetFunction() { return not_there; }
int cuLibraryLoadFromFile() { return not_there; }
int cuOccupancyMaxPotentialClusterSize() { return not_there; }
}
// NOLINTEND(readability-identifier-naming)
