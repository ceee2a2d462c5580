#pragma once
// What is said of an exception that leaves a rank.

#include <exception>
#include <new>
#include <string>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// To be called in a catch block. Throws the exception as it leaves rank `rank`: our types are kept
/// and get the rank in front, all others become a rank_error.
[[noreturn]] inline void rethrow_with_rank(int rank) {
  try {
    throw;
  } catch (error& ours) {
    ours.add_place(sentence({"rank ", rank}));
    throw;
  } catch (const std::bad_alloc&) {
    throw memory_error(
        {"rank ", rank,
         ": the system has no more memory (std::bad_alloc). Use more ranks, a smaller "
         "batch or a smaller model"});
  } catch (const std::exception& other) {
    throw rank_error(rank, std::current_exception(), other.what());
  } catch (...) {
    throw rank_error(rank, std::current_exception(), "threw what is no std::exception");
  }
}

/// To be called in a catch block. What the exception says; nothing if there is no memory for it.
inline std::string reason() noexcept try {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "what is no std::exception";
  }
} catch (...) {
  return {};
}

}  // namespace shardwise::detail
