#pragma once
// The exception of a rank, for the caller and for the other ranks.

#include <string>

#include "shardwise/core/compiled.hpp"

namespace shardwise::detail {

/// Call it in a catch block. Throws the exception of rank `rank` again: the types of this library
/// are kept, with the rank before the message, and all others become a rank_error.
[[noreturn]] void rethrow_with_rank(int rank);

/// Call it in a catch block. The message of the exception; empty if there is no memory for it.
std::string reason() noexcept;

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

#include <exception>
#include <new>

#include "shardwise/core/error.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE void rethrow_with_rank(int rank) {
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

SHARDWISE_INLINE std::string reason() noexcept try {
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

#endif  // SHARDWISE_INLINE
