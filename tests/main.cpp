#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "support/test_program.hpp"

int main(int argc, char** argv) {
  const int result = doctest::Context(argc, argv).run();
  return testing::status_of(result, testing::case_counts);
}
