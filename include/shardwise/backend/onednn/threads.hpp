#pragma once
// The number of OpenMP threads of oneDNN in a call.

#include <dlfcn.h>

#include "shardwise/version.hpp"

namespace shardwise::detail::onednn {

/// The OpenMP runtime that oneDNN is linked to, looked up by name: so a program without OpenMP
/// needs neither its header nor its library. If oneDNN was built without OpenMP, both functions are
/// null.
struct OpenMp {
  int (*max_threads)() = find<int()>("omp_get_max_threads");
  void (*set_threads)(int) = find<void(int)>("omp_set_num_threads");

  static const OpenMp& instance() {
    static const OpenMp found;
    return found;
  }

 private:
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }
};

/// While it lives, parallel regions of the calling thread have `threads` threads. The destructor
/// restores the caller's setting.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) {
    const OpenMp& openmp = OpenMp::instance();
    if (openmp.max_threads == nullptr || openmp.set_threads == nullptr) return;
    before_ = openmp.max_threads();
    if (before_ == threads) return;
    openmp.set_threads(threads);
    restore_ = true;
  }
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
  ~ThreadLimit() {
    if (restore_) OpenMp::instance().set_threads(before_);
  }

 private:
  int before_ = 0;
  bool restore_ = false;
};

}  // namespace shardwise::detail::onednn
