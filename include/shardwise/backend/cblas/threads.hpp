#pragma once
// How many threads a CBLAS may use for a product.

#include <dlfcn.h>

#include <mutex>

#include "shardwise/version.hpp"

namespace shardwise::detail::cblas {

/// What OpenBLAS offers beyond CBLAS, looked up by name in what the program runs with; null where
/// that is another library.
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

/// From now on OpenBLAS computes with `threads` threads, in the whole process: it has no setting
/// for a caller or a call.
inline void set_threads(int threads) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  const OpenBlas& library = OpenBlas::instance();
  if (library.threads == nullptr || library.set_threads == nullptr) return;
  if (library.threads() != threads) library.set_threads(threads);
}

}  // namespace shardwise::detail::cblas
