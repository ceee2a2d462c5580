// The main program of tests that run as an MPI job. All processes run all tests; the first one
// reports, the others only what fails on them, and any failure fails the job.

#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS  // a process that the launcher ends has nothing to say
#include <doctest/doctest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "support/mpi_ranks.hpp"
#include "support/test_program.hpp"

namespace {

/// A test that is left in the middle has left the other processes waiting: the job ends there.
struct EndJob : testing::Listener {
  explicit EndJob(const doctest::ContextOptions& options) : options_(options) {}

  void test_case_exception(const doctest::TestCaseException& e) override {
    end(std::string("an exception left a test: ") + e.error_string.c_str());
  }
  void log_assert(const doctest::AssertData& a) override {
    if (a.m_failed && (a.m_at & doctest::assertType::is_require) != 0)
      end(std::string(a.m_file) + ":" + std::to_string(a.m_line) + ": REQUIRE( " + a.m_expr +
          " ) failed");
  }

 private:
  void end(const std::string& why) const {
    std::fprintf(stderr, "process %d: %s\n", testing::World::get().rank(), why.c_str());
    if (const auto* text = dynamic_cast<const std::ostringstream*>(options_.cout))
      std::fprintf(stderr, "%s\n", text->str().c_str());
    std::fflush(nullptr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  const doctest::ContextOptions& options_;
};
REGISTER_LISTENER("end job", 1, EndJob);

}  // namespace

int main(int argc, char** argv) {
  const shardwise::detail::mpi::Environment environment;
  testing::World world;
  doctest::Context context(argc, argv);
  context.setOption("no-colors", true);
  std::ostringstream silent;
  if (world.rank() != 0) context.setCout(&silent);
  const int result = context.run();
  if (world.rank() != 0 && result != 0)
    std::fprintf(stderr, "process %d:\n%s\n", world.rank(), silent.str().c_str());
  if (world.rank() == 0 && world.skipped() > 0)
    std::printf("skipped: what needs more than %d rank(s), %d time(s)\n", world.size(),
                world.skipped());
  // A case may run on some processes only, and the status is that of the job.
  testing::CaseCounts cases = testing::case_counts;
  MPI_Allreduce(&testing::case_counts.ran, &cases.ran, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return testing::status_of(result, cases);
}
