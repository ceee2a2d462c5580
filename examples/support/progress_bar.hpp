#pragma once
// A progress bar, shown only on a terminal.

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace example {

class ProgressBar {
 public:
  /// `is_shown` is false on all ranks but one.
  ProgressBar(std::string title, std::size_t steps, bool is_shown)
      : title_(std::move(title)),
        steps_(steps),
        is_shown_(is_shown && isatty(STDERR_FILENO) == 1) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Clears the line for later output.
  ~ProgressBar() {
    if (is_shown_) std::fprintf(stderr, "\r\033[K");
  }

  void show(std::size_t done) {
    const std::size_t filled = width * done / steps_;
    if (!is_shown_ || filled == filled_) return;
    filled_ = filled;
    const std::string bar = std::string(filled, '#') + std::string(width - filled, '.');
    std::fprintf(stderr, "\r%s [%s]", title_.c_str(), bar.c_str());
  }

 private:
  static constexpr std::size_t width = 40;

  std::string title_;
  std::size_t steps_;
  bool is_shown_;
  std::size_t filled_ = 0;
};

}  // namespace example
