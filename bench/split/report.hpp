#pragma once
// What a person sees: progress on stderr, a table on stdout.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "split/results.hpp"

namespace split {

/// A number of bytes as "1.5 MiB".
inline std::string with_unit(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

/// "512x4096x1024, pair, 2 ranks, float by onednn".
inline std::string title_of(const Job& job) {
  const std::string extents = job.shape.extents();
  return (job.shape.name == extents ? "" : job.shape.name + ' ') + extents +
         (job.is_pair ? ", pair, " : ", layer, ") + std::to_string(job.ranks) +
         (job.ranks == 1 ? " rank, " : " ranks, ") + job.engine->dtype + " by " +
         job.engine->backend;
}

inline void print_head(const std::string& cpu, unsigned cores) {
  std::printf("%s, %u cores, ranks are %s\n", cpu.c_str(), cores, communicator);
}

/// The rows of one group; an asterisk marks the fastest way.
inline void print_table(const Job& job, const std::vector<Row>& rows) {
  std::printf("\n%s\n  %-22s %11s %23s %11s %11s %11s %8s %10s %8s %11s %11s\n",
              title_of(job).c_str(), "split", "total us", "[10 %, 90 %]", "product us",
              "sending us", "exposed us", "speedup", "efficiency", "of peak", "bytes", "memory");
  for (const Row& row : rows) {
    const auto number = [&](const char* column) { return row.at(column).get<double>(); };
    const std::string name = row.at("split").get<std::string>() + (number("wins") > 0 ? " *" : "");
    std::printf(
        "  %-22s %11.1f [%10.1f,%10.1f] %11.1f %11.1f %11.1f %8.2f %9.0f%% %7.0f%% %11s %11s\n",
        name.c_str(), number("total_us"), number("total_us_p10"), number("total_us_p90"),
        number("product_us"), number("communication_us"), number("exposed_us"), number("speedup"),
        100 * number("efficiency"), 100 * number("of_peak"),
        with_unit(number("planned_bytes")).c_str(), with_unit(number("memory_bytes")).c_str());
  }
  std::fflush(stdout);
}

/// What is measured now, and how long the rest will take; on a terminal one line that changes, else
/// a line now and then.
class Progress {
 public:
  explicit Progress(std::size_t jobs) : jobs_(jobs) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Of jobs that are not measured.
  void skip() { ++skipped_; }

  void begin(const Job& job) {
    const auto now = Clock::now();
    if (is_terminal_ || now - said_ > std::chrono::seconds(10)) {
      said_ = now;
      std::fprintf(stderr, "%s[%zu of %zu%s] %s%s", is_terminal_ ? "\r\033[K" : "",
                   skipped_ + begun_ + 1, jobs_, left(now).c_str(), title_of(job).c_str(),
                   is_terminal_ ? "" : "\n");
    }
    ++begun_;
  }
  void clear() const {
    if (is_terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string left(Clock::time_point now) const {
    if (begun_ == 0) return "";
    const std::chrono::duration<double> taken = now - began_;
    const double seconds = taken.count() / static_cast<double>(begun_) *
                           static_cast<double>(jobs_ - skipped_ - begun_);
    return ", about " + std::to_string(static_cast<int>(seconds)) + " s left";
  }

  std::size_t jobs_;
  std::size_t begun_ = 0, skipped_ = 0;
  bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  Clock::time_point began_ = Clock::now(), said_{};
};

}  // namespace split
