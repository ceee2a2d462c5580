#pragma once
// The number of threads of a CBLAS in a product.

#include <dlfcn.h>

#include <mutex>

#include "shardwise/version.hpp"

namespace shardwise::detail::cblas {

/// Functions of OpenBLAS beyond CBLAS, looked up by name in the running program; null for another
/// library.
struct OpenBlas {
  int (*threads)() = find<int()>("openblas_get_num_threads");
  void (*set_threads)(int) = find<void(int)>("openblas_set_num_threads");

  static const OpenBlas& instance() {
    static const OpenBlas found;
    return found;
  }

 private:
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }
};

/// Sets the number of OpenBLAS's threads to `threads`, for the whole process: it has no setting for
/// a caller or a call.
inline void set_threads(int threads) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  const OpenBlas& library = OpenBlas::instance();
  if (library.threads == nullptr || library.set_threads == nullptr) return;
  if (library.threads() != threads) library.set_threads(threads);
}

}  // namespace shardwise::detail::cblas
